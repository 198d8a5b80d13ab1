"""Rights by topic: every route of the application, by callers who have a right to some topics only.

The tables below are the promise. A route that is in none of them fails the test, so that none is added
without saying what it shows to whom.
"""

from __future__ import annotations

import io

import orjson
import pyarrow as pa
import pytest

from tests.app.conftest import Caller, open_small_files
from tests.app.small_index import FILE, SmallIndex
from tests.security.test_scopes import BODIES, MATRIX, routes_of
from tierdex.app.http.codecs.arrow_stream import ARROW_STREAM, write_stream
from tierdex.app.http.routes.entries import NDJSON
from tierdex.app.http.security import require
from tierdex.app.keys import KeyFile
from tierdex.app.rights import Grant, Scope
from tierdex.clock import ManualClock
from tierdex.filesystem import LocalFileSystem
from tierdex.ids import SeededIds
from tierdex.log_service.message_log import MessageLog

READ, WRITE, MESSAGE, ADMIN = Scope.READ, Scope.WRITE, Scope.MESSAGE, Scope.ADMIN
JSON = "application/json"
OWN, OTHER = "own.orders", "none"  # "none" is a topic as any other
SECRET = "K"  # the key that lies in both


def entry(topic, offset=7):
    return {
        "topic": topic,
        "key": SECRET,
        "queue_id": 0,
        "offset": offset,
        "size": 1,
        "timestamp": 1,
    }


def arrow(columns):
    return bytes(write_stream(pa.table(columns)))


def lines(rows):
    return b"\n".join(map(orjson.dumps, rows))


def entries_columns(topics, kind=None):
    topic = pa.array(topics) if kind is None else pa.array(topics).cast(kind)
    count = len(topics)
    return {
        "topic": topic, "key": pa.array([SECRET] * count), "queue_id": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(count), pa.int64()), "size": pa.array([1] * count, pa.uint32()),
        "timestamp": pa.array([1] * count, pa.int64()),
    }  # fmt: skip


def message(topic):
    return {"topic": topic, "queue_id": 0, "body": "x"}


DICTIONARY = pa.dictionary(pa.int32(), pa.string())
BODY_OF = {  # a body that names topics, in each form that the route takes: (content type, bytes)
    ("POST", "/v1/entries"): {
        "json": lambda *topics: (JSON, orjson.dumps({"entries": [entry(t) for t in topics]})),
        "lines": lambda *topics: (NDJSON, lines(entry(t) for t in topics)),
        "arrow": lambda *topics: (ARROW_STREAM, arrow(entries_columns(topics))),
        "arrow dictionary": lambda *topics: (ARROW_STREAM, arrow(entries_columns(topics, DICTIONARY))),
    },
    ("POST", "/v1/messages"): {
        "json": lambda *topics: (JSON, orjson.dumps({"messages": [message(t) for t in topics]})),
        "lines": lambda *topics: (NDJSON, lines(message(t) for t in topics)),
        "arrow": lambda *topics: (ARROW_STREAM, arrow({
            "topic": pa.array(topics), "queue_id": pa.array([0] * len(topics), pa.int32()),
            "body": pa.array([b"x"] * len(topics))})),
    },
    ("POST", "/v1/entries:batchGet"): {
        "json": lambda *topics: (JSON, orjson.dumps(
            {"lookups": [{"topic": t, "key": SECRET} for t in topics]})),
        "json with times": lambda *topics: (JSON, orjson.dumps(
            {"lookups": [{"topic": t, "key": SECRET, "begin": 0} for t in topics]})),
        "arrow": lambda *topics: (ARROW_STREAM, arrow(
            {"topic": pa.array(topics), "key": pa.array([SECRET] * len(topics))})),
        "arrow dictionary": lambda *topics: (ARROW_STREAM, arrow(
            {"topic": pa.array(topics).dictionary_encode(), "key": pa.array([SECRET] * len(topics))})),
    },
    ("POST", "/v1/admin/forget"): {
        "json": lambda *topics: (JSON, orjson.dumps(
            {"lookups": [{"topic": t, "key": SECRET} for t in topics], "dry_run": True})),
    },
}  # fmt: skip
QUERY_OF = {  # the query names a topic
    ("GET", "/v1/entries"): "key=K",
    ("GET", "/v1/histogram"): "key=K",
    ("GET", "/v1/watermark"): "queue_id=0",
    ("GET", "/v1/messages"): "queue_id=0",
    ("GET", "/v1/offsets"): "queue_id=0",
    ("GET", "/v1/queues"): "",
}
LISTS = {
    ("GET", "/v1/topics"),
    ("GET", "/v1/tables"),
    ("GET", "/v1/journeys"),
    ("GET", "/v1/queues"),
}
NO_TOPIC = {("GET", "/v1/access"), ("GET", "/metrics"), ("GET", "/openapi.json"), ("GET", "/docs")}
EVERY_TOPIC = {  # what a right to some topics never reaches
    ("POST", "/v1/entries:unpublished"), ("GET", "/v1/timers"),
    ("GET", "/v1/admin/files"), ("GET", "/v1/admin/nodes"),
    ("GET", "/v1/admin/files/{file_id:file_id}"), ("POST", "/v1/admin/files/{file_id:file_id}:verify"),
    ("GET", "/v1/admin/compaction"), ("POST", "/v1/admin/compaction:run"), ("POST", "/v1/admin/roll"),
    ("POST", "/v1/admin/refresh"), ("POST", "/v1/admin/expire"), ("GET", "/v1/admin/forget"),
    ("POST", "/v1/admin/forget:resume"),
}  # fmt: skip
GRANTS = {
    "read": [Grant(READ, "own.*")],
    "message": [Grant(MESSAGE, "own.*")],
    "write": [Grant(WRITE, "own.*")],
    "admin": [Grant(ADMIN, "own.*")],
    "nothing there": [Grant(ADMIN, "nowhere")],
    "reads all": [Grant(MESSAGE), Grant(WRITE, "own.*")],
}


