"""Messages that one kernel call finds and makes: those that are read one by one, or left to that."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.log_service.keyed_world import KeyedWorld
from tierdex.log_service.keys import key_lookups
from tierdex.log_service.levels import Level
from tierdex.testing.components import components_of

KEYS = ["a", "b", "é", "longer than others"]
IDS = ["id-1", "id-2"]
MESSAGE = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["t", "u"]),
        "queue_id": st.integers(0, 2),
        "body": st.sampled_from([b"", b"x", b"body" * 40]),
        "keys": st.lists(st.sampled_from(KEYS), max_size=3, unique=True),
        "message_id": st.none() | st.sampled_from(IDS),
        "headers": st.lists(
            st.tuples(st.sampled_from(["", "h", "ä"]), st.binary(max_size=3)), max_size=2
        ),
        "timestamp": st.integers(-5, 5),
        "durability": st.sampled_from(["received", "os", "disk"]),
    }
)
STEP = st.one_of(MESSAGE, st.sampled_from(["roll", "compact", "write", "forget"]))


@pytest.fixture
def log(world):
    with world.open() as log:
        yield log


def both(log, **asked):
    """Return an answer, having compared it with that of the general path, which a policy asks for."""
    found, general = log.get(**asked), log.get(**asked, policy="NOT_IN_DISK")
    assert found.explain.memory == general.explain.memory
    assert replace(found, explain=general.explain) == general  # pages may be in the arena by now
    return found


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEP, min_size=1, max_size=25), most=st.sampled_from([1, 2, 64]))
def test_every_answer_is_that_of_the_general_path(steps, most):
    kept = []
    with KeyedWorld().open() as log:
        for step in steps:
            if step == "roll":
                log.roll()
            elif step == "compact":
                log.run_compaction()
            elif step == "write":
                log.flush("os")
            elif step == "forget":
                log.forget("t", key="a")
                kept = [one for one in kept if not (one["topic"] == "t" and "a" in one["keys"])]
            else:
                log.append(**step)
                kept.append(step)
        log.flush("disk")
        log.catch_up()
        for name in KEYS:
            for topic in ("t", "u"):
                found = both(log, topic=topic, key=name, max_count=64)
                bodies = [m["body"] for m in kept if m["topic"] == topic and name in m["keys"]]
                shown = [m for m in found if not m.is_forgotten]
                assert sorted(m.body for m in shown) == sorted(bodies)
                both(log, topic=topic, key=name, max_count=most, visible="os")
                both(log, topic=topic, key=name, begin=-2, end=3)
        for name in IDS:
            both(log, message_id=name)
            both(log, message_id=name, topic=None, max_count=most, begin=0)


def test_a_message_is_made_whole_without_the_general_path(log, monkeypatch):
    for body in (b"first", b"second"):
        log.append(
            topic="t", queue_id=3, body=body, keys=["a", "é"], message_id="m", headers=[("h", b"\0v")],
            timestamp=-7,
        )  # fmt: skip
    log.append(topic="t", queue_id=1, body=b"")
    log.catch_up()
    expected = log.get("t", key="é", policy="NOT_IN_DISK")
    monkeypatch.setattr(key_lookups, "find_messages", None)
    assert log.get("t", key="é") == expected
    newest, oldest = log.get(message_id="m")
    assert (newest.body, oldest.body) == (b"second", b"first")
    assert newest.keys == ("a", "é")
    assert newest.headers == (("h", b"\0v"),)
    assert (newest.topic, newest.queue_id, newest.offset, newest.timestamp) == ("t", 3, 1, -7)
    assert newest.deliver_at is None
    assert newest.is_forgotten is False
    assert log.get("t", key="absent").messages == ()


def test_another_key_under_the_same_hash_is_no_message(log):
    log.append(topic="t", queue_id=0, body=b"1234", keys=["a"])
    log.catch_up()
    entries = log.index.query("t", key="a").entries
    tail = components_of(log).tail_reads
    found, content = tail.find(entries, "ab", None, Level.DISK)
    assert found == []
    assert content == len(b"1234") + 4 + len(b"a")  # the extra has an item's head and the key
    assert tail.find(entries, None, "a", Level.DISK)[0] == []  # a key is no message ID
    assert [m.body for m in tail.find(entries, "a", None, Level.DISK)[0]] == [b"1234"]


def test_what_lacks_the_level_is_left_to_the_general_path(log):
    log.append(topic="t", queue_id=0, body=b"written", keys=["a"], durability="os")
    log.catch_up()
    entries = log.index.query("t", key="a").entries
    tail = components_of(log).tail_reads
    assert tail.find(entries, "a", None, Level.OS) is not None
    assert tail.find(entries, "a", None, Level.DISK) is None
    assert both(log, topic="t", key="a", visible="os").messages[0].body == b"written"
    assert both(log, topic="t", key="a").messages == ()


def test_one_in_another_file_is_left_to_the_general_path(log):
    log.append(topic="t", queue_id=0, body=b"old", keys=["a"])
    log.roll()
    log.append(topic="t", queue_id=0, body=b"new", keys=["a"])
    log.catch_up()
    assert [m.body for m in both(log, topic="t", key="a")] == [b"new", b"old"]
    assert [m.body for m in both(log, topic="t", key="a", max_count=1)] == [b"new"]
