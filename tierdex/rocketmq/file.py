"""Answers lookups in one RocketMQ tiered-store index file, local or compacted, in place.

What such a file can promise is less than ours: it knows a 32-bit hash of `topic#key` and no key, so
another key's entry may be among the rows (`HASH_FUNCTION`, `KEY_IS_VERIFIED`); times are whole
seconds; nothing is checksummed. What it can answer is answered whole: chains and runs are followed
to their end, where the original cuts them at 512 and 1,024 items.

Reads are positional, one file may be asked by any number of threads, and a file cut short under the
reader is a CorruptFileError, never "not found". Depends on numpy, errors, check, layout and shape.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tierdex.errors import CorruptFileError, UnsupportedFormatError
from tierdex.rocketmq.check import check_rows
from tierdex.rocketmq.layout import (
    HASH_FUNCTION,
    HEADER,
    LOCAL_ITEM,
    LOCAL_SLOT,
    MAGIC_BEING_WRITTEN,
    MAGIC_ENDED,
    NO_ITEM,
    RUN_ITEM,
    RUN_SLOT,
    SLOTS_AT,
    Form,
    Shape,
    index_hash,
    slot_of,
)
from tierdex.rocketmq.shape import find_shape, read_records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tierdex.filesystem import FileSystem, OpenFile

ROW: Final = np.dtype(
    [
        ("hash", "<i4"),
        ("topic_id", "<i4"),
        ("queue_id", "<i4"),
        ("offset", "<i8"),
        ("size", "<i4"),
        ("timestamp", "<i8"),
    ]
)
KEY_IS_VERIFIED: Final = False
_ATTEMPTS = 3  # a live writer may move between two of our reads
_BLOCK_ITEMS = 1 << 15
_LAST_MS = (1 << 63) - 1


def is_rocketmq_file(filesystem: FileSystem, path: Path) -> bool:
    """Return whether the file begins as RocketMQ's index files do. Raises OSError."""
    file = filesystem.open(path)
    try:
        begin = file.read_at(0, 4)
    finally:
        file.close()
    magic = int.from_bytes(begin, "big", signed=True)
    return len(begin) == 4 and magic in (MAGIC_BEING_WRITTEN, MAGIC_ENDED)


