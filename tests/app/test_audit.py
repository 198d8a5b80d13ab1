"""Audit lines: who asked for what in which topics, and never a key in the clear."""

from __future__ import annotations

import orjson
import pyarrow as pa
import pytest

from tests.app.conftest import ENTRY, Caller
from tests.app.small_index import SmallIndex
from tierdex.app.audit import AuditTrail, digest_of
from tierdex.app.http.codecs.arrow_stream import ARROW_STREAM, write_stream
from tierdex.app.rights import Grant, Scope

SECRET = "0123456789abcdef0123456789abcdef"
JSON = {"content-type": "application/json"}


def audited(keys, **settings):
    return Caller(SmallIndex(), keys=keys, audit_secret=SECRET, **settings)


def lines_of(caller):
    return [line for line in caller.log_lines() if line["event"] == "audit"]


def test_lookup_is_told_with_who_where_and_a_digest_of_what(keys):
    key = keys.create(Grant(Scope.READ, "orders"))
    caller = audited(keys)
    asked = caller.get("/v1/entries?topic=orders&key=ORDER-8841", key=key)
    denied = caller.get("/v1/entries?topic=pay&message_id=MSG-1", key=key)
    assert (asked.status_code, denied.status_code) == (200, 403)
    first, second = lines_of(caller)
    assert first.pop("time")
    assert first == {
        "event": "audit", "level": "info", "caller": f"key:{key.split('_')[1]}", "route": "GET /v1/entries",
        "topics": ["orders"], "keys": [digest_of(SECRET, "ORDER-8841")], "status": 200,
        "request_id": asked.headers["x-request-id"],
    }  # fmt: skip
    assert (second["topics"], second["status"]) == (["pay"], 403)
    assert second["message_ids"] == [digest_of(SECRET, "MSG-1")]
    for text in (b"ORDER-8841", b"MSG-1", SECRET.encode(), key.encode()):
        assert text not in caller.log.getvalue()


def test_every_name_of_a_batch_is_told_in_lines_of_one_request(keys, monkeypatch):
    monkeypatch.setattr("tierdex.app.audit._NAMES_A_LINE", 3)
    caller, key = audited(keys), keys.create(Scope.READ)
    names = [f"k{number}" for number in range(7)]
    table = pa.table({"topic": ["a"] * 3 + ["b"] * 4, "key": names})
    body = orjson.dumps({"lookups": [{"topic": "a", "key": name} for name in names]})
    path = "/v1/entries:batchGet"
    headers = {"content-type": ARROW_STREAM}
    caller.post(path, key=key, content=bytes(write_stream(table)), headers=headers)
    caller.post(path, key=key, content=body, headers=JSON)
    lines = lines_of(caller)
    by_request = {}
    for line in lines:
        by_request.setdefault(line["request_id"], []).append(line)
    assert [len(each) for each in by_request.values()] == [3, 3]
    for each, topics in zip(by_request.values(), (["a", "b"], ["a"]), strict=True):
        assert [d for line in each for d in line["keys"]] == [digest_of(SECRET, n) for n in names]
        assert all(line["topics"] == topics for line in each)


def test_puts_and_journeys_tell_their_topics_and_scrapes_leave_no_line(keys):
    admin, some = keys.create(Scope.ADMIN), keys.create(Grant(Scope.READ, "o*"))
    caller = audited(keys)
    caller.post("/v1/entries", key=admin, json={"entries": [ENTRY, {**ENTRY, "topic": "pay"}]})
    caller.get("/v1/journeys?key=ORDER-1", key=some)
    caller.get("/v1/journeys?key=ORDER-1", key=admin)
    caller.get("/v1/admin/files", key=admin)
    for path in ("/metrics", "/healthz", "/v1/topics"):
        caller.get(path, key=admin)
    put, journey, whole, files = lines_of(caller)
    assert (put["topics"], "keys" in put) == (["orders", "pay"], False)
    assert (journey["topics"], journey["keys"]) == (["orders"], [digest_of(SECRET, "ORDER-1")])
    assert (whole["every_topic"], files["every_topic"]) == (True, True)


def test_no_answer_leaves_without_its_line(keys):
    caller, key = audited(keys), keys.create(Scope.ADMIN)
    caller.post("/v1/entries", key=key, json={"entries": [ENTRY]})
    caller.app.state.service.audit = FailingTrail()
    response = caller.get("/v1/entries?topic=orders&key=ORDER-1", key=key)
    assert response.status_code == 500
    assert b"4096" not in response.content


class FailingTrail(AuditTrail):
    def __init__(self):
        pass

    def write(self, *_, **__):
        raise OSError(28, "No space left on device")


def test_secret_is_long_and_is_shown_nowhere(keys):
    with pytest.raises(ValueError, match="32"):
        Caller(SmallIndex(), keys=keys, audit_secret="short")
    caller = audited(keys)
    assert SECRET not in repr(caller.app.state.service.settings)
    assert digest_of(SECRET, "k") != digest_of(SECRET[::-1], "k")
