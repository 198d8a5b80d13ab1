"""A single append in one kernel call: what it takes is what the general path would have made of it."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tests.patience import PATIENCE_S
from tierdex.errors import InvalidRequestError, OffsetMismatchError, RequestTooLargeError
from tierdex.log_service import committer as committer_module
from tierdex.log_service.message_log import MessageLog

SETTINGS = {
    "journal_bytes": 1 << 20, "max_message_bytes": 64 << 10, "max_key_bytes": 300, "node": "n",
    "disk_reserve_bytes": 0,
}  # fmt: skip
NOW = 1_700_000_000_000


class Text(str):
    """A text of a caller's own type."""


PLAIN = [
    {},
    {"body": b""},
    {"body": b"x" * (64 << 10)},
    {"keys": ["a key"]},
    {"keys": []},
    {"message_id": "an id"},
    {"keys": ["schlüssel \U0001f511"], "message_id": "i" * 300},
    {"timestamp": NOW + (1 << 40)},
    {"timestamp": -(1 << 63), "keys": ["far"]},
    {"timestamp": (1 << 63) - 1},
    {"queue_id": 7, "expect_offset": 1},
    {"key": "one key"},
    {"keys": "one key"},
    {"keys": ("in a tuple",)},
    {"keys": ["one", "two"]},
    {"keys": tuple(f"{i} \u00e4" for i in range(20)), "message_id": Text("an id")},
    {"keys": [Text("one"), "one"], "topic": Text("t")},
    {"queue_id": np.int32(7)},
    {"queue_id": np.uint64(7), "timestamp": np.int64(NOW), "expect_offset": np.int16(1)},
]
OTHERS = [
    {"keys": {"in a set"}},
    {"headers": [("name", b"value")]},
    {"body": bytearray(b"no bytes")},
    {"queue_id": 8},
    {"topic": "new"},
]
BAD = [
    {"body": "text"},
    {"body": b"x" * ((64 << 10) + 1)},
    {"queue_id": -1},
    {"queue_id": 1 << 31},
    {"queue_id": True},
    {"keys": [""]},
    {"keys": ["k" * 301]},
    {"keys": ["\ud800"]},
    {"keys": ["one", ""]},
    {"keys": ("one", "two", "\ud800")},
    {"keys": [b"one"]},
    {"keys": ["one", None]},
    {"keys": 3},
    {"headers": 3},
    {"headers": [("name", 3)]},
    {"keys": [f"{i}" + "k" * 290 for i in range(130)]},
    {"key": ""},
    {"key": "one", "keys": ["two"]},
    {"message_id": ""},
    {"message_id": 3},
    {"timestamp": 1.5},
    {"timestamp": 1 << 63},
    {"topic": ""},
    {"topic": "\x00"},
    {"expect_offset": -1},
]


@pytest.fixture
def log(tmp_path):
    with MessageLog.open(tmp_path, **SETTINGS) as log:
        for queue_id in (0, 7):
            log.append(topic="t", queue_id=queue_id, body=b"first", timestamp=NOW)
        yield log


def append(log, **given) -> int:
    given = {"topic": "t", "queue_id": 0, "body": b"body", "timestamp": NOW + 5} | given
    return log.append(**given, durability="received")


def test_keys_that_vanish_while_a_call_looks_at_them_are_refused(log):
    keys = ["one", "two"]

    class Clears:
        def __index__(self):
            keys.clear()
            return NOW

    append(log, keys=keys, timestamp=Clears())
    assert last(log, {})[3] == ()


def last(log, given) -> tuple:
    """Return what the last message of a queue reads as."""
    topic, queue_id = given.get("topic", "t"), int(given.get("queue_id", 0))
    offset = log.end_offset(topic, queue_id, level="received") - 1
    (found,) = log.read(topic, queue_id, offset, visible="received").messages
    return found.offset, found.timestamp, found.body, found.keys, found.message_id, found.headers


@pytest.mark.parametrize("given", PLAIN + OTHERS, ids=str)
def test_either_way_a_message_reads_as_it_was_given(log, given, monkeypatch):
    writing = log._components.writing
    with monkeypatch.context() as patch:
        patch.setattr(writing.singles, "append", lambda *_: None)
        general = append(log, **given), *last(log, given)[1:]
        taken = []
        patch.undo()
        real = writing.appender.append
        patch.setattr(writing.appender, "append", lambda *a, **k: taken.append(a) or real(*a, **k))
        if "expect_offset" in given:
            given = given | {"expect_offset": 2}
        # What was new to the journal is known by now.
        single = append(log, **given), *last(log, given)[1:]
        assert bool(taken) == (
            given in OTHERS and given.get("queue_id") != 8 and "topic" not in given
        )
    assert single[0] == general[0] + 1
    assert single[1:] == general[1:]
    log.flush()
    (journal,) = [each.reader.journal for each in log._components.table.version.files.local()]
    assert journal.check() == []


@pytest.mark.parametrize("given", BAD, ids=str)
def test_what_is_wrong_is_named_and_nothing_appended(log, given):
    with pytest.raises((InvalidRequestError, RequestTooLargeError)):
        append(log, **given)
    assert [log.end_offset("t", queue, level="received") for queue in (0, 7)] == [1, 1]
    with pytest.raises(OffsetMismatchError) as told:
        append(log, expect_offset=5)
    assert told.value.next_offset == 1


def test_many_singles_fill_stages_journals_and_chunks(log):
    bodies = [b"%d" % i * (i % 300) for i in range(6000)]
    for i, body in enumerate(bodies):
        assert log.append(topic="t", queue_id=3, body=body, durability="received") == i
    assert len(log.files()) > 1, "journals rolled"
    assert [m.body for m in log.reader("t", 3, visible="received")] == bodies


def test_who_finds_the_lock_held_is_committed_by_the_thread(log, monkeypatch):
    """The one who holds it need not be at a commit, and then wakes nobody."""
    monkeypatch.setattr(committer_module, "_IDLE_S", 3600.0)
    log.append(topic="t", queue_id=0, body=b"from now on the thread sleeps long")
    commit_lock = log._components.writing.committer.commit_lock
    for i in range(20):
        with commit_lock:
            waiting = threading.Thread(
                target=log.append, kwargs={"topic": "t", "queue_id": 0, "body": b"%d" % i}
            )
            waiting.start()
            while log.end_offset("t", 0, level="received") < 3 + i:
                pass
        waiting.join(PATIENCE_S)
        assert not waiting.is_alive(), "nobody commits"
