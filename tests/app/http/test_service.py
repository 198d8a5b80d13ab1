"""The HTTP service: what it accepts, answers, refuses, without a socket."""

from __future__ import annotations

import io

import orjson
import pyarrow as pa
import pytest

from tests.app.conftest import ENTRY, Caller, assert_problem
from tierdex import errors
from tierdex.app.http.problems import KINDS
from tierdex.app.rights import Scope
from tierdex.index_service.answer import Missing
from tierdex.index_service.index import Index
from tierdex.settings import Settings

JSON = {"content-type": "application/json"}
ARROW = {"content-type": "application/vnd.apache.arrow.stream"}
NDJSON = {"content-type": "application/x-ndjson"}


def put(caller, *entries, **body):
    return caller.post("/v1/entries", json={"entries": list(entries), **body})


def arrow_stream(table, **options):
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return sink.getvalue()


def arrow_entries(**columns):
    base = {
        "topic": pa.array(["orders", "orders"]),
        "key": pa.array(["a", "b"]),
        "queue_id": pa.array([0, 1], pa.int32()),
        "offset": pa.array([0, 100], pa.int64()),
        "size": pa.array([10, 20], pa.uint32()),
        "timestamp": pa.array([1, 2], pa.int64()),
    }
    base.update(columns)
    return pa.table({name: column for name, column in base.items() if column is not None})


# -- puts ------------------------------------------------------------------------------------------


def test_put_entry_is_found_by_key_and_by_message_id(caller):
    response = put(caller, {**ENTRY, "message_id": "M-1"})
    assert response.json() == {"accepted": 1, "durability": "os"}
    answer = caller.get("/v1/entries", params={"topic": "orders", "key": "ORDER-1"}).json()
    assert answer["complete"] is True
    assert answer["entries"][0]["offset"] == 4096
    by_id = caller.get("/v1/entries", params={"message_id": "M-1"}).json()
    assert by_id["entries"] == answer["entries"]


def test_entry_with_several_keys_counts_once_and_is_found_by_each(caller):
    several = {**ENTRY, "keys": ["a", "b", "c"], "message_id": "m"}
    only_id = {**ENTRY, "keys": [], "message_id": "n", "offset": 7}
    one_key = {**{k: v for k, v in ENTRY.items() if k != "keys"}, "key": "d", "topic": "其他"}
    assert put(caller, several, only_id, one_key).json()["accepted"] == 3
    for key, offset in (("a", 4096), ("b", 4096), ("c", 4096)):
        found = caller.get("/v1/entries", params={"topic": "orders", "key": key}).json()["entries"]
        assert [entry["offset"] for entry in found] == [offset]
    assert len(caller.get("/v1/entries?topic=%E5%85%B6%E4%BB%96&key=d").json()["entries"]) == 1
    assert caller.get("/v1/entries?message_id=n").json()["entries"][0]["offset"] == 7
    (file,) = caller.get("/v1/admin/files").json()["files"]
    assert file["item_count"] == len("abcd") + len("mn")


def test_numbers_of_64_bits_come_back_exact(caller):
    greatest = (1 << 63) - 1
    put(caller, {**ENTRY, "offset": greatest, "timestamp": -greatest - 1})
    (entry,) = caller.get("/v1/entries?topic=orders&key=ORDER-1").json()["entries"]
    assert (entry["offset"], entry["timestamp"]) == (greatest, -greatest - 1)


def test_rfc3339_time_means_the_same_as_milliseconds(caller):
    put(caller, {**ENTRY, "timestamp": "2023-11-14T23:13:20.5+01:00"})
    answer = caller.get(
        "/v1/entries?topic=orders&key=ORDER-1&begin=2023-11-14T22:13:20.500Z&end=1700000000500"
    ).json()
    assert [entry["timestamp"] for entry in answer["entries"]] == [1_700_000_000_500]


def test_empty_batch_brings_earlier_puts_to_the_level(caller):
    assert put(caller, durability="disk").json() == {"accepted": 0, "durability": "disk"}


