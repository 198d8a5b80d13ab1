"""Byte layout and hash of RocketMQ's tiered-store index files: the only place with their offsets.

All integers are big-endian. A file lives in one of two forms::

    local      | header 28 | slot 0 .. S-1, 8 bytes each | item 0 .. M-1, 32 bytes each |
    compacted  | header 28 | slot 0 .. S-1, 8 bytes each | run of slot 0 | run of slot 1 | ...

* local     -- slot = (number of its newest item, unused); items link backwards; item 0 is never used
* compacted -- slot = (byte position, byte length) of its run; an item is the first 28 bytes of a
               local one, newest first in a run; an empty slot names the position where its run
               would be, with length 0

The files hold no key and no topic name: only a 32-bit hash of `topic + "#" + key` and a topic
number. Nothing in them is checksummed. S and M are not stored (`rocketmq_shape` finds them).
`time_diff` counts whole seconds from the header's begin, cut toward zero, and may be negative, so
an entry's time is known to the second only.

Depends on numpy only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

HASH_FUNCTION: Final = "java-string-32"
MAGIC_BEING_WRITTEN: Final = -1127939447  # 0xBCC50289
MAGIC_ENDED: Final = -1127939451  # 0xBCC50285
DEFAULT_SLOT_CAPACITY: Final = 5_000_000
DEFAULT_ITEM_CAPACITY: Final = 20_000_000
NO_ITEM: Final = 0
SMALLEST_INT: Final = -(1 << 31)  # the one hash that negation leaves negative

HEADER: Final = np.dtype(
    [
        ("magic", ">i4"),
        ("begin_ms", ">i8"),
        ("end_ms", ">i8"),
        ("used_slots", ">i4"),  # slots that hold anything, not the capacity
        ("item_count", ">i4"),
    ]
)
LOCAL_SLOT: Final = np.dtype([("newest", ">i4"), ("unused", ">i4")])
RUN_SLOT: Final = np.dtype([("position", ">i4"), ("length", ">i4")])
_ITEM_FIELDS: Final = [
    ("hash", ">i4"),
    ("topic_id", ">i4"),
    ("queue_id", ">i4"),
    ("offset", ">i8"),
    ("size", ">i4"),
    ("time_diff", ">i4"),
]
RUN_ITEM: Final = np.dtype(_ITEM_FIELDS)
LOCAL_ITEM: Final = np.dtype([*_ITEM_FIELDS, ("previous", ">i4")])

SLOTS_AT: Final = 28
assert HEADER.itemsize == SLOTS_AT
assert LOCAL_SLOT.itemsize == RUN_SLOT.itemsize == 8
assert RUN_ITEM.itemsize == 28
assert LOCAL_ITEM.itemsize == 32
assert LOCAL_ITEM.fields is not None
assert [LOCAL_ITEM.fields[name][1] for name in ("offset", "size", "previous")] == [12, 20, 28]

Form = Literal["local", "compacted"]


class Shape(NamedTuple):
    """Where things lie: form, slots, and items (local: capacity M, compacted: items there are).

    `slot_capacity` 0 means a local file without any item, whose shape cannot be known and does
    not matter: it answers nothing.
    """

    form: Form
    slot_capacity: int
    item_capacity: int

    @property
    def items_at(self) -> int:
        """Byte position of item 0 (local) or of the first run (compacted)."""
        return SLOTS_AT + LOCAL_SLOT.itemsize * self.slot_capacity

    @property
    def length(self) -> int:
        """Length in bytes of a file of this shape."""
        item = LOCAL_ITEM if self.form == "local" else RUN_ITEM
        return self.items_at + item.itemsize * self.item_capacity


def java_hash(text: str) -> int:
    """Return Java's `String.hashCode`: 31*h + code unit over UTF-16, as a signed 32-bit number."""
    value = 0
    for unit in np.frombuffer(text.encode("utf-16-le", "surrogatepass"), "<u2").tolist():
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def index_hash(topic: str, key: str) -> int:
    """Return the hash that a file stores: `java_hash(topic#key)`, negated when negative.

    -2^31 has no positive twin and stays what it is.
    """
    value = java_hash(f"{topic}#{key}")
    return value if value == SMALLEST_INT else abs(value)


def java_hashes(texts: Sequence[str]) -> np.ndarray:
    """Return `java_hash` of every text: int32[n]. Raises UnicodeEncodeError on a lone surrogate."""
    encoded = [text.encode() for text in texts]
    values, _ = _hash_units(encoded)
    return values.view(np.int32)


def index_hashes(topic: str, keys: Sequence[str]) -> np.ndarray:
    """Return `index_hash` of every key under one topic: int32[n]."""
    values, lengths = _hash_units([key.encode() for key in keys])
    # hash(prefix + key) = hash(prefix) * 31^len(key) + hash(key), all modulo 2^32
    prefix = np.uint32(java_hash(f"{topic}#") & 0xFFFFFFFF)
    powers = _powers(int(lengths.max(initial=0)) + 1)
    signed = (values + prefix * powers[lengths]).view(np.int32)
    hashes: np.ndarray = np.abs(signed)  # numpy leaves -2^31 as it is, like Java
    return hashes


def _hash_units(encoded: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Return the unsigned hash and the length in UTF-16 units of each UTF-8 text."""
    whole = b"".join(encoded)
    data = np.frombuffer(whole, np.uint8)
    ends = np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)))
    if data.size and data.max() >= 0x80:
        # A lead byte is one unit, the lead of a four-byte sequence a pair of surrogates.
        units = ((data & 0xC0) != 0x80).astype(np.int64) + (data >= 0xF0)
        ends = np.concatenate(([0], np.cumsum(units)))[ends]
        data = np.frombuffer(whole.decode().encode("utf-16-le"), "<u2")
    lengths = np.diff(ends, prepend=0)
    exponents = np.repeat(ends, lengths) - 1 - np.arange(data.size)
    terms = data.astype(np.uint32) * _powers(int(lengths.max(initial=0)))[exponents]
    sums = np.concatenate((np.zeros(1, np.uint32), np.cumsum(terms, dtype=np.uint32)))
    return sums[ends] - sums[ends - lengths], lengths


def _powers(count: int) -> np.ndarray:
    """Return 31^0 .. 31^(count-1) modulo 2^32."""
    factors = np.full(max(count, 1), 31, np.uint32)
    factors[0] = 1
    return np.cumprod(factors, dtype=np.uint32)


def slot_of(hashes: np.ndarray, slot_capacity: int) -> np.ndarray:
    """Return Java's `hash % slots`: int64[n], negative for -2^31 (which then has no slot)."""
    return np.fmod(hashes.astype(np.int64), slot_capacity)
