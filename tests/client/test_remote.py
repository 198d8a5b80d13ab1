"""The remote clients, against a real service over a real index, without a socket."""

from __future__ import annotations

import inspect

import anyio
import httpx2
import numpy as np
import pyarrow as pa
import pytest

from tierdex import errors
from tierdex.app.http.application import create_app
from tierdex.app.http.problems import KINDS
from tierdex.app.http.server_settings import ServerSettings
from tierdex.client import calls
from tierdex.client.refusals import error_of, kind_name
from tierdex.client.remote import AsyncClient, Client
from tierdex.clock import ManualClock
from tierdex.ids import SeededIds
from tierdex.index_service.index import Index

ENTRY = {"topic": "orders", "queue_id": 0, "offset": 1, "size": 2, "timestamp": 3}


class AppTransport(httpx2.BaseTransport):
    """Hands a synchronous client's requests to an application; `failures` are raised first."""

    def __init__(self, app, failures=()):
        self._app = app
        self.failures = list(failures)
        self.requests = 0

    def handle_request(self, request):
        self.requests += 1
        self.headers = request.headers
        if self.failures:
            failure = self.failures.pop(0)
            if isinstance(failure, Exception):
                raise failure
            return failure

        async def send():
            transport = httpx2.ASGITransport(app=self._app)
            response = await transport.handle_async_request(request)
            return response.status_code, response.headers, [part async for part in response.stream]

        request.stream = AsyncBody(request.read())
        status, headers, parts = anyio.run(send)
        self.answered = headers
        return httpx2.Response(status, headers=headers, stream=httpx2.ByteStream(b"".join(parts)))


class AsyncBody(httpx2.AsyncByteStream):
    def __init__(self, body):
        self._body = body

    async def __aiter__(self):
        yield self._body


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    data = tmp_path_factory.mktemp("client")
    with Index.open(
        data, slot_count=1024, item_capacity=4096, background=False, remote_interval=0.0
    ) as index:
        yield create_app(index, ServerSettings(log_requests=False))


@pytest.fixture
def make_client(app):
    def make(failures=(), **options):
        transport = AppTransport(app, failures)
        client = Client(
            "http://localhost",
            transport=transport,
            clock=ManualClock(),
            ids=SeededIds(1),
            **options,
        )
        return client, transport

    return make


@pytest.fixture
def client(make_client):
    with make_client()[0] as client:
        yield client


def test_put_and_query_are_those_of_the_index(client):
    assert client.put(**ENTRY, keys=["k1", "k2"], message_id="m1") == "os"
    answer = client.query("orders", key="k1", explain=True)
    (entry,) = answer.entries
    assert (entry.topic, entry.offset, entry.size, entry.timestamp) == ("orders", 1, 2, 3)
    assert (answer.complete, answer.missing, answer.next_cursor) == (True, [], None)
    assert answer.explain.files[0].outcome == "read"
    assert client.query(message_id="m1").entries == [entry]
    assert client.query("orders", key="k1", begin="1980-01-01T00:00:00Z").entries == []


@pytest.mark.parametrize("door", ["index", "client"])
def test_one_key_is_given_as_a_key(app, client, door):
    of = {"index": app.state.service.own_index, "client": client}[door]
    topic = f"one of {door}"
    assert of.put(**{**ENTRY, "topic": topic}, key="k") == "os"  # one default at every door
    of.put_batch(**{**ENTRY, "topic": topic, "offset": [2, 3]}, key=["k", "l"])
    assert [entry.offset for entry in of.query(topic, key="k").entries] == [2, 1]
    for both in (of.put, of.put_batch):
        with pytest.raises(errors.InvalidRequestError, match="either `key` or `keys`") as told:
            both(**ENTRY, key="k", keys=["k"])
        assert told.value.field == "key"
    with pytest.raises(errors.InvalidRequestError) as told:
        of.put(**ENTRY, key="")
    assert told.value.field in ("key", "entries[0].key")