def test_ndjson_is_put_line_by_line(caller):
    body = b"\n".join([orjson.dumps(ENTRY), b"", orjson.dumps({**ENTRY, "offset": 1})])
    response = caller.post("/v1/entries?durability=disk", content=body, headers=NDJSON)
    assert response.json() == {"accepted": 2, "durability": "disk"}


def test_ndjson_line_that_is_no_object_is_named(shared_door):
    body = orjson.dumps(ENTRY) + b"\n{]\n"
    response = shared_door.post("/v1/entries", content=body, headers=NDJSON)
    assert_problem(response, 400, "invalid-request", "entries[1]")
    assert shared_door.index.topics() == []


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"topic": pa.array(["orders", "orders"]).dictionary_encode()},
        {"timestamp": pa.array([1, 2], pa.timestamp("ms", "UTC"))},
        {"key": None, "keys": pa.array([["a"], ["b", "c"]])},
        {"key": None, "message_id": pa.array(["a", "b"])},
        {"key": pa.array(["a", None]), "message_id": pa.array([None, "b"])},
    ],
    ids=["plain", "dictionary_topic", "timestamp", "key_lists", "message_ids", "mixed"],
)
def test_arrow_stream_is_put(caller, columns):
    body = arrow_stream(arrow_entries(**columns))
    response = caller.post("/v1/entries", content=body, headers=ARROW)
    assert response.json() == {"accepted": 2, "durability": "os"}, response.text
    found = [
        caller.get("/v1/entries", params=lookup).json()["entries"]
        for lookup in ({"topic": "orders", "key": "a"}, {"message_id": "a"})
    ]
    assert sum(map(len, found)) == 1


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", "entries"),
        (b"garbage that is no stream at all", "entries"),
        (arrow_stream(arrow_entries())[:-30], "entries"),
        (arrow_stream(arrow_entries(), compression="zstd"), "entries"),
        (arrow_stream(arrow_entries(extra=pa.array([1, 2]))), "entries.extra"),
        (arrow_stream(arrow_entries(size=None)), "entries.size"),
        (arrow_stream(arrow_entries(size=pa.array([1, -1]))), "entries[1].size"),
        (arrow_stream(arrow_entries(size=pa.array([1.0, 2.0]))), "size"),
        (arrow_stream(arrow_entries(offset=pa.array([1, None]))), "entries[1].offset"),
        (arrow_stream(arrow_entries(topic=pa.array(["a", "\x01"]))), "entries[1].topic"),
        (arrow_stream(arrow_entries(key=pa.array(["a", ""]))), "entries[1].key"),
        (
            arrow_stream(arrow_entries(key=None, keys=pa.array([["a", "b"], [""]]))),
            "entries[1].keys[0]",
        ),
        (arrow_stream(arrow_entries(key=pa.array(["a", "b"]).dictionary_encode())), "entries.key"),
    ],
    ids=[
        "empty", "garbage", "truncated", "compressed", "unknown_column", "missing_column",
        "negative", "float", "null", "control_character", "empty_key", "empty_key_in_list",
        "dictionary_key",
    ],
)  # fmt: skip
def test_bad_arrow_stream_is_refused_whole(shared_door, body, field):
    response = shared_door.post("/v1/entries", content=body, headers=ARROW)
    assert_problem(response, 400, "invalid-request", field)
    assert shared_door.index.topics() == []


BAD_VALUES = [
    ("topic", "", "topic"), ("topic", "a\x00b", "topic"), ("topic", None, "topic"),
    ("topic", 1, "topic"), ("topic", ["orders"], "topic"), ("topic", "é" * 128, "topic"),
    ("queue_id", -1, "queue_id"), ("queue_id", 1 << 31, "queue_id"), ("queue_id", True, "queue_id"),
    ("queue_id", None, "queue_id"), ("offset", -1, "offset"), ("offset", 1.0, "offset"),
    ("offset", 1 << 63, "offset"), ("offset", "1", "offset"), ("size", 1 << 32, "size"),
    ("size", [1], "size"), ("timestamp", 1 << 63, "timestamp"), ("timestamp", "today", "timestamp"),
    ("timestamp", "2023-11-14T22:13:20", "timestamp"), ("timestamp", 1.5, "timestamp"),
    ("keys", [], "keys"), ("keys", [""], "keys[0]"), ("keys", "a", "keys"),
    ("keys", [None], "keys[0]"), ("keys", ["a", 1], "keys[1]"), ("keys", ["x" * 4097], "keys[0]"),
    ("message_id", "", "message_id"), ("message_id", 1, "message_id"), ("key", "b", "key"),
    ("color", "red", "color"),
]  # fmt: skip


