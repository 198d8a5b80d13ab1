"""The HTTP routes of the message log: appends, reads, waits, lists, over a real log, without a socket."""

from __future__ import annotations

import asyncio
import base64

import httpx2
import orjson
import pyarrow as pa
import pytest

from tests.app.conftest import ENTRY, Caller, assert_problem
from tests.app.http.test_service import ARROW, NDJSON, arrow_stream
from tests.app.small_index import SmallIndex
from tests.patience import PATIENCE_S
from tierdex.app.http.codecs.arrow_stream import ARROW_STREAM
from tierdex.log_service.message_log import MessageLog
from tierdex.testing.components import components_of

SMALL = {
    "journal_bytes": 1 << 20, "max_message_bytes": 64 << 10, "disk_reserve_bytes": 0, "remote_interval": 0,
}  # fmt: skip
A = {"topic": "a", "queue_id": 0, "body": "one"}


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    with MessageLog.open(tmp_path_factory.mktemp("log"), node="n", **SMALL) as log:
        yield log


@pytest.fixture
def caller(log):
    return Caller(SmallIndex(), log=log, max_waits=4)


@pytest.fixture
def topic(request):
    """A topic of the test's own, since all share the log."""
    return request.node.name


def append(caller, *messages, **query):
    return caller.post("/v1/messages", json={"messages": list(messages)}, params=query)


def read(caller, topic, queue_id=0, **query):
    asked = {"topic": topic, "queue_id": queue_id, **query}
    return caller.get("/v1/messages", params=asked).json()


def test_appended_messages_are_read_with_all_they_carry(caller, topic):
    full = {
        "topic": topic, "queue_id": 7, "body": "größer", "keys": ["k", "l"], "message_id": "M",
        "headers": [{"name": "h", "value": "v"}], "timestamp": "2023-11-14T22:13:20Z",
    }  # fmt: skip
    response = append(caller, full, {"topic": topic, "queue_id": 7, "body": ""})
    assert response.json() == {"offsets": [0, 1], "durability": "disk"}
    answer = read(caller, topic, 7)
    first, second = answer.pop("messages")
    assert first == {
        **full, "offset": 0, "timestamp": 1_700_000_000_000, "encoding": "text",
        "deliver_at": None, "is_forgotten": False,
    }  # fmt: skip
    assert (second["offset"], second["body"], second["keys"]) == (1, "", [])
    assert second["timestamp"] > 1_700_000_000_000
    assert answer.pop("explain")["memory"] > 0
    assert answer == {
        "topic": topic, "queue_id": 7, "first_offset": 0, "next_offset": 2, "begin_offset": 0,
        "end_offset": 2, "from_begin": False, "generation": 0, "complete": True, "missing": [],
    }  # fmt: skip


def test_bytes_go_in_and_out_as_base64_and_what_is_no_text_says_so(caller, topic):
    raw = bytes(range(256))
    written = base64.b64encode(raw).decode()
    append(caller, {"topic": topic, "queue_id": 0, "body": written, "encoding": "base64"})
    append(caller, {"topic": topic, "queue_id": 0, "body": "x"})
    for encoding, second in (("text", ("x", "text")), ("base64", ("eA==", "base64"))):
        found = [
            (m["body"], m["encoding"]) for m in read(caller, topic, encoding=encoding)["messages"]
        ]
        assert found == [(written, "base64"), second]


def test_lines_and_arrow_append_as_json_does(caller, topic, log):
    lines = b"\n\n".join(orjson.dumps({**A, "topic": topic, "body": f"{n}"}) for n in range(3))
    assert caller.post("/v1/messages", content=lines, headers=NDJSON).json()["offsets"] == [0, 1, 2]
    header = pa.struct([("name", pa.string()), ("value", pa.binary())])
    table = pa.table({
        "topic": pa.array([topic, topic]).dictionary_encode(),
        "queue_id": pa.array([0, 1], pa.int64()),
        "body": pa.array([b"\xff", b"4"], pa.large_binary()),
        "keys": pa.array([["k"], None], pa.list_(pa.string())),
        "headers": pa.array([[{"name": "n", "value": b"\x00"}], []], pa.list_(header)),
        "timestamp": pa.array([5, 6], pa.timestamp("ms")),
    })  # fmt: skip
    response = caller.post(
        "/v1/messages?durability=os", content=arrow_stream(table),
        headers={**ARROW, "accept": ARROW_STREAM},
    )  # fmt: skip
    with pa.ipc.open_stream(response.content) as reader:
        assert reader.read_all().to_pydict() == {"offset": [3, 0]}
    found = log.read(topic, 0, 3, visible="os").messages[0]
    assert (found.body, found.keys, found.headers, found.timestamp) == (
        b"\xff", ("k",), (("n", b"\x00"),), 5,
    )  # fmt: skip


