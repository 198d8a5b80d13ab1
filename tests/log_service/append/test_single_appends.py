"""A single append in one kernel call: what it stores is what a batch of one message stores."""

from __future__ import annotations

import re
import threading
from datetime import UTC, datetime

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from tests.patience import PATIENCE_S
from tierdex.errors import InvalidRequestError, OffsetMismatchError, RequestTooLargeError
from tierdex.log_service.append import committer as committer_module
from tierdex.log_service.message_log import MessageLog
from tierdex.logfile.journal.kernels.state import V_USED
from tierdex.testing.components import components_of

SETTINGS = {
    "journal_bytes": 1 << 20, "max_message_bytes": 64 << 10, "max_key_bytes": 300, "node": "n",
    "disk_reserve_bytes": 0,
}  # fmt: skip
NOW = 1_700_000_000_000


class Text(str):
    """A text of a caller's own type."""


class Bytes(bytes):
    """Bytes of a caller's own type."""


def named(given) -> str:
    """Return the id of a parameter, without addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(given))[:80]


def released() -> memoryview:
    view = memoryview(b"gone")
    view.release()
    return view


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
    {"keys": {"in a set"}},
    {"body": bytearray(b"bytes")},
    {"body": memoryview(b"bytes")[1:3]},
    {"body": memoryview(b"every second")[::2]},
    {"body": memoryview(b"4444" * 3).cast("i")},
    {"body": "text \u00e4\u6f22"},
    {"body": ""},
    {"body": Text("own")},
    {"body": Bytes(b"own")},
    {"headers": [("name", b"value"), ["", "text \u00e4"]], "key": "k", "message_id": "m"},
    {"headers": {"name": b"value", "n" * 255: "v" * 20_000}},
    {"headers": []},
    {"headers": {}},
    {"headers": ((Text("a"), Bytes(b"own")),)},
    {"timestamp": "2026-11-25T08:00:00Z"},
    {"timestamp": datetime(2026, 11, 25, tzinfo=UTC)},
    {"queue_id": 8},
    {"topic": "new", "key": "k"},
    {"topic": "n" * 255},
]
BAD = [
    {"body": "\ud800"},
    {"body": None},
    {"body": 3},
    {"body": [1, 2]},
    {"body": released()},
    {"body": b"x" * ((64 << 10) + 1)},
    {"body": bytearray((64 << 10) + 1)},
    {"body": "\u00e4" * ((32 << 10) + 1)},
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
    {"headers": "name"},
    {"headers": ["ab"]},
    {"headers": [("name", 3)]},
    {"headers": [("name", None)]},
    {"headers": [(b"name", b"value")]},
    {"headers": [("name", b"value", b"more")]},
    {"headers": {"name": "\ud800"}},
    {"headers": {"\ud800": b"value"}},
    {"headers": {"n" * 256: b""}},
    {"headers": {"name": b"v" * (64 << 10)}},
    {"headers": {"name": b"v" * (33 << 10)}},
    {"keys": [f"{i}" + "k" * 290 for i in range(130)]},
    {"key": ""},
    {"key": "one", "keys": ["two"]},
    {"message_id": ""},
    {"message_id": 3},
    {"timestamp": 1.5},
    {"timestamp": 1 << 63},
    {"topic": ""},
    {"topic": "\x00"},
    {"topic": "a\x1f"},
    {"topic": "a\x7f"},
    {"topic": "a\x80"},
    {"topic": "\u00e4\x9f"},
    {"topic": "n" * 256},
    {"topic": b"t"},
    {"expect_offset": -1},
]


@pytest.fixture
def log(tmp_path):
    with MessageLog.open(tmp_path, **SETTINGS) as log:
        for queue_id in (0, 7):
            log.append(topic="t", queue_id=queue_id, body=b"first", timestamp=NOW)
        yield log


@pytest.fixture
def alone(tmp_path):
    """No thread writes a stage while a test looks into it."""
    with MessageLog.open(tmp_path, background=False, **SETTINGS) as log:
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


def used(log) -> tuple[object, int]:
    """Return the open journal, and how far its stage is used."""
    journal = components_of(log).writing.appender._active.journal
    return journal, int(journal._stage[V_USED])


def rows_since(log, before) -> bytes:
    """Return the bytes of a row that was staged since."""
    journal, end = used(log)
    assert journal is before[0], "the test looks into one stage"
    return journal._memory[0][before[1] : end].tobytes()


def general(log, given) -> bytes:
    """Return the row that `append_batch` makes of the same message."""
    given = {"topic": "t", "queue_id": 0, "body": b"body", "timestamp": NOW + 5} | given
    given.pop("expect_offset", None)
    columns = {name: [given[name]] for name in given if name != "key"}
    if "key" in given:
        columns["keys"] = [given["key"]]
    elif "keys" in given:
        columns["keys"] = [given["keys"] if isinstance(given["keys"], str) else [*given["keys"]]]
    before = used(log)
    log.append_batch(**columns, durability="received")
    return rows_since(log, before)


@pytest.mark.parametrize("given", PLAIN, ids=named)
def test_a_message_is_stored_as_a_batch_of_it_is(alone, given):
    log = alone
    before = used(log)
    offset = append(log, **given)
    single = rows_since(log, before)
    assert last(log, given)[0] == offset
    assert single == general(log, given)
    assert last(log, given)[0] == offset + 1
    log.flush()
    (journal,) = [each.reader.journal for each in components_of(log).table.version.files.local()]
    assert journal.check() == []


texts = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=40)
values = st.binary(max_size=60) | st.text(st.characters(exclude_categories=("Cs",)), max_size=30)
bodies = values | st.binary(max_size=99).map(bytearray) | st.binary(max_size=99).map(memoryview)
pairs = st.lists(st.tuples(texts, values) | st.tuples(texts, values).map(list), max_size=4)
written = st.integers(NOW, 1 << 42).map(lambda ms: datetime.fromtimestamp(ms / 1000, UTC))
messages = st.fixed_dictionaries(
    {
        "topic": texts, "body": bodies,
        "queue_id": st.sampled_from([0, np.int64(1), np.uint8(2), 3, (1 << 31) - 1]),
    },
    optional={
        "keys": st.lists(texts, max_size=9) | st.lists(texts, max_size=3).map(tuple) | texts,
        "message_id": texts | texts.map(Text),
        "headers": pairs | pairs.map(tuple) | st.dictionaries(texts, values, max_size=4),
        "timestamp": st.integers(NOW, 1 << 62) | st.just(np.int64(NOW)) | written,
    },
)  # fmt: skip


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wide")
    with MessageLog.open(folder, background=False, **SETTINGS) as log:
        yield log


@hypothesis.given(messages)
def test_any_message_is_stored_as_a_batch_of_it_is(wide, message):
    appender = components_of(wide).writing.appender
    if appender.active_uuid is None or used(wide)[0].bytes_used > 500_000:
        appender.roll_active("full")
        wide.append(topic="t", queue_id=0, body=b"first", timestamp=NOW)
    wide.flush("os")
    before = used(wide)
    offset = append(wide, **message)
    assert rows_since(wide, before) == general(wide, message)
    end = wide.end_offset(message["topic"], int(message["queue_id"]), level="received")
    assert end == offset + 2


def test_queues_that_are_new_find_room_in_every_journal(log):
    """The tables grow, stages are written, journals roll; each queue goes on where it was."""
    for turn in range(3):
        for number in range(700):
            topic = f"topic {number % 50} " + "x" * (number % 90)
            offset = log.append(
                topic=topic, queue_id=number, body=b"%d" % turn, key="k", durability="received"
            )
            assert offset == turn
        components_of(log).writing.appender.roll_active("full")
    for number in range(700):
        topic = f"topic {number % 50} " + "x" * (number % 90)
        found = log.read(topic, number, 0, visible="received").messages
        assert [message.body for message in found] == [b"0", b"1", b"2"]


def test_a_body_that_is_lent_is_given_back(log):
    body = bytearray(b"lent")
    append(log, body=body)
    with pytest.raises(InvalidRequestError):
        append(log, body=body, queue_id=-1)
    body.extend(b" and grown")  # BufferError while a thread holds it
    assert last(log, {})[2] == b"lent"


@pytest.mark.parametrize("given", BAD, ids=named)
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
    """The one who holds it need not be at a commit, and then wakes no thread."""
    monkeypatch.setattr(committer_module, "_IDLE_S", 3600.0)
    log.append(topic="t", queue_id=0, body=b"from now on the thread sleeps long")
    commit_lock = components_of(log).writing.committer.commit_lock
    for i in range(20):
        with commit_lock:
            waiting = threading.Thread(
                target=log.append, kwargs={"topic": "t", "queue_id": 0, "body": b"%d" % i}
            )
            waiting.start()
            while log.end_offset("t", 0, level="received") < 3 + i:
                pass
        waiting.join(PATIENCE_S)
        assert not waiting.is_alive(), "no thread commits"
