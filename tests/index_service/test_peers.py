"""Entries that another node has acknowledged and not published: asked for where they are."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pyarrow as pa
import pytest

from tests.index_service.conftest import put
from tests.servers.tierdex_server import running_tierdex
from tierdex import Client, Index
from tierdex.clock import SystemClock
from tierdex.errors import IncompleteAnswerError

READER = {"background": False, "peers": "auto", "peer_allow": ["127.0.0.1"], "peer_timeout": 60.0}


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


@contextmanager
def serving(tmp_path, name, *, url=None):
    port = free_port()
    settings = {
        "node": name, "advertise_url": url or f"http://127.0.0.1:{port}", "live_interval": 3600,
    }  # fmt: skip
    store = ("--store", str(tmp_path / "store"), "--port", str(port))
    with running_tierdex(tmp_path / name, *store, **settings) as server:
        yield server


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """Two owners that serve, each with entries that are not published."""
    root = tmp_path_factory.mktemp("fleet")
    with serving(root, "a") as first, serving(root, "b") as second:
        for server, begin in ((first, 0), (second, 100)):
            with Client(server.url) as client:
                for offset in range(begin, begin + 5):
                    put(client, "A", offset)
                put(client, f"only-{begin}", begin + 7, message_id=f"id-{begin}")
        yield root, first, second


@pytest.fixture
def begun_ms(fleet):
    return SystemClock().now_ms()


@pytest.fixture
def reader(fleet, begun_ms):
    with Index.open(store=str(fleet[0] / "store"), **READER) as index:
        yield index


def offsets(answer):
    return [entry.offset for entry in answer.entries]


def test_a_reader_finds_what_two_owners_have_not_published(reader, begun_ms):
    answer = reader.query("orders", key="A")
    assert sorted(offsets(answer)) == [0, 1, 2, 3, 4, 100, 101, 102, 103, 104]
    assert answer.complete, answer.missing
    assert answer.unasked == ()
    assert {entry.node for entry in answer.entries} == {"a", "b"}
    assert {entry.state for entry in answer.entries} == {"unsealed"}
    assert offsets(reader.query(message_id="id-100")) == [107]
    assert answer.as_of >= begun_ms  # the puts were before
    absent = reader.query("orders", key="none", fresh_within=3600)
    assert (absent.entries, absent.complete, absent.unasked) == ([], True, ())


def test_newest_arrival_comes_first_and_pages_join(reader):
    whole = offsets(reader.query("orders", key="A"))
    assert [o for o in whole if o < 100] == [4, 3, 2, 1, 0]
    assert [o for o in whole if o >= 100] == [104, 103, 102, 101, 100]
    paged, cursor = [], None
    for _ in range(20):
        answer = reader.query("orders", key="A", max_count=3, cursor=cursor)
        paged += offsets(answer)
        cursor = answer.next_cursor
        if cursor is None:
            break
    assert paged == whole


def test_batches_and_tables_find_them_too(reader):
    lookups = [{"topic": "orders", "key": key} for key in ("only-0", "none", "only-100")]
    assert [offsets(answer) for answer in reader.query_batch(lookups)] == [[7], [], [107]]
    table = reader.query_batch_arrow(pa.Table.from_pylist(lookups))
    assert table.column("offset").to_pylist() == [7, 107]
    assert b"unasked" not in table.schema.metadata


def test_without_peers_they_are_named_and_not_found(fleet):
    with Index.open(store=str(fleet[0] / "store"), background=False) as index:
        answer = index.query("orders", key="A")
        assert answer.entries == []


def test_a_host_that_is_not_allowed_is_not_asked_and_named(fleet):
    options = {**READER, "peer_allow": ["10.*"]}
    with Index.open(store=str(fleet[0] / "store"), **options) as index:
        answer = index.query("orders", key="A")
        assert {name for name, _ in answer.missing} == {"node:a", "node:b"}
        assert not answer.complete
        assert "peer_allow" in answer.missing[0].reason


def test_a_list_of_peers_refuses_other_addresses(fleet):
    root, first, _ = fleet
    with Index.open(store=str(root / "store"), **{**READER, "peers": [first.url]}) as index:
        answer = index.query("orders", key="A")
        assert offsets(answer) == [4, 3, 2, 1, 0]
        assert [name for name, _ in answer.missing] == ["node:b"]


def test_what_is_published_meanwhile_is_in_one_of_the_two(tmp_path):
    with serving(tmp_path, "a") as server, Client(server.url) as client:
        put(client, "A", 1)
        with Index.open(store=str(tmp_path / "store"), **READER) as index:
            assert offsets(index.query("orders", key="A")) == [1]
            client.roll()
            client.run_compaction()
            put(client, "A", 2)
            answer = index.query("orders", key="A")  # the reader's manifest is of before
            assert (offsets(answer), answer.complete) == ([2, 1], True)
            assert [entry.state for entry in answer.entries] == ["unsealed", "uploaded"]


def test_an_owner_that_is_stopped_is_named_after_the_deadline(tmp_path):
    import signal

    with serving(tmp_path, "a") as server, Client(server.url) as client:
        put(client, "A", 1)
        server.process.send_signal(signal.SIGSTOP)
        try:
            with Index.open(
                store=str(tmp_path / "store"), **{**READER, "peer_timeout": 0.3}
            ) as index:
                answer = index.query("orders", key="A")
                assert not answer.complete
                assert [name for name, _ in answer.missing] == ["node:a"]
                with pytest.raises(IncompleteAnswerError):
                    index.query("orders", key="A", on_error="fail")
        finally:
            server.process.send_signal(signal.SIGCONT)


class Liar(BaseHTTPRequestHandler):
    """Answers every question with the bytes, or the status, that the test gave."""

    def do_POST(self):
        self.server.asked.append(self.headers.get("authorization"))
        self.rfile.read(int(self.headers["content-length"]))
        status, body, location = self.server.answer
        self.send_response(status)
        if location:
            self.send_header("location", location)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def liar():
    server = HTTPServer(("127.0.0.1", 0), Liar)
    server.asked, server.answer = [], (200, b"", None)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    "answer",
    [
        (200, b"", None),
        (200, b"not arrow", None),
        (500, b"", None),
        (302, b"", "http://127.0.0.1:1/"),
    ],
)
def test_a_peer_that_answers_wrongly_is_named_and_never_trusted(tmp_path, liar, answer):
    liar.answer = answer
    url = f"http://127.0.0.1:{liar.server_address[1]}"
    with serving(tmp_path, "a", url=url) as server, Client(server.url) as client:
        put(client, "A", 1)
        with Index.open(store=str(tmp_path / "store"), peer_key="secret", **READER) as index:
            found = index.query("orders", key="A")
            assert (found.entries, found.complete) == ([], False)
            assert [name for name, _ in found.missing] == ["node:a"]
            assert liar.asked == ["Bearer secret"]


def test_a_question_for_another_epoch_is_refused(fleet):
    import httpx2

    from tierdex.index_service.peers.messages import Owner, Question, encode_question
    from tierdex.index_service.requests.lookups import Lookups

    _, first, _ = fleet
    import numpy as np

    none = np.empty(0)
    lookups = Lookups(
        none.astype(np.uint64), none.astype(np.uint8), [], none.astype(np.int32),
        none.astype(np.int64), none.astype(np.int64), none.astype(np.int64), str,
    )  # fmt: skip
    question = Question(Owner("a", 99, "00" * 16, 1), 5, lookups)
    response = httpx2.post(
        first.url + "/v1/entries:unpublished",
        content=encode_question(question),
        headers={"content-type": "application/vnd.apache.arrow.stream"},
    )
    assert response.status_code == 409
    assert json.loads(response.content)["type"].endswith("ownership")