def test_one_row_of_arrow_is_appended_whatever_its_types(caller, topic, log):
    table = pa.table({
        "topic": pa.array([topic]), "queue_id": pa.array([0]), "body": pa.array(["text"]),
        "timestamp": pa.array([5], pa.timestamp("s")), "key": pa.array(["k"]),
    })  # fmt: skip
    body = arrow_stream(table)
    assert caller.post("/v1/messages", content=body, headers=ARROW).json()["offsets"] == [0]
    (message,) = log.read(topic, 0, 0).messages
    assert (message.body, message.timestamp, message.keys) == (b"text", 5000, ("k",))
    response = caller.post("/v1/messages?expect_offset=1", content=body, headers=ARROW)
    assert_problem(response, 400, "invalid-request", "expect_offset")


def test_read_in_arrow_has_the_messages_and_the_rest_as_metadata(caller, topic, log):
    log.append_batch(topic=topic, queue_id=0, body=[b"a", b"bb"], keys=[["k"], None])
    response = caller.get(
        "/v1/messages", params={"topic": topic, "queue_id": 0, "offset": 1},
        headers={"accept": ARROW_STREAM},
    )  # fmt: skip
    with pa.ipc.open_stream(response.content) as reader:
        table = reader.read_all()
    assert table.column("body").to_pylist() == [b"bb"]
    about = orjson.loads(table.schema.metadata[b"answer"])
    assert (about["next_offset"], about["end_offset"], about["complete"]) == (2, 2, True)


def test_limits_hold_and_the_next_offset_goes_on(caller, topic, log):
    log.append_batch(topic=topic, queue_id=0, body=[b"x" * 1000] * 10)
    assert read(caller, topic, max_count=3)["next_offset"] == 3
    assert read(caller, topic, offset=3, max_bytes=2500)["next_offset"] == 5
    assert read(caller, topic, offset=10)["messages"] == []
    assert read(caller, topic, offset=99)["messages"] == []
    assert read(caller, "nobody knows it")["end_offset"] == 0


def test_wrong_offset_is_answered_with_the_right_one(caller, topic):
    one = {**A, "topic": topic}
    assert append(caller, one, expect_offset=0).json()["offsets"] == [0]
    refusal = assert_problem(append(caller, one, expect_offset=0), 409, "offset-mismatch")
    assert refusal["next_offset"] == 1
    assert refusal["end_offsets"] == {"received": 1, "os": 1, "disk": 1, "remote": 0}
    assert append(caller, one, expect_offset=1).json()["offsets"] == [1]
    response = append(caller, one, one, expect_offset=2)
    assert_problem(response, 400, "invalid-request", "expect_offset")


def test_level_that_was_not_asked_for_is_not_waited_for(caller, topic):
    assert append(caller, {**A, "topic": topic}, durability="received").json()["offsets"] == [0]
    assert read(caller, topic, visible="received")["end_offset"] == 1
    append(caller)  # an empty batch brings it to the disk
    assert read(caller, topic)["end_offset"] == 1