@pytest.mark.parametrize(
    "keys",
    [["b0", "b1", "b2"], np.array(["b0", "b1", "b2"]), pa.array(["b0", "b1", "b2"])],
    ids=["list", "numpy", "arrow"],
)
def test_columns_of_any_kind_are_put(client, keys):
    level = client.put_batch(
        topic="batch", keys=keys, queue_id=0, offset=np.arange(3), size=[1, 2, 3], timestamp=5,
        durability="disk",
    )  # fmt: skip
    assert level == "disk"
    lookups = [{"topic": "batch", "key": f"b{n}"} for n in range(3)] + [{"message_id": "none"}]
    found = [[entry.offset for entry in answer.entries] for answer in client.query_batch(lookups)]
    assert found == [[0], [1], [2], []]
    table = client.query_batch_arrow(pa.table({"topic": ["batch"] * 2, "key": ["b2", "b0"]}))
    assert table.column("offset").to_pylist() == [2, 0]


def test_max_count_of_a_batch_is_for_lookups_that_do_not_say_it(client):
    client.put_batch(topic="many", keys="k", queue_id=0, offset=np.arange(5), size=1, timestamp=5)
    lookups = [{"topic": "many", "key": "k"}, {"topic": "many", "key": "k", "max_count": 3}]
    answers = client.query_batch(lookups, max_count=2)
    assert [len(answer.entries) for answer in answers] == [2, 3]


def test_operation_has_the_verbs_of_the_index(client):
    client.put(**{**ENTRY, "topic": "operation"}, keys=["k"])
    assert "operation" in client.topics()
    assert [info.topic for info in client.topic_infos()] == client.topics()
    known = client.known_topics()
    assert (known.names, known.unasked) == (client.topics(), ())
    assert known.as_of >= client.query("operation", key="k").entries[0].timestamp
    assert client.watermark("operation", 0)["os"] is not None
    assert client.flush("disk") == "disk"
    assert client.roll()
    assert client.run_compaction() > 0
    client.refresh()
    file = client.files()[0]
    told = client.file(file.file_id)
    assert told.compaction_s >= 0
    assert told._replace(published_at=None, compacted_at=None, compaction_s=None) == file
    assert client.verify_file(file.file_id) == []
    assert client.compaction_status()["backlog_files"] == 0
    assert client.expire(before=0, dry_run=True) == []


def test_id_with_its_time_inside_narrows_when_it_is_asked_to(client):
    name = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    client.put(**{**ENTRY, "timestamp": 1469922850259 + 10}, message_id=name)
    answer = client.query(message_id=name, id_time="ulid", explain=True)
    assert len(answer.entries) == 1
    assert answer.explain.id_time["form"] == "ulid"
    assert client.query(message_id=name, explain=True).explain.id_time is None
    with pytest.raises(errors.InvalidRequestError, match="id_time"):
        client.query(message_id=name, id_time="ksuid")


def test_explain_has_a_proof_when_it_is_asked_for(client):
    proof = client.query("orders", key="never", explain=True, proof=True).explain.proof
    assert proof["asked"]["key"] == "never"
    assert proof["absent"]
    with pytest.raises(errors.InvalidRequestError, match="proof"):
        client.query("orders", key="never", proof=True)


def test_a_key_is_forgotten_and_its_receipt_is_that_of_the_index(client, app):
    client.put(**ENTRY, keys=["forgotten"])
    dry = client.forget([{"topic": "orders", "key": "forgotten"}], dry_run=True)
    assert [entry.offset for entry in dry.entries] == [1]
    assert client.forgettings() == []
    receipt = client.forget([{"topic": "orders", "key": "forgotten"}], only=[(0, 1)], wait=120)
    assert receipt.is_complete
    assert receipt.entries == dry.entries
    assert client.query("orders", key="forgotten").entries == []
    assert client.forgettings() == [receipt.forgetting]
    again = client.resume_forgetting(receipt)
    assert (again.forgetting, again.holding) == (receipt.forgetting, receipt.holding)
    assert receipt.digest.startswith("sha256:")
    for order, field in (
        ([], "lookups"),
        ([{"topic": "orders"}], "lookups"),
        ([{"topic": "orders", "key": "k", "begin": 1}], "lookups"),
    ):
        with pytest.raises(errors.InvalidRequestError) as refused:
            client.forget(order)
        assert field in refused.value.field
    with pytest.raises(errors.NotFoundError):
        client.resume_forgetting("00" * 16)


