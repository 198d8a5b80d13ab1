"""Puts of every shape of argument, held to a list in Python; wrong ones are refused by name, nothing done.

The index is so small that its buffer fills up and its files roll all the time: what the kernel refuses for
want of room it takes once Python made some.
"""

from __future__ import annotations

from collections import defaultdict, deque
from datetime import UTC, datetime, timedelta
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tierdex import Index
from tierdex.errors import InvalidRequestError

MOST_BYTES = 40
SIZES = {
    "item_capacity": 40, "slot_count": 16, "put_buffer_entries": 8, "max_key_bytes": MOST_BYTES,
    "disk_reserve_bytes": 0,
}  # fmt: skip
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Text(str):
    """A text of a caller's own type."""


class Names(list):
    """A list of a caller's own type."""


class Seen:
    """What stands for an integer, as numpy's do."""

    def __init__(self, number):
        self._number = number

    def __index__(self):
        return self._number


def one_by_one(names):
    yield from names


COLLECTIONS = [
    list, tuple, Names, deque, one_by_one, dict.fromkeys, lambda names: dict.fromkeys(names).keys(),
    lambda names: np.array(names, object),
]  # fmt: skip
names = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=10)
few_names = names | st.sampled_from(["a", "b", "ä" * 20])
texts = st.builds(lambda kind, name: kind(name), st.sampled_from([str, Text]), few_names)
INTEGERS = [int, np.int64, Seen]


def numbers(low, high):
    """Return integers of the range, as every type that holds them."""
    return st.builds(
        lambda kind, number: kind(number), st.sampled_from(INTEGERS), st.integers(low, high)
    )


@st.composite
def times(draw):
    """Return a time as a caller writes it, and its milliseconds."""
    moment = draw(st.integers(1, 4_000_000_000_000))
    written = EPOCH + timedelta(milliseconds=moment)
    form = draw(st.sampled_from(["int", "datetime", "text"]))
    if form == "int":
        moment = draw(st.sampled_from([moment + 10**12, -(1 << 63), -1, 0, (1 << 63) - 1]))
        return draw(st.sampled_from(INTEGERS))(moment), moment
    return (written if form == "datetime" else written.isoformat()), moment


@st.composite
def puts(draw):
    """Return what a caller gives, and what a lookup shall find: names, and the time."""
    keys = draw(st.lists(texts, max_size=4) | st.lists(texts, min_size=9, max_size=12))
    message_id = draw(st.none() | texts) if keys else draw(texts)
    timestamp, moment = draw(times())
    given = {
        "topic": draw(st.builds(Text, st.just("own")) | st.sampled_from([f"t{n}" for n in range(9)])),
        "queue_id": draw(numbers(0, (1 << 31) - 1)), "size": draw(numbers(0, (1 << 32) - 1)),
        "timestamp": timestamp, "durability": draw(st.sampled_from(["received", "os", "disk"])),
    }  # fmt: skip
    if message_id is not None:
        given["message_id"] = message_id
    if len(keys) == 1 and draw(st.booleans()):
        given[draw(st.sampled_from(["key", "keys"]))] = keys[0]
    elif keys or draw(st.booleans()):
        given["keys"] = draw(st.sampled_from(COLLECTIONS))(keys)
    return given, {str(key) for key in keys}, message_id, moment