@pytest.mark.parametrize(
    ("change", "status", "field"),
    [
        ({"queue_id": -1}, 400, "messages[1].queue_id"),
        ({"key": "a", "keys": ["b"]}, 400, "messages[1].key"),
        ({"queue_id": 1 << 31}, 400, "messages[1].queue_id"),
        ({"topic": ""}, 400, "messages[1].topic"),
        ({"body": "%", "encoding": "base64"}, 400, "messages[1].body"),
        ({"body": None}, 400, "messages[1].body"),
        ({"encoding": "hex"}, 400, "messages[1].encoding"),
        ({"headers": [{"name": "a"}]}, 400, "messages[1].headers[0].value"),
        ({"keys": [""]}, 400, "messages[1].keys"),
        ({"message_id": ""}, 400, "messages[1].message_id"),
        ({"offset": 1}, 400, "messages[1].offset"),
        ({"body": "x" * (65 << 10)}, 413, "messages[1].body"),
    ],
)
def test_one_bad_message_is_named_and_nothing_is_appended(caller, topic, change, status, field):
    good = {**A, "topic": "untouched"}
    kind = "request-too-large" if status == 413 else "invalid-request"
    assert_problem(append(caller, good, {**good, **change}), status, kind, field)
    assert read(caller, "untouched", visible="received")["end_offset"] == 0


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("topic=a", "queue_id"), ("queue_id=0", "topic"), ("topic=a&queue_id=-1", "queue_id"),
        ("topic=a&queue_id=0&offset=-1", "offset"), ("topic=a&queue_id=0&max_count=0", "max_count"),
        ("topic=a&queue_id=0&wait_ms=60001", "wait_ms"),
        ("topic=a&queue_id=0&visible=here", "visible"),
        ("topic=a&queue_id=0&offset=9223372036854775808", "offset"), ("topic=a&queue_id=0&x=1", "x"),
    ],
)  # fmt: skip
def test_absurd_parameters_are_refused_by_name(caller, query, field):
    assert_problem(caller.get(f"/v1/messages?{query}"), 400, "invalid-request", field)


@pytest.mark.parametrize(
    "columns",
    [
        {"body": pa.array([1])}, {"body": pa.nulls(1, pa.binary())}, {"keys": pa.array([[None]])},
        {"keys": pa.array([[1]])}, {"message_id": pa.array(["m"]).dictionary_encode()},
        {"headers": pa.array([[{"name": "a", "value": "text"}]])},
        {"headers": pa.array([[{}]], pa.list_(pa.struct([])))}, {"offset": pa.array([1])},
    ],
    ids=["body", "null body", "null key", "number key", "dictionary", "text header", "empty", "offset"],
)  # fmt: skip
def test_arrow_column_of_another_type_is_refused(caller, columns):
    base = {"topic": pa.array(["a"]), "queue_id": pa.array([0]), "body": pa.array([b"x"])}
    response = caller.post(
        "/v1/messages", content=arrow_stream(pa.table({**base, **columns})), headers=ARROW
    )
    assert response.status_code == 400, response.text
    assert next(iter(columns)) in response.json()["field"] + response.json()["detail"]


def test_queues_and_offsets_are_told_by_level_and_time(caller, topic, log):
    log.append_batch(topic=topic, queue_id=[0, 5, 0], body=[b"a"] * 3, timestamp=[10, 20, 30])
    assert topic in caller.get("/v1/queues").json()["topics"]
    listed = caller.get("/v1/queues", params={"topic": topic, "max_count": 1}).json()
    assert listed["queues"] == [{"queue_id": 0, "begin_offset": 0, "end_offset": 2}]
    assert listed["next_queue_id"] == 5
    rest = caller.get("/v1/queues", params={"topic": topic, "from_queue_id": 5}).json()
    assert [row["queue_id"] for row in rest["queues"]] == [5]
    assert rest["next_queue_id"] is None
    told = caller.get("/v1/offsets", params={"topic": topic, "queue_id": 0, "timestamp": 11}).json()
    assert (told["begin_offset"], told["offset"]) == (0, 1)
    assert told["end_offsets"] == {"received": 2, "os": 2, "disk": 2, "remote": 0}
    assert caller.get("/v1/offsets?topic=nobody&queue_id=1").json()["end_offsets"]["disk"] == 0