def test_a_long_wait_is_sent_in_requests_that_end_before_the_clients_timeout():
    assert calls.waits_of(0) == [0]
    assert calls.waits_of(1.5) == [1.5]
    assert calls.waits_of(120) == [10] * 12
    assert calls.waits_of(25) == [10, 10, 5]


def test_pages_follow_the_cursor(client):
    for offset in range(5):
        client.put(**{**ENTRY, "topic": "pages", "offset": offset}, keys=["k"])
    offsets, cursor = [], None
    while True:
        answer = client.query("pages", key="k", max_count=2, cursor=cursor)
        offsets += [entry.offset for entry in answer.entries]
        cursor = answer.next_cursor
        if cursor is None:
            break
    assert offsets == [4, 3, 2, 1, 0]


@pytest.mark.parametrize(
    ("call", "error", "field"),
    [
        (lambda c: c.query("orders"), errors.InvalidRequestError, "key"),
        (
            lambda c: c.query("orders", key="k", max_count=0),
            errors.InvalidRequestError,
            "max_count",
        ),
        (lambda c: c.put(**ENTRY), errors.InvalidRequestError, "entries[0].keys"),
        (
            lambda c: c.put(**{**ENTRY, "offset": -1}, keys=["k"]),
            errors.InvalidRequestError,
            "entries[0].offset",
        ),
        (
            lambda c: c.put_batch(**ENTRY, keys=["a", ""]),
            errors.InvalidRequestError,
            "entries[1].key",
        ),
        (
            lambda c: c.put_batch(**{**ENTRY, "offset": [1, 2, 3]}, keys=["a"]),
            errors.InvalidRequestError,
            "offset",
        ),
        (lambda c: c.put(**ENTRY, keys=["\ud800"]), errors.InvalidRequestError, None),
        (lambda c: c.file("none"), errors.NotFoundError, None),
    ],
)
def test_error_is_that_of_the_index(client, call, error, field):
    with pytest.raises(error) as caught:
        call(client)
    assert type(caught.value) is error
    assert getattr(caught.value, "field", None) == field


def test_every_problem_becomes_the_class_it_was_made_of():
    for error_class, row in KINDS.items():
        if error_class in (errors.TierdexError, errors.IllegalTransitionError):
            continue
        assert kind_name(error_class) == row.name
        body = f'{{"type": "urn:tierdex:problem:{row.name}", "detail": "d"}}'.encode()
        headers = {"content-type": "application/problem+json"}
        assert type(error_of(row.status, headers, body)) is error_class


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (502, errors.UnavailableError), (429, errors.RateLimitedError),
        (401, errors.AuthenticationError), (418, errors.InvalidRequestError),
        (500, errors.TierdexError),
    ],
)  # fmt: skip
def test_answer_of_a_proxy_becomes_an_error_too(status, error):
    caught = error_of(status, {"content-type": "text/html", "retry-after": "soon"}, b"<html>")
    assert type(caught) is error
    assert f"answered {status}, not by the service" in str(caught)


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"entries":', b"[]"])
def test_page_that_is_no_answer_becomes_an_error(make_client, body):
    client, transport = make_client([httpx2.Response(200, content=body)] * 9, attempts=2)
    for call in (lambda: client.query("t", key="secret"), lambda: client.put(**ENTRY, keys=["k"])):
        with pytest.raises(errors.UnavailableError, match="not by the service") as caught:
            call()
        assert "secret" not in str(caught.value)
    assert transport.requests == 4  # the put as well: it is found once


def unavailable():
    return httpx2.Response(503, headers={"retry-after": "2"}, content=b"busy")


def test_read_is_tried_again_until_it_succeeds(make_client):
    failures = [httpx2.ReadTimeout("slow"), unavailable(), httpx2.ConnectError("refused")]
    client, transport = make_client(failures)
    assert client.query("none", key="none").entries == []
    assert transport.requests == 4


def test_read_is_given_up_with_a_typed_error(make_client):
    client, transport = make_client([httpx2.ReadTimeout("slow")] * 9, attempts=3)
    with pytest.raises(errors.UnavailableError, match=r"no answer from http://\S+: slow"):
        client.topics()
    assert transport.requests == 3