def test_entry_without_a_name_is_refused(shared_door):
    nameless = {**ENTRY, "keys": None}
    for entries, field in (((nameless,), "[0].keys"), ((ENTRY, nameless), "[1].keys")):
        assert_problem(put(shared_door, *entries), 400, "invalid-request", f"entries{field}")


@pytest.mark.parametrize(("name", "value", "field"), BAD_VALUES)
@pytest.mark.parametrize("before", [0, 17], ids=["alone", "behind_others"])
def test_bad_value_names_its_entry_and_nothing_is_put(shared_door, name, value, field, before):
    response = put(shared_door, *[ENTRY] * before, {**ENTRY, name: value})
    assert_problem(response, 400, "invalid-request", f"entries[{before}].{field}")
    assert shared_door.index.topics() == []


@pytest.mark.parametrize("name", ["topic", "queue_id", "offset", "size", "timestamp"])
def test_missing_value_is_named(shared_door, name):
    entry = {k: v for k, v in ENTRY.items() if k != name}
    assert_problem(put(shared_door, ENTRY, entry), 400, "invalid-request", f"entries[1].{name}")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", "body"), (b"{", "body"), (b"[]", "body"), (b"{}", "entries"),
        (b'{"entries": {}}', "entries"), (b'{"entries": [1]}', "entries[0]"),
        (b'{"entries": [], "mode": 1}', "mode"), (b'{"entries": [], "durability": "x"}', "durability"),
        (b'{"entries": [], "durability": null}', "durability"),
        (b'{"entries": "\xff"}', "body"), (b'{"entries": "\\ud800"}', "body"),
        (b"[" * 100_000, "body"), (b'{"entries": "\x00"}', "body"), (b"NaN", "body"),
    ],
)  # fmt: skip
def test_bad_json_is_refused(shared_door, body, field):
    response = shared_door.post(
        "/v1/entries", content=body, headers={"content-type": "application/json"}
    )
    assert_problem(response, 400, "invalid-request", field)


def test_body_of_another_kind_is_refused(shared_door):
    response = shared_door.post(
        "/v1/entries", content=b"a=b", headers={"content-type": "text/plain"}
    )
    assert_problem(response, 415, "unsupported-media-type")
    assert "application/json" in response.headers["accept"]
    compressed = {"content-type": "application/json", "content-encoding": "gzip"}
    response = shared_door.post("/v1/entries", content=b"x", headers=compressed)
    assert_problem(response, 415, "unsupported-media-type")


def test_body_above_the_limit_is_refused_chunked_or_not(make_caller):
    caller = make_caller(max_body_bytes=100)
    json = {"content-type": "application/json"}
    response = caller.post("/v1/entries", content=b" " * 101, headers=json)
    assert_problem(response, 413, "request-too-large", "body")

    async def chunks():
        for _ in range(101):
            yield b" "

    response = caller.post("/v1/entries", content=chunks(), headers=json)
    assert_problem(response, 413, "request-too-large", "body")


def test_bodies_share_a_budget_that_is_given_back(make_caller):
    caller = make_caller(max_bodies_bytes=100)
    for _ in range(3):
        response = caller.post("/v1/entries", content=b" " * 101, headers=ARROW)
        assert_problem(response, 503, "unavailable")
        assert caller.post("/v1/entries", content=b" " * 90, headers=ARROW).status_code == 400
    assert caller.app.state.body_budget.held_bytes == 0


