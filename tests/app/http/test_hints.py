"""Hints over HTTP: an unknown topic is always said, the rest where asked for, within the caller's rights."""

from __future__ import annotations

from tests.app.conftest import ENTRY, Caller
from tierdex.app.keys import KeyFile
from tierdex.app.rights import Grant, Scope
from tierdex.clock import SystemClock
from tierdex.filesystem import LocalFileSystem
from tierdex.ids import SystemIds

PATH = "/v1/entries"


def kinds(response):
    return [hint["kind"] for hint in response.json().get("hints") or []]


def put(caller, topic, key):
    entry = {**ENTRY, "topic": topic, "keys": [key]}
    assert caller.post(PATH, json={"entries": [entry]}).status_code == 200


def test_unknown_topic_is_said_unasked_and_no_longer_once_it_is_known(caller):
    put(caller, "orders", "A")
    answer = caller.get(PATH, params={"topic": "ordrs", "key": "A"})
    assert kinds(answer) == ["no_topic", "near_topic"]
    assert answer.json()["complete"]
    assert kinds(caller.get(PATH, params={"topic": "orders", "key": "B"})) == []
    put(caller, "ordrs", "B")
    assert kinds(caller.get(PATH, params={"topic": "ordrs", "key": "A"})) == []


def test_other_hints_come_where_they_are_asked_for(caller):
    put(caller, "orders", "A-1")
    put(caller, "payments", "a-1")
    asked = {"topic": "payments", "key": "A-1", "hints": "true"}
    assert sorted(kinds(caller.get(PATH, params=asked))) == ["other_spelling", "other_topic"]
    assert kinds(caller.get(PATH, params={**asked, "hints": "false"})) == []


def test_hint_names_no_topic_that_the_caller_may_not_read(index, tmp_path):
    keys = KeyFile(LocalFileSystem(), tmp_path / "keys.json", clock=SystemClock(), ids=SystemIds())
    caller = Caller(index, keys)
    admin = keys.create(Scope.ADMIN)
    some = keys.create(Grant(Scope.READ, "orders"), Grant(Scope.READ, "ordrs"))
    for topic, key in (("orders.secret", "A"), ("orders", "B")):
        entry = {**ENTRY, "topic": topic, "keys": [key], "message_id": f"m-{key}"}
        assert caller.post(PATH, json={"entries": [entry]}, key=admin).status_code == 200
    for name in ("A", "m-A"):
        for topic in ("orders", "ordrs"):
            found = caller.get(
                PATH, params={"topic": topic, "key": name, "hints": "true"}, key=some
            )
            assert found.status_code == 200
            assert "secret" not in found.text
            assert not {"as_message_id", "other_topic"} & set(kinds(found))
