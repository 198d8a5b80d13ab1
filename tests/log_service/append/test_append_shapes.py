"""Appends of every shape of argument, held to lists in Python; wrong ones are refused, nothing half done.

The stages and journals of the log are so small that they fill up all the time, and topics and queues are
often new: what the kernel refuses for want of room it takes once Python made some.
"""

from __future__ import annotations

from collections import defaultdict, deque
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from tierdex.clock import ManualClock
from tierdex.errors import InvalidRequestError, OffsetMismatchError, RequestTooLargeError
from tierdex.log_service.message_log import MessageLog

MOST_BYTES, MOST_BODY = 40, 2000
SIZES = {
    "journal_bytes": 1 << 20, "max_key_bytes": MOST_BYTES, "max_message_bytes": MOST_BODY,
    "disk_reserve_bytes": 0,
}  # fmt: skip
NOW = 1_700_000_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Text(str):
    """A text of a caller's own type."""


class Bytes(bytes):
    """Bytes of a caller's own type."""


class Seen:
    """What stands for an integer, as numpy's do."""

    def __init__(self, number):
        self._number = number

    def __index__(self):
        return self._number


def one_by_one(values):
    yield from values


def every_second(data):
    return memoryview(bytes(byte for each in data for byte in (each, 0)))[::2]


COLLECTIONS = [list, tuple, deque, one_by_one, dict.fromkeys, lambda names: np.array(names, object)]
TEXTS, INTEGERS = [str, Text], [int, np.int64, Seen]
BINARIES = [bytes, Bytes, bytearray, memoryview, every_second]


def of(kinds, values):
    """Return (a value as one of the kinds, the value)."""
    return st.builds(lambda kind, value: (kind(value), value), st.sampled_from(kinds), values)


plain_texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=10)
names = of(TEXTS, plain_texts.filter(len) | st.sampled_from(["a", "ä" * 20]))
contents = of(BINARIES, st.binary(max_size=60)) | of(TEXTS, plain_texts)


def stored(content):
    return content.encode() if isinstance(content, str) else bytes(content)


@st.composite
def headers(draw):
    """Return headers as a caller gives them, and the pairs that are stored."""
    pairs = draw(st.lists(st.tuples(of(TEXTS, plain_texts), contents), max_size=3))
    expected = [(name, stored(value)) for (_, name), (_, value) in pairs]
    listed = [
        (name, value if isinstance(value, bytes | str) else bytes(value))
        for (name, _), (value, _) in pairs
    ]
    form = draw(st.sampled_from([list, tuple, deque, one_by_one, dict, "lists"]))
    if form is dict:
        return dict(listed), list(dict(expected).items())
    return ([list(pair) for pair in listed] if form == "lists" else form(listed)), expected


@st.composite
def times(draw, moments):
    """Return a time as a caller writes it, and its milliseconds."""
    moment = draw(moments)
    form = draw(st.sampled_from(["int", "datetime", "text"]))
    if form == "int":
        return draw(of(INTEGERS, st.just(moment)))
    written = EPOCH + timedelta(milliseconds=moment)
    return (written if form == "datetime" else written.isoformat()), moment


ANY_TIME = times(st.integers(10**12, 4 * 10**12)) | of(
    INTEGERS, st.sampled_from([-(1 << 63), (1 << 63) - 1])
)


@st.composite
def appends(draw):
    """Return what a caller gives, and what is read: topic, queue and the message."""
    topic, queue_id = (
        draw(of(TEXTS, st.sampled_from([f"t{n}" for n in range(6)] + ["ü" * 127]))),
        draw(of(INTEGERS, st.integers(0, 40) | st.just((1 << 31) - 1))),
    )
    body = draw(contents | of(BINARIES, st.just(b"x" * MOST_BODY)))
    given = {"topic": topic[0], "queue_id": queue_id[0], "body": body[0]}
    keys = draw(st.lists(names, max_size=4))
    if len(keys) == 1 and draw(st.booleans()):
        given[draw(st.sampled_from(["key", "keys"]))] = keys[0][0]
    elif keys or draw(st.booleans()):
        given["keys"] = draw(st.sampled_from(COLLECTIONS))([key for key, _ in keys])
        if given["keys"].__class__ is dict:
            keys = list({key: (key, key) for _, key in keys}.values())
    message_id = draw(st.none() | names)
    if message_id is not None:
        given["message_id"] = message_id[0]
    pairs = draw(st.none() | headers())
    if pairs is not None:
        given["headers"] = pairs[0]
    timestamp = draw(st.none() | ANY_TIME)
    if timestamp is not None:
        given["timestamp"] = timestamp[0]
    given["durability"] = draw(st.sampled_from(["received"] * 4 + ["os", "os", "disk"]))
    message = (
        None if timestamp is None else timestamp[1], stored(body[1]), tuple(str(key) for _, key in keys),
        None if message_id is None else message_id[1], tuple(pairs[1]) if pairs else (),
    )  # fmt: skip
    return given, (topic[1], queue_id[1]), message


