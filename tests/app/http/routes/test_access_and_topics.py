"""What a caller may do here, and which topics there are with their counts and times."""

from __future__ import annotations

from tests.app.conftest import ENTRY, Caller, assert_problem
from tests.app.http.test_service import put
from tierdex.app.rights import Scope, parse_grant
from tierdex.log_service.message_log import MessageLog

NOTHING_HERE = {"log": False, "messages": False}


def test_caller_is_told_what_it_may_do(make_caller, keys):
    key = keys.create(parse_grant("read:orders.*"), Scope.WRITE)
    caller = make_caller(keys=keys)
    told = {"kind": "key", "name": key.split("_")[1], "rights": ["read:orders.*", "write"]}
    assert caller.get("/v1/access", key=key).json() == {**told, "admin": False, **NOTHING_HERE}
    assert_problem(caller.get("/v1/access"), 401, "authentication")
    told = {"kind": "anonymous", "name": "", "rights": ["admin"], "admin": True}
    assert make_caller().get("/v1/access").json() == {**told, **NOTHING_HERE}


def test_topics_are_told_with_counts_and_times(caller):
    put(caller, ENTRY)
    time = ENTRY["timestamp"]
    told = {"item_count": 1, "uncounted": 0, "min_time": time, "max_time": time, "files": 1}
    answer = caller.get("/v1/topics?details=true").json()
    assert answer["topics"] == ["orders"]
    assert answer["details"] == [{"topic": "orders", **told}]


def test_topics_of_a_log_are_told_also_where_no_message_has_a_key(tmp_path):
    with MessageLog.open(tmp_path, node="n", journal_bytes=16 << 20, background=False) as log:
        log.append(topic="keyless", queue_id=0, body=b"a")
        log.append(topic="keyed", queue_id=0, body=b"b", keys=["k"], timestamp=5)
        caller = Caller(None, log=log)
        answer = caller.get("/v1/topics?details=true").json()
        counts = [(each["topic"], each["item_count"]) for each in answer["details"]]
        assert (answer["topics"], counts) == (["keyed"], [("keyed", 1), ("keyless", 0)])
        assert caller.get("/v1/admin/compaction").json()["log"]["running"] is None
        assert caller.get("/v1/access").json()["log"] is True