@pytest.mark.parametrize("form", ["json", "arrow"])
def test_append_at_remote_is_answered_once_it_is_published(caller, topic, form):
    append(caller, {**A, "topic": topic})
    if form == "json":
        response = append(caller, {**A, "topic": topic}, durability="remote")
        assert response.json() == {"offsets": [1], "durability": "remote"}
    else:
        body = arrow_stream(pa.table({"topic": [topic], "queue_id": [0], "body": [b"two"]}))
        response = caller.post("/v1/messages?durability=remote", content=body, headers=ARROW)
        assert response.json()["durability"] == "remote"
    append(caller, {**A, "topic": topic})
    told = caller.get("/v1/offsets", params={"topic": topic, "queue_id": 0}).json()
    assert (told["end_offsets"]["disk"], told["end_offsets"]["remote"]) == (3, 2)
    assert len(read(caller, topic, visible="remote")["messages"]) == 2
    assert not read(caller, topic, visible="remote", offset=2, wait_ms=20)["messages"]


def test_service_without_a_log_says_so():
    caller = Caller(SmallIndex())
    for path in ("/v1/messages?topic=a&queue_id=0", "/v1/queues", "/v1/offsets?topic=a&queue_id=0"):
        problem = assert_problem(caller.get(path), 404, "not-found")
        assert "message log" in problem["detail"]
    assert_problem(append(caller, A), 404, "not-found")


def test_metrics_count_messages_and_show_the_files_of_the_log(caller, topic):
    append(caller, {**A, "topic": topic}, {**A, "topic": topic})
    read(caller, topic)
    text = caller.get("/metrics").text
    assert 'tierdex_messages_appended_total{durability="disk"} 2.0' in text
    assert "tierdex_messages_read_total 2.0" in text
    assert 'tierdex_log_files{state="unsealed"} 1.0' in text
    assert "tierdex_message_waits 0.0" in text


# -- waiting -----------------------------------------------------------------------------------------------


def together(caller, main):
    """Run `main(client)` on one event loop with the application."""

    async def run():
        transport = httpx2.ASGITransport(app=caller.app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await asyncio.wait_for(main(client), PATIENCE_S)

    return asyncio.run(run())


def waiting(client, topic, **query):
    asked = {"topic": topic, "queue_id": 0, "wait_ms": 60_000, **query}
    return asyncio.ensure_future(client.get("/v1/messages", params=asked))


async def until(holds):
    while not holds():
        await asyncio.sleep(0.001)


def test_callers_that_wait_get_the_next_message_and_hold_no_thread(caller, topic):
    service = caller.app.state.service

    async def main(client):
        waits = [waiting(client, topic) for _ in range(3)]
        await until(lambda: service.arrivals.waiting == 3 and not service.quick.borrowed_tokens)
        for name in ("another queue wakes nobody", topic):
            body = {"messages": [{**A, "topic": name}]}
            assert (await client.post("/v1/messages", json=body)).status_code == 200
        return [(await each).json() for each in waits]

    answers = together(caller, main)
    assert [[m["topic"] for m in answer["messages"]] for answer in answers] == [[topic]] * 3
    assert service.arrivals.waiting == 0


def test_wait_that_brings_nothing_is_answered_empty_in_time(caller, topic):
    answer = read(caller, topic, wait_ms=20)
    assert (answer["messages"], answer["next_offset"]) == ([], 0)


def test_callers_above_the_limit_of_waits_are_refused_and_others_served(caller, topic):
    service = caller.app.state.service

    async def main(client):
        waits = [waiting(client, topic) for _ in range(4)]
        await until(lambda: service.arrivals.waiting == 4)
        refused = await waiting(client, topic)
        served = await waiting(client, topic, wait_ms=0)
        service.arrivals.end()
        return refused, served, [await each for each in waits]

    refused, served, ended = together(caller, main)
    assert_problem(refused, 503, "unavailable")
    assert served.status_code == 200
    assert [each.json()["messages"] for each in ended] == [[]] * 4


def test_caller_that_leaves_gives_its_place_back(caller, topic):
    app, service = caller.app, caller.app.state.service
    leaves, sent = asyncio.Event(), []

    async def receive():
        if receive.is_begun:
            await leaves.wait()
            return {"type": "http.disconnect"}
        receive.is_begun = True
        return {"type": "http.request", "body": b"", "more_body": False}

    receive.is_begun = False

    async def send(message):
        sent.append(message)

    async def main(_client):
        query = f"topic={topic}&queue_id=0&wait_ms=60000".encode()
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET",
            "scheme": "http", "path": "/v1/messages", "raw_path": b"/v1/messages",
            "query_string": query, "root_path": "", "headers": [(b"host", b"localhost")],
            "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1),
        }  # fmt: skip
        call = asyncio.ensure_future(app(scope, receive, send))
        await until(lambda: service.arrivals.waiting == 1)
        leaves.set()
        await call

    together(caller, main)
    assert service.arrivals.waiting == 0
    assert sent[0]["status"] == 499