TEXT = "must be a string"
LENGTH = "must be 1 to 40 bytes of UTF-8, not "
WRONG = [
    ("topic", [None, b"t", 5], TEXT),
    ("topic", ["", "x" * 256], "must be 1 to 255 bytes of UTF-8, not "),
    ("topic", ["\x00timer", "a\x1f", "a\x7f", "a\x85"], "must not contain control characters"),
    ("topic", ["\ud800"], "lone surrogate"),
    ("queue_id", [None, 1.0, "1", True], "must be an integer"),
    ("queue_id", [-1, 1 << 31, Seen(1 << 70)], "must be between"),
    ("body", [None, 5, [1], {}, np.zeros(3)], "must be bytes or a string"),
    ("body", ["\ud800"], "lone surrogate"),
    ("body", [b"x" * 2001, "ä" * 1001, bytearray(2001)], "bytes, at most 2000"),
    ("key", [5, b"k"], TEXT),
    ("key", ["", "k" * 41, "ä" * 21], LENGTH),
    ("keys", [5, True], "must be a list of strings"),
    ("keys", [[5], ("a", None), [b"k"], b"k"], TEXT),
    ("keys", [["a", ""], ("k" * 41,)], LENGTH),
    ("message_id", [5, b"m"], TEXT),
    ("message_id", ["", "m" * 41], LENGTH),
    ("headers", [5, "name", ["ab"], [("a", b"", b"")], [("a",)]], "must be pairs of a name and"),
    ("headers", [[("a", 5)], {"a": None}, {b"a": b""}, [(None, "")]], "must be a name, and bytes"),
    ("headers", [{"a": "\ud800"}], "lone surrogate"),
    ("headers", [{"a": b"x" * 2001}], "bytes, at most 2000"),
    ("timestamp", [1.5, True, b"2020"], "must be"),
    ("timestamp", [1_700_000_000], "seconds"),
    ("timestamp", ["yesterday-ish"], ""),
    ("timestamp", [1 << 63], "must be between"),
    ("deliver_at", [1.5, True, [5], b"2020"], "must be"),
    ("deliver_at", [1_700_000_000], "seconds"),
    ("deliver_at", [1 << 62, (1 << 63) - 1], "must be between"),
    ("expect_offset", [-1, 1 << 63], "must be between"),
    ("expect_offset", [1.0, "1", True], "must be an integer"),
    ("durability", ["osmotic", None, 1, "remote"], ""),
]  # fmt: skip
wrong = st.sampled_from([
    (field, value, reason) for field, values, reason in WRONG for value in values
])  # fmt: skip


class Model:
    """A log, and the messages of each of its queues."""

    def __init__(self, log, clock):
        self.log = log
        self.clock = clock
        self.queues = defaultdict(list)

    def append(self, given, queue, message, **more):
        offset = self.log.append(**given, **more)
        assert offset == len(self.queues[queue])
        time, *rest = message
        self.queues[queue].append((self.clock.now_ms() if time is None else time, *rest))

    def read(self, queue):
        """Return the last messages of a queue, as many as a test has to look at."""
        first = max(0, len(self.queues[queue]) - 3)
        answer = self.log.read(*queue, first, visible="received")
        return [
            (
                each.timestamp,
                bytes(each.body),
                tuple(each.keys),
                each.message_id,
                tuple(each.headers),
            )
            for each in answer.messages
        ]

    def check(self, queue):
        expected = self.queues[queue][-3:]
        assert self.read(queue) == expected
        end = self.log.end_offset(*queue, level="received") if expected else 0
        assert end == len(self.queues[queue])


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    clock = ManualClock(NOW)
    folder = tmp_path_factory.mktemp("data")
    with MessageLog.open(folder, clock=clock, index=False, background=False, **SIZES) as log:
        yield Model(log, clock)


@settings(max_examples=150, deadline=None)
@drawn(append=appends(), expects=st.booleans())
def test_whatever_the_shape_the_message_is_read(model, append, expects):
    _, queue, _ = append
    more = {"expect_offset": len(model.queues[queue])} if expects else {}
    model.append(*append, **more)
    model.check(queue)


@settings(max_examples=150, deadline=None)
@drawn(append=appends(), wrong=wrong, after=appends())
def test_a_wrong_argument_is_named_and_nothing_is_done(model, append, wrong, after):
    given, queue, _ = append
    field, value, reason = wrong
    if field in ("key", "keys"):
        given.pop("key", None), given.pop("keys", None)
    with pytest.raises((InvalidRequestError, RequestTooLargeError)) as refused:
        model.log.append(**given | {field: value})
    assert (refused.value.field, reason in str(refused.value)) == (field, True), str(refused.value)
    model.check(queue)
    model.append(*after)
    model.check(after[1])


@settings(max_examples=100, deadline=None)
@drawn(append=appends(), wrong=st.integers(-3, 3).filter(bool), after=appends())
def test_another_offset_than_the_next_is_refused_with_the_right_one(model, append, wrong, after):
    given, queue, _ = append
    following = len(model.queues[queue])
    if following + wrong >= 0:
        with pytest.raises(OffsetMismatchError) as refused:
            model.log.append(**given, expect_offset=following + wrong)
        assert refused.value.next_offset == following
    model.check(queue)
    model.append(*after, expect_offset=len(model.queues[after[1]]))
    model.check(after[1])


DUE = times(st.integers(NOW - 10**9, NOW + 10**9))


@settings(max_examples=100, deadline=None)
@drawn(append=appends(), due=DUE)
def test_a_message_with_a_time_of_delivery_goes_to_its_queue_then(model, append, due):
    given, queue, (timestamp, *rest) = append
    due, moment = due
    time = max(moment, model.clock.now_ms()) if timestamp is None else timestamp
    offset = model.log.append(**given, deliver_at=due)
    if moment <= model.clock.now_ms():
        assert offset == len(model.queues[queue])
    else:
        assert offset == -1
        model.check(queue)
        model.clock.step(moment - model.clock.now_ms())
        assert model.log.deliver_due() == 1
    model.queues[queue].append((time, *rest))
    model.check(queue)