def in_own(caller, needed):
    return any(grant.scope.covers(needed) and grant.names(OWN) for grant in GRANTS[caller])


def in_other(caller, needed):
    return any(grant.scope.covers(needed) and grant.names(OTHER) for grant in GRANTS[caller])


@pytest.fixture(scope="module")
def door(tmp_path_factory):
    """A service over a real index and a real log, both with the two topics; and the callers' keys."""
    folder = tmp_path_factory.mktemp("rights")
    keys = KeyFile(LocalFileSystem(), folder / "keys.json", clock=ManualClock(), ids=SeededIds(5))
    made = {name: keys.create(*grants) for name, grants in GRANTS.items()}
    made["all"] = keys.create(ADMIN)
    with (
        open_small_files(folder / "data") as index,
        MessageLog.open(folder / "log", node="n", journal_bytes=16 << 20) as log,
    ):
        for topic in (OWN, OTHER):
            index.put(
                topic=topic,
                keys=[SECRET],
                message_id="M",
                queue_id=0,
                offset=1,
                size=1,
                timestamp=1,
            )
            log.append(topic=topic, queue_id=0, body=b"body", keys=[SECRET], message_id="M")
        log.flush("disk")
        yield Caller(index, keys=keys, log=log), made


def ask(door, caller, route, query="", content_type=None, body=None):
    service, made = door
    method, path = route
    filled = path.replace("{file_id:file_id}", FILE["file_id"])
    headers = {} if content_type is None else {"content-type": content_type}
    target = f"{filled}?{query}" if query else filled
    return service.request(method, target, key=made[caller], headers=headers, content=body)


def test_every_route_says_how_it_meets_rights_by_topic(door):
    told = [*BODY_OF, *QUERY_OF, *LISTS - set(QUERY_OF), *NO_TOPIC, *EVERY_TOPIC]
    told += [route for route, needed in MATRIX.items() if needed is Scope.NONE]
    assert sorted(told) == sorted(routes_of(door[0].app))


@pytest.mark.parametrize("caller", GRANTS)
@pytest.mark.parametrize("route", QUERY_OF, ids=" ".join)
def test_topic_of_the_query_decides(door, route, caller):
    query, needed = QUERY_OF[route], MATRIX[route]
    for topic, may in ((OWN, in_own(caller, needed)), (OTHER, in_other(caller, needed))):
        response = ask(door, caller, route, f"topic={topic}&{query}".rstrip("&"))
        assert response.status_code == (200 if may else 403), (topic, response.text)
        assert may or b"entries" not in response.content
    encoded = ask(door, caller, route, f"topic=%6eone&{query}".rstrip("&"))
    assert encoded.status_code == (200 if in_other(caller, needed) else 403)