def test_log_that_another_process_writes_is_waited_for_too(tmp_path, topic):
    with (
        MessageLog.open(tmp_path, node="n", **SMALL) as writer,
        MessageLog.open(tmp_path, node="n", read_only=True) as follower,
    ):
        caller = Caller(SmallIndex(), log=follower)

        async def main(client):
            wait = waiting(client, topic)
            await until(lambda: caller.app.state.service.arrivals.waiting == 1)
            await asyncio.to_thread(writer.append, topic=topic, queue_id=0, body=b"x")
            return await wait

        assert [m["body"] for m in together(caller, main).json()["messages"]] == ["x"]
        assert_problem(append(caller, A), 409, "read-only")


# -- keys --------------------------------------------------------------------------------------------------


def test_messages_of_a_key_and_of_a_message_id_are_answered_newest_first(caller, topic):
    for body in ("one", "two"):
        append(
            caller, {"topic": topic, "queue_id": 1, "body": body, "keys": ["k"], "message_id": body}
        )
    answer = caller.get("/v1/messages", params={"topic": topic, "key": "k"}).json()
    assert [m["body"] for m in answer["messages"]] == ["two", "one"]
    assert (answer["complete"], answer["missing"]) == (True, [])
    by_id = caller.get("/v1/messages", params={"message_id": "one", "encoding": "base64"}).json()
    assert [(m["body"], m["offset"]) for m in by_id["messages"]] == [("b25l", 0)]
    one = caller.get("/v1/messages", params={"topic": topic, "key": "k", "max_count": 1}).json()
    rest = {"topic": topic, "key": "k", "cursor": one["next_cursor"]}
    assert [m["body"] for m in caller.get("/v1/messages", params=rest).json()["messages"]] == [
        "one"
    ]
    absent = caller.get("/v1/messages", params={"topic": topic, "key": "none"}).json()
    assert (absent["messages"], absent["complete"]) == ([], True)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("topic=a&key=k&queue_id=0", "queue_id"), ("topic=a&key=k&wait_ms=1", "wait_ms"),
        ("topic=a&queue_id=0&begin=1", "begin"), ("topic=a&queue_id=0&cursor=x", "cursor"),
        ("key=k", "topic"), ("topic=a&key=k&message_id=m", "key"),
    ],
)  # fmt: skip
def test_queue_and_key_are_not_mixed(caller, query, field):
    assert_problem(caller.get(f"/v1/messages?{query}"), 400, "invalid-request", field)


def test_index_that_the_log_writes_is_served_with_it(log, topic):
    caller = Caller(None, log=log)
    append(caller, {"topic": topic, "queue_id": 3, "body": "x", "keys": ["k"]})
    (entry,) = caller.get("/v1/entries", params={"topic": topic, "key": "k"}).json()["entries"]
    assert (entry["queue_id"], entry["offset"]) == (3, 0)
    lookups = {"lookups": [{"topic": topic, "key": "k"}] * 2}
    answers = caller.post("/v1/entries:batchGet", json=lookups).json()["answers"]
    assert [len(answer["entries"]) for answer in answers] == [1, 1]
    assert topic in caller.get("/v1/topics").json()["topics"]
    refused = caller.post("/v1/entries", json={"entries": [ENTRY]})
    assert "append the message to the log" in refused.json()["detail"]
    journal = log.files()[0].file_id
    assert caller.post("/v1/admin/roll", json={}).json() == {"rolled": True}
    append(caller, {"topic": topic, "queue_id": 3, "body": "y"})
    assert log.files()[0].file_id != journal
    assert "tierdex_log_index_waiting_bytes" in caller.get("/metrics").text
    kinds = [
        (file["kind"], file["item_count"]) for file in caller.get("/v1/admin/files").json()["files"]
    ]
    assert kinds[0][0] == "index"
    assert ("log", 1) in kinds