def test_slow_body_is_ended(make_caller):
    import anyio

    caller = make_caller(body_timeout=0.01)

    async def chunks():
        yield b"{"
        await anyio.sleep(30)

    response = caller.post(
        "/v1/entries", content=chunks(), headers={"content-type": "application/json"}
    )
    assert_problem(response, 408, "request-timeout")


def test_batch_above_the_limit_is_refused(make_caller):
    caller = make_caller(limits=Settings(max_batch_entries=2))
    assert_problem(put(caller, *[ENTRY] * 3), 413, "request-too-large", "entries")
    body = arrow_stream(pa.concat_tables([arrow_entries()] * 2))
    response = caller.post("/v1/entries", content=body, headers=ARROW)
    assert_problem(response, 413, "request-too-large", "entries")


# -- lookups ---------------------------------------------------------------------------------------


def test_unknown_topic_is_an_empty_complete_answer(shared_door):
    answer = shared_door.get("/v1/entries?topic=none&key=none").json()
    assert (answer["entries"], answer["complete"], answer["missing"]) == ([], True, [])


def test_explain_is_there_when_asked_for(shared_door):
    assert "explain" not in shared_door.get("/v1/entries?topic=t&key=k").json()
    assert (
        shared_door.get("/v1/entries?topic=t&key=k&explain=true").json()["explain"]["files"] == []
    )


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("", "key"), ("topic=t", "key"), ("key=k", "topic"), ("topic=t&key=k&message_id=m", "key"),
        ("topic=t&key=", "key"), ("topic=&key=k", "topic"), ("topic=a%00&key=k", "topic"),
        ("topic=%ff&key=k", "topic"), ("topic=t&key=k&limit=1", "limit"),
        ("topic=t&topic=t&key=k", "topic"), ("topic=t&key=k&begin=2&end=1", "begin"),
        ("topic=t&key=k&begin=soon", "begin"), ("topic=t&key=k&begin=9223372036854775808", "begin"),
        ("topic=t&key=k&max_count=0", "max_count"), ("topic=t&key=k&max_count=10001", "max_count"),
        ("topic=t&key=k&max_count=1.5", "max_count"), ("topic=t&key=k&explain=yes", "explain"),
        ("topic=t&key=k&on_error=x", "on_error"), ("topic=t&key=k&cursor=x", "cursor"),
    ],
)  # fmt: skip
def test_bad_query_string_names_the_parameter(shared_door, query, field):
    assert_problem(shared_door.get(f"/v1/entries?{query}"), 400, "invalid-request", field)


def test_batch_answers_in_order(caller):
    put(caller, ENTRY, {**ENTRY, "keys": ["b"], "offset": 9})
    lookups = [
        {"topic": "orders", "key": "b"},
        {"topic": "orders", "key": "none"},
        {"topic": "orders", "key": "ORDER-1", "begin": "2023-11-14T22:13:20Z", "max_count": 1},
    ]
    answers = caller.post("/v1/entries:batchGet", json={"lookups": lookups}).json()["answers"]
    assert [[e["offset"] for e in a["entries"]] for a in answers] == [[9], [], [4096]]


def test_batch_in_arrow_is_answered_in_arrow(caller):
    put(caller, ENTRY)
    lookups = pa.table({"topic": ["orders", "orders"], "key": ["none", "ORDER-1"]})
    body = arrow_stream(lookups)
    response = caller.post("/v1/entries:batchGet", content=body, headers=ARROW)
    table = pa.ipc.open_stream(response.content).read_all()
    assert table.column("lookup").to_pylist() == [1]
    assert table.column("offset").to_pylist() == [4096]


@pytest.mark.parametrize(
    ("lookups", "field"),
    [
        ({}, "lookups"), ([1], "lookups[0]"), ([{"topic": "t"}], "lookups[0].key"),
        ([{"topic": "t", "key": "k"}, {"topic": "t", "key": ""}], "lookups[1].key"),
        ([{"topic": "t", "key": "k", "begin": "x"}], "lookups[0].begin"),
        ([{"topic": "t", "key": "k", "x": 1}], "lookups[0].x"),
        ([{"topic": "t", "key": "k", "max_count": True}], "lookups[0].max_count"),
    ],
)  # fmt: skip
def test_bad_lookup_is_named(shared_door, lookups, field):
    response = shared_door.post("/v1/entries:batchGet", json={"lookups": lookups})
    assert_problem(response, 400, "invalid-request", field)


