"""The running statistics of a chained file's batches, and the form in which a sealed file keeps them.

`BatchStatistics` wraps the i8 array whose places kernels/batch_statistics.py names: next row, batch
number and checksum, counts, time bounds, and a table of the greatest end offset of each (topic, queue).
Kernels advance it batch by batch; Python reads it and makes the table larger. Not thread-safe: the file
that owns it locks. `SealedStatistics` is the same as JSON: the STATISTICS part of a sealed file.

Depends on kernels.batch_statistics, header, source, errors and fileparts.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.checksums import part_seed
from tierdex.fileparts.layout import Part
from tierdex.indexfile.chained.kernels import batch_statistics as k
from tierdex.indexfile.source import COVERS_NAME, EXTRA_NAME, source_of_extra

if TYPE_CHECKING:
    from tierdex.indexfile.header import FileHeader
    from tierdex.indexfile.source import Source

_ENDS_CAPACITY = 1024  # pairs that a new table has place for; a power of two
_SOURCES = (EXTRA_NAME, COVERS_NAME)
NO_TIME = (np.iinfo(np.int64).max, np.iinfo(np.int64).min)  # bounds of no item at all


class SealedStatistics(NamedTuple):
    """What a sealed file says about its batches; `ends` is (topic index, queue, end offset).

    On disk: the names of the fields are the keys of the JSON; `source` and `covers` only where there is one.
    """

    item_count: int
    row_count: int
    batch_count: int
    batch_crc: int
    min_time: int
    max_time: int
    ends: list[tuple[int, int, int]]
    source: Source | None = None
    covers: Source | None = None  # of the last entries, where they lie behind `source`

    def encode(self) -> bytes:
        values = self._asdict()
        for name in _SOURCES:
            source: Source | None = values.pop(name)
            if source is not None:
                values[name] = source.encode().hex()
        return json.dumps(values, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes, path: object) -> SealedStatistics:
        """Return the statistics in `data`. Raises CorruptFileError."""
        try:
            values = json.loads(data)
            ends = [(int(a), int(b), int(c)) for a, b, c in values.pop("ends")]
            source, covers = (source_of_extra(values, name) for name in _SOURCES)
            numbers = {name: int(value) for name, value in values.items() if name not in _SOURCES}
            return cls(**numbers, ends=ends, source=source, covers=covers)
        except (ValueError, TypeError, KeyError) as error:
            raise CorruptFileError(path, f"statistics cannot be read: {error}") from error


class BatchStatistics:
    """Counts, bounds and end offsets of the batches taken so far."""

    def __init__(self, header: FileHeader, *, with_ends: bool = True) -> None:
        """Start before the first batch of a file with this header."""
        self._uuid = np.frombuffer(header.uuid, np.uint8)
        self._scratch = np.empty(2 * k.BLOCK_ITEMS, np.uint64)
        schema = header.schema
        self.array = np.zeros(k.STATISTICS_LENGTH, np.int64)
        self.array[k.B_SLOT_COUNT] = header.slot_count
        self.array[k.B_ITEM_BYTES] = schema.item_bytes
        self.array[k.B_UUID] = self._uuid.ctypes.data
        self.array[k.B_SCRATCH] = self._scratch.ctypes.data
        self.array[k.B_NEXT_ROW] = 1
        self.array[k.B_CRC] = part_seed(header.uuid, Part.BATCH)
        self.array[k.B_MIN_TIME], self.array[k.B_MAX_TIME] = NO_TIME
        self.array[k.B_MAX_TOPIC] = -1
        self.source: Source | None = None  # of the last batch that is not partial
        self.covers: Source | None = None  # of a partial one behind it
        self._ends_keys = np.empty(0, np.uint64)
        self._ends_values = np.empty(0, np.int64)
        if with_ends and schema.has_end_offsets:
            self.array[k.B_OFFSET_POSITION] = schema.position("offset")
            self.array[k.B_SIZE_POSITION] = schema.position("size")
            self.array[k.B_QUEUE_POSITION] = schema.position("queue_id")
            self.array[k.B_END_STEP] = schema.end_step
            self._set_ends(np.empty(0, np.uint64), np.empty(0, np.int64), _ENDS_CAPACITY)

    # -- what kernels counted ---------------------------------------------------------------------------

    @property
    def next_row(self) -> int:
        return int(self.array[k.B_NEXT_ROW])

    @property
    def batches(self) -> int:
        return int(self.array[k.B_BATCHES])

    @property
    def crc(self) -> int:
        return int(self.array[k.B_CRC])

    @property
    def items(self) -> int:
        return int(self.array[k.B_ITEMS])

    @property
    def max_topic(self) -> int:
        return int(self.array[k.B_MAX_TOPIC])

    @property
    def fingerprint(self) -> int:
        return int(self.array[k.B_FINGERPRINT])

    @property
    def time_bounds(self) -> tuple[int, int]:
        return int(self.array[k.B_MIN_TIME]), int(self.array[k.B_MAX_TIME])

    def note_source(self, source: Source) -> None:
        """Note the position that a batch brought."""
        if source.partial:
            self.covers = source
        else:
            self.source, self.covers = source, None

    def bind(self, *, slots: int, rows: int, published: int = 0) -> None:
        """Set the addresses of slot 0, row 1, and the published counts."""
        self.array[k.B_SLOTS] = slots
        self.array[k.B_ROWS] = rows
        self.array[k.B_PUBLISHED] = published

    def sealed(self) -> SealedStatistics:
        """Return what a sealed file keeps."""
        rows = self.next_row - 1
        return SealedStatistics(
            self.items, rows, self.batches, self.crc, *self.time_bounds, self.ends(),
            self.source, self.covers,
        )  # fmt: skip

    def restore(self, sealed: SealedStatistics) -> None:
        """Take what a sealed file says instead of scanning its batches."""
        self.array[k.B_NEXT_ROW] = sealed.row_count + 1
        self.array[k.B_BATCHES] = sealed.batch_count
        self.array[k.B_CRC] = sealed.batch_crc
        self.array[k.B_ITEMS] = sealed.item_count
        self.array[k.B_MIN_TIME] = sealed.min_time
        self.array[k.B_MAX_TIME] = sealed.max_time
        self.source, self.covers = sealed.source, sealed.covers
        if sealed.ends:
            self._load_ends(sealed.ends)

    # -- end offsets ----------------------------------------------------------------------------------

    def ends(self) -> list[tuple[int, int, int]]:
        """Return (topic index, queue, end offset) of every pair, in order."""
        used = self._ends_keys != k.ENDS_EMPTY
        keys, values = self._ends_keys[used], self._ends_values[used]
        order = np.argsort(keys, kind="stable")
        topics = (keys[order] >> np.uint64(32)).astype(np.int64).tolist()
        queues = (keys[order] & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.int32).tolist()
        return list(zip(topics, queues, values[order].tolist(), strict=True))

    def _load_ends(self, rows: list[tuple[int, int, int]]) -> None:
        """Take the pairs that `ends` gave, in a sealed file's statistics."""
        table = np.array(rows, np.int64).reshape(-1, 3)
        queues = table[:, 1].astype(np.int32).view(np.uint32).astype(np.uint64)
        keys = (table[:, 0].astype(np.uint64) << np.uint64(32)) | queues
        self._set_ends(keys, table[:, 2].copy(), _ENDS_CAPACITY)

    def take_ends(self, other: BatchStatistics) -> None:
        """Take the pairs of `other` instead of those that are there."""
        used = other._ends_keys != k.ENDS_EMPTY
        if len(used):
            self._set_ends(other._ends_keys[used], other._ends_values[used], _ENDS_CAPACITY)

    def grow(self) -> None:
        """Double the table of end offsets until it is at most a quarter full."""
        used = self._ends_keys != k.ENDS_EMPTY
        capacity = 2 * len(self._ends_keys)
        self._set_ends(self._ends_keys[used], self._ends_values[used], capacity)

    def _set_ends(self, keys: np.ndarray, values: np.ndarray, capacity: int) -> None:
        while 4 * len(keys) > capacity:
            capacity *= 2
        self._ends_keys = np.full(capacity, k.ENDS_EMPTY, np.uint64)
        self._ends_values = np.full(capacity, np.iinfo(np.int64).min, np.int64)
        self.array[k.B_ENDS_KEYS] = self._ends_keys.ctypes.data
        self.array[k.B_ENDS_VALUES] = self._ends_values.ctypes.data
        self.array[k.B_ENDS_MASK] = capacity - 1
        self.array[k.B_ENDS_USED] = 0
        k.put_ends(self.array, keys.ctypes.data, values.ctypes.data, len(keys))