@pytest.mark.parametrize("caller", GRANTS)
@pytest.mark.parametrize(
    ("route", "form"), [(r, f) for r, forms in BODY_OF.items() for f in forms], ids=str
)
def test_topics_of_the_body_decide_and_a_mixed_one_does_nothing(door, route, form, caller):
    needed = MATRIX[route]
    make = BODY_OF[route][form]
    own, other = in_own(caller, needed), in_other(caller, needed)
    log = door[0].app.state.service.log
    before = (
        next(iter(door[0].index.files())).item_count,
        log.end_offset(OTHER, 0),
        log.end_offset(OWN, 0),
    )
    cases = {(OTHER,): other, (OWN, OTHER): own and other, (OTHER, OWN): own and other}
    for topics, may in cases.items():
        response = ask(door, caller, route, "", *make(*topics))
        assert response.status_code == (200 if may else 403), (topics, response.text)
    if not other:
        after = (
            next(iter(door[0].index.files())).item_count,
            log.end_offset(OTHER, 0),
            log.end_offset(OWN, 0),
        )
        assert after == before
    response = ask(door, caller, route, "", *make(OWN))
    assert response.status_code == (200 if own else 403), response.text


@pytest.mark.parametrize("caller", GRANTS)
def test_a_name_without_its_topic_needs_a_right_to_every_topic(door, caller):
    """An answer that left topics out would be a wrong "not found"."""
    status = 200 if caller == "reads all" else 403
    for path in ("/v1/entries", "/v1/messages"):
        for query in ("message_id=M", "topic=&message_id=M"):
            response = ask(door, caller, ("GET", path), query)
            assert response.status_code == status or (status == 200 and "topic=" in query), (
                response.text
            )
    route = ("POST", "/v1/entries:batchGet")
    for lookup in ({"message_id": "M"}, {"message_id": "M", "topic": None}):
        for lookups in ([lookup], [{"topic": OWN, "key": SECRET}, lookup]):
            response = ask(door, caller, route, "", JSON, orjson.dumps({"lookups": lookups}))
            assert response.status_code == status, response.text
    for columns in (
        {"message_id": pa.array(["M"])},
        {"topic": pa.array([None], pa.string()), "message_id": pa.array(["M"])},
        {"topic": pa.array([OWN, None]), "message_id": pa.array(["M", "M"])},
    ):
        response = ask(door, caller, route, "", ARROW_STREAM, arrow(columns))
        assert response.status_code in ((200, 400) if status == 200 else (403,)), response.text
    body = orjson.dumps({"lookups": [{"message_id": "M"}], "dry_run": True})
    assert ask(door, caller, ("POST", "/v1/admin/forget"), "", JSON, body).status_code == 403


@pytest.mark.parametrize("caller", GRANTS)
def test_lists_hold_what_the_caller_may_read_and_say_that_they_are_restricted(door, caller):
    readable = [t for t, may in ((OTHER, in_other), (OWN, in_own)) if may(caller, READ)]
    restricted = caller != "reads all"
    for path in ("/v1/topics", "/v1/queues"):
        document = ask(door, caller, ("GET", path)).json()
        assert (sorted(document["topics"]), document["restricted"]) == (readable, restricted)
    told = ask(door, caller, ("GET", "/v1/topics"), "details=true").json()
    assert {each["topic"] for each in told["details"]} == set(readable)
    journey = ask(door, caller, ("GET", "/v1/journeys"), "key=K").json()
    assert {each["topic"] for each in journey["entries"]} == set(readable)
    assert (journey["topics"], journey["restricted"]) == (len(readable), restricted)
    assert OTHER in readable or OTHER not in str(journey)