def test_incomplete_answer_says_what_is_missing_or_fails(make_caller):
    caller = make_caller()
    caller.index.missing = [Missing("f-1", "checksum")]
    answer = caller.get("/v1/entries?topic=t&key=k").json()
    assert (answer["complete"], answer["missing"]) == (
        False,
        [{"file": "f-1", "reason": "checksum"}],
    )
    response = caller.get("/v1/entries?topic=t&key=k&on_error=fail")
    document = assert_problem(response, 503, "incomplete-answer")
    assert document["missing"] == [{"file": "f-1", "reason": "checksum"}]
    assert response.headers["retry-after"] == "1"


def test_topics_and_watermark(caller):
    put(caller, ENTRY)
    assert caller.get("/v1/topics").json() == {"topics": ["orders"], "restricted": False}
    mark = caller.get("/v1/watermark?topic=orders&queue_id=0").json()
    assert mark == {"topic": "orders", "queue_id": 0, "os": 4608, "disk": None, "remote": None}
    assert_problem(caller.get("/v1/watermark?topic=orders"), 400, "invalid-request", "queue_id")
    response = caller.get("/v1/watermark?topic=orders&queue_id=-1")
    assert_problem(response, 400, "invalid-request", "queue_id")


# -- operation -------------------------------------------------------------------------------------


def test_puts_end_as_the_setting_says_whatever_their_form(tmp_path):
    line = b'{"topic":"orders","key":"a","queue_id":2,"offset":0,"size":512,"timestamp":1}\n'
    with Index.open(
        tmp_path / "data", background=False, slot_count=64, item_capacity=64, offsets="sequence"
    ) as index:
        caller = Caller(index)
        table = arrow_stream(arrow_entries())  # queues 0 and 1, offsets 0 and 100
        assert caller.post("/v1/entries", content=table, headers=ARROW).status_code == 200
        assert caller.post("/v1/entries", content=line, headers=NDJSON).status_code == 200
        assert put(caller, {**ENTRY, "queue_id": 3}).status_code == 200
        for queue_id, end in enumerate((1, 101, 1, ENTRY["offset"] + 1)):
            asked = {"topic": "orders", "queue_id": queue_id}
            assert caller.get("/v1/watermark", params=asked).json()["os"] == end
        assert index.query("orders", key="ORDER-1").entries[0].size == ENTRY["size"]


def test_operator_sees_verifies_rolls_compacts_and_expires(caller):
    put(caller, ENTRY)
    (file,) = caller.get("/v1/admin/files").json()["files"]
    assert (file["state"], file["item_count"]) == ("unsealed", 1)
    path = f"/v1/admin/files/{file['file_id']}"
    told_of_one = {"published_at": None, "compacted_at": None, "compaction_s": None}
    assert caller.get(path).json() == {**file, **told_of_one}
    assert caller.post("/v1/admin/roll", headers=JSON).json() == {"rolled": True}
    assert caller.post("/v1/admin/roll", headers=JSON).json() == {"rolled": False}
    assert caller.get("/v1/admin/compaction").json()["backlog_files"] == 1
    assert caller.post("/v1/admin/compaction:run", content=b"{}", headers=JSON).json()["done"] > 0
    assert caller.get("/v1/admin/compaction").json()["backlog_files"] == 0
    assert caller.post(f"{path}:verify", headers=JSON).json() == {
        "file_id": file["file_id"], "sound": True, "problems": [],
    }  # fmt: skip
    assert caller.post("/v1/admin/refresh", headers=JSON).json() == {}
    far = {"before": "2999-01-01T00:00:00Z"}
    dry = caller.post("/v1/admin/expire", json={**far, "dry_run": True}).json()
    assert [f["file_id"] for f in dry["files"]] == [file["file_id"]]
    assert [f["state"] for f in caller.get("/v1/admin/files").json()["files"]] == ["uploaded"]
    caller.post("/v1/admin/expire", json=far)
    assert caller.get("/v1/admin/files").json()["files"] == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "before"), ({"before": None}, "before"), ({"before": 1.5}, "before"), ([], "body"),
        ({"before": 1, "dry_run": 1}, "dry_run"), ({"before": 1, "path": "/"}, "path"),
    ],
)  # fmt: skip
def test_bad_expiry_is_refused(shared_door, body, field):
    response = shared_door.post("/v1/admin/expire", json=body)
    assert_problem(response, 400, "invalid-request", field)