def test_put_that_timed_out_is_sent_again_since_an_entry_is_found_once(make_client):
    client, transport = make_client([httpx2.ReadTimeout("slow")])
    assert client.put(**ENTRY, keys=["sent twice"]) == "os"
    assert transport.requests == 2
    client.put(**ENTRY, keys=["sent twice"])
    assert len(client.query("orders", key="sent twice").entries) == 1
    client, transport = make_client([httpx2.ReadTimeout("slow")])
    client.put_batch(**{**ENTRY, "offset": [7, 8]}, keys=["a", "b"])
    assert transport.requests == 2


def test_append_is_sent_once_unless_no_connection_was_made(make_client):
    client, transport = make_client([httpx2.ReadTimeout("slow")])
    with pytest.raises(errors.UnavailableError):
        client.append(topic="t", queue_id=0, body=b"x")
    assert transport.requests == 1


def test_plain_request_to_a_service_with_tls_is_told_about_https(make_client):
    client, _ = make_client([httpx2.RemoteProtocolError("Server disconnected")] * 9)
    with pytest.raises(errors.UnavailableError, match="begins with https://"):
        client.topics()


TEXTS = {"topic": "t", "key": "k", "message_id": "m", "cursor": "c", "file_id": "f", "group": "g",
         "id_time": "off", "node": "n"}  # fmt: skip
GIVEN = {"queue_id": 0, "offset": 0, "size": 1, "timestamp": 1, "body": b"", "lookups": []}


@pytest.mark.parametrize("bad", ["\ud800", 7], ids=["surrogate", "number"])
@pytest.mark.parametrize(
    ("verb", "name"),
    [
        (verb.__name__, name)
        for verb in vars(calls).values()
        if inspect.isfunction(verb)
        and verb.__module__ == calls.__name__
        and verb.__name__[0] != "_"
        for name in inspect.signature(verb).parameters
        if name in TEXTS
    ],
)
def test_name_that_is_no_text_is_refused_before_or_by_the_service(client, verb, name, bad):
    wanted = inspect.signature(getattr(calls, verb)).parameters.values()
    given = {
        each.name: {**TEXTS, **GIVEN}[each.name] for each in wanted if each.default is each.empty
    }
    with pytest.raises(errors.InvalidRequestError):
        getattr(client, verb)(**{**given, name: bad})


def test_list_of_lookups_is_refused_where_a_table_is_wanted(client):
    with pytest.raises(errors.InvalidRequestError, match="query_batch"):
        client.query_batch_arrow([{"topic": "t", "key": "k"}])


def test_refusal_is_not_tried_again(make_client):
    client, transport = make_client()
    with pytest.raises(errors.NotFoundError):
        client.file("none")
    assert transport.requests == 1


def test_answers_are_compressed_for_a_client_that_asks_for_it(make_client):
    for compressed in (False, True):
        client, transport = make_client(compressed=compressed)
        client.put_batch(
            topic="line", key=["k"] * 64, queue_id=0, offset=list(range(64)), size=1, timestamp=5
        )
        with client:
            assert len(client.query("line", key="k").entries) == 64
        assert ("gzip" in transport.headers["accept-encoding"]) is compressed
        assert ("content-encoding" in transport.answered) is compressed


def test_address_must_be_one():
    with pytest.raises(errors.InvalidRequestError):
        Client("localhost:8080")


def test_asynchronous_client_has_the_same_verbs(app):
    verbs = {name for name in dir(Client) if not name.startswith("_")}
    assert verbs == {name for name in dir(AsyncClient) if not name.startswith("_")}
    of_process = {
        "open",
        "begin_put",
        "begin_query",
        "query_batch_local",
        "health",
        "settings",
        "data_folder",
    }
    assert verbs >= {name for name in vars(Index) if not name.startswith("_")} - of_process

    async def run():
        transport = httpx2.ASGITransport(app=app)
        async with AsyncClient("http://localhost", transport=transport) as client:
            await client.put(**{**ENTRY, "topic": "async"}, keys=["k"])
            answers = await client.query_batch([{"topic": "async", "key": "k"}])
            with pytest.raises(errors.NotFoundError):
                await client.file("none")
            return answers

    (answer,) = anyio.run(run)
    assert [entry.offset for entry in answer.entries] == [1]
