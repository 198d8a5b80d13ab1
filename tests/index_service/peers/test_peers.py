"""Entries that another node has acknowledged and not published: asked for where they are."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx2
import pyarrow as pa
import pytest

from tests.index_service.conftest import put
from tests.patience import PATIENCE_S
from tests.servers.tierdex_server import running_tierdex
from tierdex import Client, Index
from tierdex.clock import SystemClock
from tierdex.connections import carried_trace
from tierdex.errors import IncompleteAnswerError
from tierdex.index_service.journey import find_journey
from tierdex.index_service.peers.messages import Owner, Question, encode_question
from tierdex.index_service.peers.peer_round import PeerRound
from tierdex.index_service.requests.lookups import Lookups
from tierdex.index_service.requests.query import make_requests
from tierdex.index_service.view.node_ages import NodeAges
from tierdex.lifecycle.manifests.live_record import OwnerAddress
from tierdex.lifecycle.manifests.liveness import Liveness
from tierdex.lifecycle.manifests.manifest import ManifestState
from tierdex.storage_layer.local import LocalStore
from tierdex.testing.components import components_of
from tools.free_port import find_free_port

READER = {"background": False, "peers": "auto", "peer_allow": ["127.0.0.1"], "peer_timeout": 60.0}


@contextmanager
def serving(tmp_path, name, *, url=None, **more):
    port = find_free_port()
    settings = {
        "node": name, "advertise_url": url or f"http://127.0.0.1:{port}", "live_interval": 3600,
        **more,
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
    assert reader.resources()["peers"] == {"answered": 4, "failed": 0}
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


def test_journey_is_no_newer_than_its_list_of_topics_whoever_answers(tmp_path):
    with serving(tmp_path, "a") as server, Client(server.url) as client:
        put(client, "A", 1)
        with Index.open(store=str(tmp_path / "store"), **READER) as reader:
            assert offsets(reader.query("orders", key="A")) == [1]  # who names the topic finds it
            before_ms = SystemClock().now_ms()
            journey = find_journey(reader, "A")
            assert journey.entries == []
            assert journey.as_of < before_ms
            while SystemClock().now_ms() < before_ms + 1500:
                threading.Event().wait(0.1)
            fresh = find_journey(reader, "A", fresh_within=1)
            ((name, reason),) = fresh.missing
            assert (fresh.complete, name) == (False, "node:a")
            assert "older than asked for" in reason
            with pytest.raises(IncompleteAnswerError, match="node:a"):
                find_journey(reader, "A", fresh_within=1, on_error="fail")
        assert client.journey("A").entries[0].offset == 1  # its owner knows it


def test_questions_belong_to_the_trace_of_the_query(reader, fleet):
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    with carried_trace(f"00-{trace}-00f067aa0ba902b7-01"):
        reader.query("orders", key="A")
    deadline = SystemClock().monotonic() + PATIENCE_S
    for owner in fleet[1:]:
        while trace not in [line.get("trace_id") for line in owner.log()]:
            assert SystemClock().monotonic() < deadline, owner.lines
            threading.Event().wait(0.02)


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


@contextmanager
def running_server(handler):
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


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
    with running_server(Liar) as server:
        server.asked, server.answer = [], (200, b"", None)
        yield server


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


class SlowToAnswer(BaseHTTPRequestHandler):
    """Passes a question on once the reader has asked the store for a published file."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        was_asked = self.server.store_was_asked.wait(PATIENCE_S)
        headers = {"content-type": self.headers["content-type"]}
        url = self.server.owner_url + self.path
        answer = httpx2.post(url, content=body, headers=headers, timeout=PATIENCE_S)
        self.send_response(answer.status_code if was_asked else 500)
        self.send_header("content-length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)

    def log_message(self, *_):
        """Say nothing."""


class WatchedStore(LocalStore):
    """A folder store that says when a published file was read."""

    def __init__(self, root, event):
        super().__init__(root)
        self._event = event

    def get(self, key, position=None, length=None):
        if "/files/" in key:
            self._event.set()
        return super().get(key, position, length)


def test_the_store_is_asked_while_peers_are(tmp_path):
    with running_server(SlowToAnswer) as slow:
        slow.store_was_asked = threading.Event()
        url = f"http://127.0.0.1:{slow.server_address[1]}"
        with serving(tmp_path, "a", url=url) as server, Client(server.url) as client:
            slow.owner_url = server.url
            put(client, "A", 1)
            client.roll()
            client.run_compaction()
            put(client, "A", 2)
            put(client, "B", 3)
            store = WatchedStore(tmp_path / "store", slow.store_was_asked)
            with Index.open(store=store, **{**READER, "peer_timeout": 2 * PATIENCE_S}) as index:
                answer = index.query("orders", key="A", explain=True)
                assert (offsets(answer), answer.complete) == ([2, 1], True)
                assert answer.explain.sidecar_requests == 1  # in all: the second search has it
                again = index.query("orders", key="B", explain=True)
                assert (offsets(again), again.explain.requests) == ([3], 0)


def test_an_owner_of_before_does_not_answer_for_the_one_that_took_over():
    def ages(epoch):
        state = ManifestState(node="a", number=epoch, epoch=epoch, owner=bytes([epoch]) * 16)
        standing = Liveness("a", "live", 500, 500, holds_unpublished=True, interval_ms=60)
        return NodeAges(
            taken_ms=2000, listed_ms=1000, known_ms={"a": 1000}, states={"a": state},
            standings={"a": standing},
        )  # fmt: skip

    first = OwnerAddress("a", 1, "01" * 16, 1, "http://a")
    answered = PeerRound(ages=ages(1), given_by=[first])
    assert answered.answered == {"a"}
    assert answered.as_of() == 1000  # puts after a takeover would be another owner's
    fenced = PeerRound(ages=ages(2), given_by=[first])
    assert fenced.answered == set()
    assert fenced.as_of() == 500


def test_a_question_for_another_epoch_is_refused(fleet):
    _, first, _ = fleet
    question = Question(Owner("a", 99, "00" * 16, 1), 5, Lookups.of([]))
    response = httpx2.post(
        first.url + "/v1/entries:unpublished",
        content=encode_question(question),
        headers={"content-type": "application/vnd.apache.arrow.stream"},
    )
    assert response.status_code == 409
    assert json.loads(response.content)["type"].endswith("ownership")


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd", "ftp://127.0.0.1/", "http://", "127.0.0.1:80", "http://me@127.0.0.1/",
        "http://127.0.0.1:99999/", "http://[::1", "http://127.0.0.1.evil.example/",
        "http://evil.example/127.0.0.1", "http://127.0.0.1@evil.example/", "",
    ],
)  # fmt: skip
@pytest.mark.parametrize("peers", ["auto", ["http://127.0.0.1:80"]])
def test_no_address_of_a_live_record_is_asked_but_those_of_the_settings(fleet, liar, url, peers):
    settings = {**READER, "peers": peers, "peer_timeout": 0.01}
    with Index.open(store=str(fleet[0] / "store"), **settings) as index:
        known = components_of(index).read_view.ages
        state = replace(known.states["a"], node="a")
        forged = known.standings["a"]._replace(advertise_url=url)
        ages = replace(known, states={"a": state}, standings={"a": forged})
        lookups = Lookups.of(
            make_requests(components_of(index).settings, [{"topic": "orders", "key": "A"}])
        )
        asking = components_of(index).queries.peers
        questions = asking.begin(lookups, ages, is_page=False)
        assert not questions.under_way
        if questions.refused:  # with an empty address there is nothing to ask
            round_ = PeerRound(ages=ages)
            asking.finish(questions, round_)
            assert [name for name, _ in round_.missing] == ["node:a"]