def test_unknown_file_is_not_found(shared_door):
    assert_problem(shared_door.get("/v1/admin/files/none"), 404, "not-found")
    assert_problem(shared_door.post("/v1/admin/files/none:verify", headers=JSON), 404, "not-found")
    assert_problem(shared_door.get("/v1/admin/files/..%2f..%2fetc"), 404, "not-found")


def test_body_where_none_belongs_is_refused(shared_door):
    assert_problem(
        shared_door.post("/v1/admin/roll", json={"a": 1}), 400, "invalid-request", "body"
    )


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("PUT", "/v1/entries", "GET, HEAD, POST"), ("DELETE", "/v1/topics", "GET, HEAD"),
        ("GET", "/v1/admin/roll", "POST"), ("GET", "/v1/admin/files/a:verify", "POST"),
        ("POST", "/healthz", "GET, HEAD"), ("POST", "/", "GET, HEAD"), ("HEAD", "/v1/admin/roll", "POST"),
    ],
)  # fmt: skip
def test_other_method_is_a_problem_that_names_the_right_ones(shared_door, method, path, allow):
    response = shared_door.request(method, path)
    assert response.headers["allow"] == allow
    if method == "HEAD":
        assert (response.status_code, response.content) == (405, b"")
    else:
        assert_problem(response, 405, "method-not-allowed")


def test_unknown_path_is_a_problem(shared_door):
    for path in ("/v1/nothing", "/favicon.ico", "/console/none.js", "/v1/entries/"):
        assert_problem(shared_door.get(path), 404, "not-found")


def test_health_version_metrics_docs_and_console(caller):
    put(caller, ENTRY)
    assert caller.get("/healthz").json() == {"status": "ok"}
    assert_problem(caller.get("/readyz"), 503, "unavailable")  # no lifespan ran: it is not started
    assert caller.get("/version").json()["name"] == "tierdex"
    metrics = caller.get("/metrics").text
    assert 'tierdex_entries_accepted_total{durability="os"} 1.0' in metrics
    assert 'tierdex_index_items{state="unsealed"} 1.0' in metrics
    assert 'route="/v1/entries",status="200"' in metrics
    assert "tierdex_compaction_backlog_files 0.0" in metrics
    page = caller.get("/docs").text
    assert "/v1/entries:batchGet" in page
    assert "https://" not in page
    assert "http://" not in page
    assert caller.get("/openapi.json").json()["info"]["title"] == "Tierdex HTTP API"
    assert caller.get("/").headers["content-type"].startswith("text/html")


# -- errors ----------------------------------------------------------------------------------------


def all_error_classes():
    return [getattr(errors, name) for name in errors.__all__]


@pytest.mark.parametrize("kind", all_error_classes(), ids=lambda kind: kind.__name__)
def test_every_error_class_has_a_row(kind):
    assert kind in KINDS
    row = KINDS[kind]
    if issubclass(kind, errors.InvalidRequestError | errors.PermissionDeniedError):
        assert 400 <= row.status < 500
    assert row.retry == (row.status in (429, 503, 507))