WRONG = [
    ("topic", [None, b"t", 5, ["t"]], "must be a string"),
    ("topic", ["", "x" * 256], "must be 1 to 255 bytes of UTF-8, not "),
    ("topic", ["a\x00", "a\x7f", "a\x85"], "must not contain control characters"),
    ("key", [5, b"k", ["k"]], "must be a string"),
    ("key", ["", "k" * 41, "ä" * 21], "must be 1 to 40 bytes of UTF-8, not "),
    ("key", ["\ud800", "a\udfff"], "lone surrogate"),
    ("topic", ["\ud800"], "lone surrogate"),
    ("message_id", ["\udc80"], "lone surrogate"),
    ("keys", [5, 1.5, True], "must be a list of strings"),
    ("keys[0]", [[5], (None,), [b"k"], {7: 1}, b"k"], "must be a string"),
    ("keys[1]", [["a", ""], ("a", "k" * 41), one_by_one], "must be 1 to 40 bytes of UTF-8, not "),
    ("message_id", [5, b"m", ["m"]], "must be a string"),
    ("message_id", ["", "m" * 41], "must be 1 to 40 bytes of UTF-8, not "),
    ("queue_id", [None, 1.0, "1", True, np.float64(1)], "must be an integer"),
    ("queue_id", [-1, 1 << 31, np.int64(-1)], "must be between"),
    ("offset", [None, 1.5, "1", False], "must be an integer"),
    ("offset", [-1, 1 << 63, np.uint64(1 << 63)], "must be between"),
    ("size", [None, 2.0, "1", True], "must be an integer"),
    ("size", [-1, 1 << 32, Seen(-1)], "must be between"),
    ("timestamp", [None, 1.5, True, b"2020"], "must be"),
    ("timestamp", [1_700_000_000, Seen(1_700_000_000)], "seconds"),
    ("timestamp", ["yesterday-ish", "2020-13-01T00:00:00Z"], ""),
    ("timestamp", [1 << 63, -(1 << 63) - 1], "must be between"),
    ("durability", ["osmotic", None, 1], "must be"),
]  # fmt: skip
wrong = st.sampled_from([
    (field, value, reason) for field, values, reason in WRONG for value in values
])  # fmt: skip


class Model:
    """An index, and what was put into it."""

    def __init__(self, index):
        self.index = index
        self.offsets = count()
        self.found = defaultdict(
            list
        )  # (topic, key), or (None, message ID) -> (offset, time), oldest first

    def put(self, given, keys, message_id, moment):
        offset = next(self.offsets)
        reached = self.index.put(**given, offset=offset)
        assert reached == given["durability"]
        for name in [(str(given["topic"]), key) for key in keys] + [(None, message_id)]:
            self.found[name].append((offset, moment))

    def asked(self, topic, name):
        at = {"message_id": name} if topic is None else {"topic": topic, "key": name}
        answer = self.index.query(**at, max_count=10_000)
        return [(entry.offset, entry.timestamp) for entry in answer.entries]

    def check(self, topic, names, message_id):
        for name in [(topic, key) for key in names] + ([(None, message_id)] if message_id else []):
            assert self.asked(*name) == self.found[name][::-1], name


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    with Index.open(tmp_path_factory.mktemp("data"), background=False, **SIZES) as index:
        yield Model(index)


@settings(max_examples=100, deadline=None)
@given(put=puts())
def test_whatever_the_shape_its_names_find_the_message(model, put):
    given, keys, message_id, _ = put
    model.put(*put)
    model.check(str(given["topic"]), keys, message_id)


@settings(max_examples=100, deadline=None)
@given(put=puts(), wrong=wrong, after=puts())
def test_a_wrong_argument_is_named_and_nothing_is_done(model, put, wrong, after):
    given, keys, message_id, _ = put
    field, value, reason = wrong
    name = field.partition("[")[0]
    if name == "keys" and value is one_by_one:
        value = one_by_one(["a", "k" * 41])
    if name in ("key", "keys"):
        given.pop("key", None), given.pop("keys", None)
    given.update({"offset": next(model.offsets), name: value})
    with pytest.raises(InvalidRequestError) as refused:
        model.index.put(**given)
    assert (refused.value.field, reason in str(refused.value)) == (field, True), str(refused.value)
    if name != "topic":
        model.check(str(given["topic"]), keys | {"a"}, None if name == "message_id" else message_id)
    model.put(*after)
    model.check(str(after[0]["topic"]), after[1], after[2])


def test_a_name_is_missing_or_there_twice(model):
    place = {"topic": "t", "queue_id": 0, "offset": 1, "size": 1, "timestamp": 10**12}
    for nothing in ({}, {"keys": []}, {"keys": None}, {"keys": iter(())}):
        with pytest.raises(InvalidRequestError, match="at least one key or a message ID"):
            model.index.put(**place, **nothing)
    with pytest.raises(InvalidRequestError, match="either `key` or `keys`"):
        model.index.put(**place, key="a", keys=["a"])
    with pytest.raises(InvalidRequestError, match="at most 40 keys and message ID together"):
        model.index.put(**place, keys=[f"{n}" for n in range(41)])