class RocketmqIndexFile:
    """One index file, open for reading.

    Thread safety: safe to share; a file that is still being written may grow under it, and rows
    that were placed before the call are seen.
    """

    hash_function = HASH_FUNCTION
    key_is_verified = KEY_IS_VERIFIED

    def __init__(
        self, file: OpenFile, path: Path, header: np.void, shape: Shape, given: dict[str, Any]
    ) -> None:
        self._file = file
        # A folder may drop a file while another thread reads it: the last user closes it.
        self._close = weakref.finalize(self, file.close)
        self._given = given
        self.path = path
        self.header = header
        self.shape = shape

    @classmethod
    def open(
        cls,
        filesystem: FileSystem,
        path: Path,
        *,
        form: Form | None = None,
        slot_capacity: int | None = None,
        item_capacity: int | None = None,
    ) -> RocketmqIndexFile:
        """Open a file; capacities that are not given are found out (see `rocketmq_shape`).

        Raises UnsupportedFormatError when it is not a RocketMQ index file, CorruptFileError when it
        is truncated or damaged, OSError.
        """
        given = {"form": form, "slot_capacity": slot_capacity, "item_capacity": item_capacity}
        file = filesystem.open(path)
        try:
            header, shape = _read_shape(file, path, given)
        except BaseException:
            file.close()
            raise
        return cls(file, path, header, shape, given)

    @property
    def is_ended(self) -> bool:
        return bool(self.header["magic"] == MAGIC_ENDED)

    @property
    def begin_ms(self) -> int:
        return int(self.header["begin_ms"])

    @property
    def item_count(self) -> int:
        return int(self.header["item_count"])

    def find_blocks(
        self, topic: str, key: str, begin: int | None = None, end: int | None = None
    ) -> Iterator[np.ndarray]:
        """Yield the rows (dtype `ROW`) with the hash of `key` in blocks, newest first.

        `begin` and `end` are inclusive milliseconds, held against times of whole seconds. The key itself
        is not verified. Reads no further than the caller goes. Raises CorruptFileError when a slot, link
        or run cannot be right.
        """
        self._look_again()
        if not self.shape.slot_capacity:
            return
        for items in self._candidates(index_hash(topic, key)):
            rows = self._rows(items)
            keep = rows["timestamp"] >= (-_LAST_MS if begin is None else begin)
            keep &= rows["timestamp"] <= (_LAST_MS if end is None else end)
            yield rows[keep]

    def rows(self) -> Iterator[np.ndarray]:
        """Yield every row in blocks, in the file's own order (local: oldest arrival first)."""
        self._look_again()
        for items in self._all_items():
            yield self._rows(items)

    def time_bounds(self) -> tuple[int, int] | None:
        """Return the least and greatest time of the entries themselves, from a scan; None if empty.

        The header cannot tell: it ignores entries that were late when they were put, and the
        original restores its end from the begin.
        """
        bounds = [
            (int(rows["timestamp"].min()), int(rows["timestamp"].max())) for rows in self.rows()
        ]
        if not bounds:
            return None
        return min(low for low, _ in bounds), max(high for _, high in bounds)

    def describe(self) -> dict[str, Any]:
        """Return header, shape and what must be known about the answers. Scans the items."""
        bounds = self.time_bounds()
        return {
            "format": "rocketmq",
            "path": str(self.path),
            "form": self.shape.form,
            "ended": self.is_ended,
            "begin_ms": self.begin_ms,
            "end_ms": int(self.header["end_ms"]),
            "min_time": bounds[0] if bounds else None,
            "max_time": bounds[1] if bounds else None,
            "time_resolution_ms": 1000,
            "item_count": self.item_count,
            "used_slots": int(self.header["used_slots"]),
            "slot_count": self.shape.slot_capacity,
            "item_capacity": self.shape.item_capacity,
            "bytes": self._file.size(),
            "hash_function": HASH_FUNCTION,
            "key_is_verified": KEY_IS_VERIFIED,
        }

    def check(self) -> list[str]:
        """Return every broken invariant, in words; empty means the file is sound. Reads it whole."""
        self._look_again()
        if not self.shape.slot_capacity:
            return []
        slot = LOCAL_SLOT if self.shape.form == "local" else RUN_SLOT
        slots = self._records(SLOTS_AT, slot, self.shape.slot_capacity)
        items = np.concatenate(
            [
                np.empty(0, LOCAL_ITEM if self.shape.form == "local" else RUN_ITEM),
                *self._all_items(),
            ]
        )
        problems = check_rows(self.header, self.shape, slots, items)
        if (
            self.path.name.isdigit()
            and int(self.path.name) != self.begin_ms
            and len(self.path.name) < 20
        ):  # a local file is named after its begin, an uploaded one after its position
            problems.append(f"the name says begin {self.path.name}, the header {self.begin_ms}")
        return problems

    def close(self) -> None:
        self._close()

    # -- private ----------------------------------------------------------------------------------
    def _look_again(self) -> None:
        """Follow a file that its broker still writes: the header, and the shape of an empty one."""
        if not self.shape.slot_capacity:
            self.header, self.shape = _read_shape(self._file, self.path, self._given)
        elif not self.is_ended:
            self.header = _read_header(self._file, self.path)

    def _rows(self, items: np.ndarray) -> np.ndarray:
        rows = np.empty(len(items), ROW)
        for name in ("hash", "topic_id", "queue_id", "offset", "size"):
            rows[name] = items[name]
        rows["timestamp"] = self.begin_ms + items["time_diff"].astype(np.int64) * 1000
        return rows

    def _candidates(self, wanted: int) -> Iterator[np.ndarray]:
        """Yield the items with this hash in blocks, newest first."""
        slot = int(slot_of(np.array([wanted]), self.shape.slot_capacity)[0])
        if self.shape.form == "compacted":
            blocks = self._run(slot) if slot >= 0 else iter(())
        elif slot >= 0:
            blocks = self._chain(slot)
        else:  # -2^31 has no slot: its item is placed and linked from nowhere
            blocks = (block[::-1] for block in reversed(list(self._all_items())))
        for block in blocks:
            yield block[block["hash"] == wanted]

    def _run(self, slot: int) -> Iterator[np.ndarray]:
        entry = self._records(SLOTS_AT + slot * RUN_SLOT.itemsize, RUN_SLOT, 1)[0]
        position, length = int(entry["position"]), int(entry["length"])
        if not (
            self.shape.items_at <= position
            and 0 <= length <= self.shape.length - position
            and length % RUN_ITEM.itemsize == 0
            and (position - self.shape.items_at) % RUN_ITEM.itemsize == 0
        ):
            raise CorruptFileError(self.path, f"slot {slot} names a run outside of the file")
        remaining = length // RUN_ITEM.itemsize
        while remaining:
            count = min(_BLOCK_ITEMS, remaining)
            yield self._records(position, RUN_ITEM, count)
            position += count * RUN_ITEM.itemsize
            remaining -= count

    def _chain(self, slot: int) -> Iterator[np.ndarray]:
        """Walk one chain. Blocks grow with its length: a hot key's links lie close together."""
        head = self._records(SLOTS_AT + slot * LOCAL_SLOT.itemsize, LOCAL_SLOT, 1)[0]
        number, above, span = int(head["newest"]), self.shape.item_capacity, 1
        while number != NO_ITEM:
            if not 0 < number < above:
                raise CorruptFileError(self.path, f"a chain of slot {slot} leads to item {number}")
            first = max(1, number - span + 1)
            at = self.shape.items_at + first * LOCAL_ITEM.itemsize
            block = self._records(at, LOCAL_ITEM, number - first + 1)
            links = block["previous"].tolist()
            picked = []
            while first <= number < above:
                picked.append(number - first)
                above, number = number, links[number - first]
            span = min(span * 2, 4096) if len(picked) * 64 >= span else max(1, span // 2)
            yield block[picked]

    def _all_items(self) -> Iterator[np.ndarray]:
        local = self.shape.form == "local"
        dtype = LOCAL_ITEM if local else RUN_ITEM
        number, beyond = (1, self.item_count + 1) if local else (0, self.item_count)
        while number < beyond:
            count = min(_BLOCK_ITEMS, beyond - number)
            yield self._records(self.shape.items_at + number * dtype.itemsize, dtype, count)
            number += count

    def _records(self, position: int, dtype: np.dtype, count: int) -> np.ndarray:
        records = read_records(self._file, position, dtype, count)
        if len(records) != count:
            raise CorruptFileError(
                self.path, f"ends before byte {position + count * dtype.itemsize}"
            )
        return records


def _read_shape(file: OpenFile, path: Path, given: dict[str, Any]) -> tuple[np.void, Shape]:
    """Return header and shape, read again when a live writer moved in between."""
    for attempt in range(_ATTEMPTS):
        header = _read_header(file, path)
        try:
            return header, find_shape(file, path, header, **given)
        except CorruptFileError:
            if header["magic"] == MAGIC_ENDED or attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def _read_header(file: OpenFile, path: Path) -> np.void:
    records = read_records(file, 0, HEADER, 1)
    if not len(records):
        raise CorruptFileError(path, f"{file.size()} bytes are less than a header")
    header: np.void = records[0]
    if header["magic"] not in (MAGIC_BEING_WRITTEN, MAGIC_ENDED):
        raise UnsupportedFormatError(path, f"magic {header['magic']}: not a RocketMQ index file")
    return header