def test_files_of_the_log_are_described_verified_and_expired(tmp_path):
    with MessageLog.open(tmp_path, node="n", background=False, **SMALL) as log:
        caller = Caller(None, log=log)
        append(caller, {"topic": "a", "queue_id": 0, "body": "x", "keys": ["k"]})
        log.roll()
        log.run_compaction()
        [file] = log.files()
        path = f"/v1/admin/files/{file.file_id}"
        told = caller.get(path).json()
        assert (told["kind"], told["state"], told["sealed_at"]) == (
            "log",
            "uploaded",
            file.sealed_at,
        )
        assert caller.post(f"{path}:verify", json={}).json()["sound"]
        [index_file] = log.index.files()
        assert caller.get(f"/v1/admin/files/{index_file.file_id}").json()["kind"] == "index"
        assert caller.get("/v1/admin/files/00000000000000000001-n").status_code == 404
        order = {"before": 4_000_000_000_000}
        assert [
            f["file_id"] for f in caller.post("/v1/admin/expire", json=order).json()["files"]
        ] == [file.file_id]
        assert caller.get(path).status_code == 404
        answer = read(caller, "a", 0)
        assert (answer["begin_offset"], answer["end_offset"], answer["from_begin"]) == (1, 1, True)
        found = caller.get("/v1/messages", params={"topic": "a", "key": "k"}).json()
        assert (found["messages"], found["complete"]) == ([], True)
        assert found["expired"] == [{"topic": "a", "queue_id": 0, "offset": 0}]


def test_messages_for_later_have_no_offset_until_they_are_delivered(caller, topic, log):
    soon = components_of(log).seams.clock.now_ms() + 200
    far = "2100-01-01T00:00:00Z"
    timed = [{"deliver_at": far}, {}, {"deliver_at": 1}]
    messages = [
        {"topic": topic, "queue_id": 0, "body": str(n), **more} for n, more in enumerate(timed)
    ]
    assert append(caller, *messages).json()["offsets"] == [None, 0, 1]
    assert append(caller, messages[0]).json()["offsets"] == [None]
    append(caller, {"topic": topic, "queue_id": 0, "body": "soon", "deliver_at": soon})
    (found,) = read(caller, topic, offset=2, wait_ms=30_000)["messages"]
    assert (found["body"], found["deliver_at"]) == ("soon", soon)
    assert found["timestamp"] >= soon
    hours = caller.get("/v1/timers").json()["hours"]
    assert hours == [{"begin": 4_102_444_800_000, "message_count": 2}]
    metrics = caller.get("/metrics").text
    assert "tierdex_log_held_messages 2.0" in metrics
    assert "tierdex_log_forgettings 0.0" in metrics
    table = pa.table(
        {"topic": [topic] * 2, "queue_id": [0, 0], "body": [b"a", b"b"], "deliver_at": [None, 5]}
    )
    headers = {**ARROW, "accept": ARROW_STREAM}
    response = caller.post("/v1/messages", content=arrow_stream(table), headers=headers)
    offsets = pa.ipc.open_stream(response.content).read_all()["offset"]
    assert offsets.to_pylist() == [3, 4]


@pytest.mark.parametrize(
    ("column", "field"),
    [
        (pa.array([None], pa.null()), None),
        (pa.array([None], pa.string()), None),
        (pa.array(["x"], pa.string()), "deliver_at"),
        (pa.array([1 << 63], pa.uint64()), "messages[0].deliver_at"),
        (pa.array([1_700_000_000]), "messages[0].deliver_at"),
    ],
)
def test_odd_times_for_later_in_arrow_are_refused_or_no_time(caller, topic, column, field):
    table = pa.table({"topic": [topic], "queue_id": [0], "body": [b"a"], "deliver_at": column})
    response = caller.post("/v1/messages", content=arrow_stream(table), headers=ARROW)
    if field is None:
        assert response.json()["offsets"] == [0]
    else:
        assert_problem(response, 400, "invalid-request", field)