@pytest.mark.parametrize("caller", [name for name in GRANTS if name != "reads all"])
@pytest.mark.parametrize("route", sorted(EVERY_TOPIC), ids=" ".join)
def test_what_concerns_all_topics_is_out_of_reach_of_a_right_to_some(door, route, caller):
    body = BODIES.get(route)
    content_type = ARROW_STREAM if route[1].endswith(":unpublished") else JSON
    content = None if body is None else orjson.dumps(body)
    response = ask(door, caller, route, "", content_type if route[0] == "POST" else None, content)
    assert response.status_code == 403, response.text


def test_metrics_are_open_to_any_reader_and_name_no_topic(door):
    response = ask(door, "read", ("GET", "/metrics"))
    assert response.status_code == 200
    assert OWN not in response.text


def test_columns_of_other_types_are_refused_before_they_can_hide_a_topic(door):
    route = ("POST", "/v1/entries")
    for columns in (
        entries_columns([OTHER], pa.binary()),
        {**entries_columns([OTHER]), "topic": pa.array([5])},
        {**entries_columns([OTHER]), "topic": pa.array([None], pa.null())},
    ):
        response = ask(door, "write", route, "", ARROW_STREAM, arrow(columns))
        assert response.status_code in (400, 403), response.text
    sink = io.BytesIO()
    schema = pa.schema([("topic", pa.string()), ("topic", pa.string()), ("key", pa.string())])
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(
            pa.record_batch([pa.array([OWN]), pa.array([OTHER]), pa.array([SECRET])], schema=schema)
        )
    for path in ("/v1/entries:batchGet", "/v1/entries"):
        response = ask(door, "write", ("POST", path), "", ARROW_STREAM, sink.getvalue())
        assert response.status_code == 400, response.text


def test_refusal_says_what_is_missing(door):
    detail = ask(door, "read", ("GET", "/v1/entries"), f"topic={OTHER}&key=K").json()["detail"]
    assert "read:own.*" in detail
    assert f"read:{OTHER}" in detail
    detail = ask(door, "read", ("GET", "/v1/entries"), "message_id=M").json()["detail"]
    assert "name a `topic`" in detail


def test_a_topic_that_is_not_there_is_refused_like_one_that_is(door):
    """Else the difference would tell which topics there are."""
    for topic in (OTHER, "nothing"):
        response = ask(door, "read", ("GET", "/v1/entries"), f"topic={topic}&key=K")
        assert response.status_code == 403


def test_message_id_with_its_topic_shows_nothing_of_another(door):
    """The ID is in both topics; one index holds them under one hash."""
    batch, lookup = ("POST", "/v1/entries:batchGet"), {"topic": OWN, "message_id": "M"}
    table = {"topic": pa.array([OWN]), "message_id": pa.array(["M"])}
    answers = [
        ask(door, "read", ("GET", "/v1/entries"), f"topic={OWN}&message_id=M"),
        ask(door, "message", ("GET", "/v1/messages"), f"topic={OWN}&message_id=M"),
        ask(door, "read", batch, "", JSON, orjson.dumps({"lookups": [lookup]})),
        ask(door, "read", batch, "", ARROW_STREAM, arrow(table)),
    ]
    for response in answers:
        assert response.status_code == 200, response.text
        assert OWN.encode() in response.content
    found = [answers[0].json()["entries"], answers[2].json()["answers"][0]["entries"]]
    assert [[entry["topic"] for entry in entries] for entries in found] == [[OWN], [OWN]]
    assert {each["topic"] for each in answers[1].json()["messages"]} == {OWN}
    with pa.ipc.open_stream(answers[3].content) as reader:
        assert reader.read_all().column("topic").to_pylist() == [OWN]


def test_a_topic_that_a_route_does_not_read_opens_nothing(keys):
    """As a route that is added: `?topic=own` must not stand for a right to every topic."""
    caller = Caller(SmallIndex(), keys=keys)

    @caller.app.get("/added", dependencies=[require(ADMIN, any_query=True)])
    def added():
        return "all topics"

    key = keys.create(Grant(ADMIN, OWN))
    assert caller.get(f"/added?topic={OWN}", key=key).status_code == 403
    assert caller.get("/added", key=keys.create(ADMIN)).status_code == 200


@pytest.fixture
def keys(tmp_path):
    return KeyFile(LocalFileSystem(), tmp_path / "keys.json", clock=ManualClock(), ids=SeededIds(6))