def test_a_peer_asks_nobody_and_no_address_that_a_question_names(tmp_path, liar):
    """Two owners ask each other for queries of their own; a question for one goes no further."""
    url = f"http://127.0.0.1:{liar.server_address[1]}"
    lies = {"peers": "auto", "peer_allow": ["127.0.0.1"]}
    with (
        serving(tmp_path, "b", url=url),  # a reader that asks b asks the liar
        serving(tmp_path, "a", **lies) as server,
        Client(server.url) as client,
    ):
        put(client, "A", 1)
        liar.asked.clear()
        with Index.open(store=str(tmp_path / "store"), **READER) as index:
            (peer,) = (
                p for p in components_of(index).read_view.ages.live_peers(0) if p.node == "a"
            )
            lookups = Lookups.of(
                make_requests(components_of(index).settings, [{"topic": "orders", "key": "A"}])
            )
            for node in ("a", url):
                owner = Owner(node, peer.epoch, peer.owner, peer.number)
                answer = httpx2.post(
                    server.url + "/v1/entries:unpublished",
                    content=encode_question(Question(owner, 9, lookups)),
                    headers={"content-type": "application/vnd.apache.arrow.stream"},
                )
                assert answer.status_code == (200 if node == "a" else 409)
        assert liar.asked == []
        assert [name for name, _ in client.query("orders", key="A").missing] == ["node:b"]
        assert len(liar.asked) == 1  # a query of its own does ask