def test_names_of_problems_are_unique():
    names = [row.name for row in KINDS.values()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (errors.BacklogFullError("full", retry_after_s=7), 507, "backlog-full"),
        (errors.StoreTimeoutError("slow"), 503, "store-timeout"),
        (errors.FencedError("gone"), 503, "fenced"),
        (errors.ReadOnlyError("read-only"), 409, "read-only"),
        (errors.CorruptFileError("/secret/path", "bad page"), 500, "corrupt-file"),
        (ValueError("/secret/path"), 500, "internal"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_error_of_the_index_becomes_its_problem(make_caller, error, status, kind):
    caller = make_caller()
    caller.index.error = error
    response = put(caller, ENTRY)
    document = assert_problem(response, status, kind)
    assert "/secret/path" not in response.text
    if status == 507:
        assert (document["retry_after_s"], response.headers["retry-after"]) == (7, "7")
    if status == 500:
        logged = [line for line in caller.log_lines() if line["level"] == "error"]
        assert logged[0]["request_id"] == document["request_id"]
        assert "/secret/path" in logged[0]["exception"]


# -- keys, hosts, logs -----------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["", "x", "tdx_", "tdx_12345678_wrong", "ü", "Basic"])
def test_wrong_key_is_refused_even_where_anonymous_may_read(make_caller, keys, key):
    keys.create(Scope.READ)
    caller = make_caller(keys=keys, allow_anonymous="read")
    assert caller.get("/v1/topics").status_code == 200
    headers = {"authorization": f"Bearer {key}".encode()}
    assert_problem(caller.get("/v1/topics", headers=headers), 401, "authentication")


def test_allow_anonymous_gives_no_more_than_its_scope(make_caller):
    caller = make_caller(allow_anonymous="read")
    assert caller.get("/v1/topics", base_url="http://anywhere").status_code == 200
    assert_problem(put(caller, ENTRY), 403, "permission-denied")


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [
        ("localhost", True), ("localhost:8080", True), ("127.0.0.1:8080", True), ("[::1]:80", True),
        ("evil.example", False), ("127.0.0.1.evil.example", False), ("10.0.0.1", False),
        ("good.example", True),
    ],
)  # fmt: skip
def test_host_header_is_checked_while_there_are_no_keys(make_caller, host, is_ours):
    caller = make_caller(allowed_hosts=["good.example"])
    for path in ("/v1/topics", "/", "/healthz"):
        response = caller.get(path, headers={"host": host})
        if is_ours:
            assert response.status_code == 200
        else:
            assert_problem(response, 421, "misdirected-request")


def test_log_has_one_line_a_request_without_query_and_without_keys(make_caller, keys):
    key = keys.create(Scope.READ)
    caller = make_caller(keys=keys)
    response = caller.get("/v1/entries?topic=t&key=SECRET-KEY", key=key)
    (line,) = caller.log_lines()
    assert line["event"] == "request"
    assert (line["method"], line["route"], line["status"]) == ("GET", "/v1/entries", 200)
    assert line["request_id"] == response.headers["x-request-id"]
    assert line["key_id"] == key.split("_")[1]
    text = caller.log.getvalue().decode()
    assert "SECRET-KEY" not in text
    assert key not in text


def test_request_id_of_the_caller_is_kept_when_it_is_harmless(caller):
    assert caller.get("/healthz", headers={"x-request-id": "a-1"}).headers["x-request-id"] == "a-1"
    assert (
        caller.get("/healthz", headers={"x-request-id": "a\tb"}).headers["x-request-id"] != "a\tb"
    )


def test_too_many_requests_at_one_time_are_refused(make_caller):
    import anyio
    import httpx2

    caller = make_caller(max_requests=1, body_timeout=600)
    started, go_on = anyio.Event(), anyio.Event()

    async def slow():
        started.set()
        yield b"{"
        await go_on.wait()

    async def run():
        transport = httpx2.ASGITransport(app=caller.app)
        async with (
            httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client,
            anyio.create_task_group() as tasks,
        ):
            json = {"content-type": "application/json"}
            tasks.start_soon(lambda: client.post("/v1/entries", content=slow(), headers=json))
            await started.wait()
            response = await client.get("/healthz")
            go_on.set()
        return response

    assert_problem(anyio.run(run), 503, "unavailable")
