"""Writes a compacted file: sorted rows in, pages out as they fill, the tail at the end.

::

    append(rows) -> whole runs -> repeated entries dropped -> full pages -> write(buffer)
                        `-> distinct hashes -> filter partition -> kept until the tail

In memory: one open run, less than a page of rows, the directory, the current filter partition and
the finished filter. Used by the compactor, by merges and by Spark's tasks. Nothing is durable here:
the caller syncs what `write` took. One thread.

Depends on fileparts, directory, hash_group, page_encode, pages, header, row_scan, layout, schema, source,
row_bounds and statistics.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.filter import FilterBuilder
from tierdex.fileparts.layout import FILTER_PARTITION, Part
from tierdex.fileparts.memory import address
from tierdex.fileparts.tail_writer import TailWriter
from tierdex.indexfile import layout
from tierdex.indexfile.compacted.directory import directory_checksums
from tierdex.indexfile.compacted.hash_group import (
    GROUP_SIZES,
    GroupPlaces,
    GroupSizes,
    GroupWriter,
)
from tierdex.indexfile.compacted.kernels.page_encode import encode_pages
from tierdex.indexfile.compacted.pages import PagePlan, identity_masks
from tierdex.indexfile.compacted.statistics import COMPACTED_AT, COMPACTION_MS, FileStatistics
from tierdex.indexfile.header import FileHeader
from tierdex.indexfile.kernels.row_scan import count_topics, keep_rows, last_run, mark_runs
from tierdex.indexfile.layout import Form
from tierdex.indexfile.schema import TOPIC_DICTIONARY
from tierdex.indexfile.source import COVERS_NAME, EXTRA_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from typing_extensions import Buffer

    from tierdex.fileparts.dictionary import Dictionaries
    from tierdex.indexfile.row_bounds import RowBounds
    from tierdex.indexfile.schema import Schema
    from tierdex.indexfile.source import Source

_RUN_ITEMS_MAX = 1 << 19  # an open run above this is written in pieces: repeats further apart stay
_SOURCE = "rows to compact"


@dataclass(frozen=True, kw_only=True)
class FilePlan:
    """What a compacted file is going to hold. Every row must lie within `bounds`.

    `expected_items` sizes the filter; `dates` are the `begin_ms` and `sealed_at_ms` of its statistics,
    to which `finish` adds those of its own making;
    `source` and `covers` say up to where a log has what is indexed (`indexfile.source`).
    """

    uuid: bytes
    schema: Schema
    dictionaries: Dictionaries
    slot_count: int
    bounds: RowBounds
    expected_items: int
    dates: Mapping[str, int] = field(default_factory=dict)
    source: Source | None = None
    covers: Source | None = None
    group_sizes: GroupSizes = GROUP_SIZES


@dataclass(frozen=True)
class CompactedSummary:
    """What was written. `topics` are those that items have; times are 0 and -1 without items."""

    schema: Schema
    slot_count: int
    item_count: int
    min_time: int
    max_time: int
    bytes: int
    sidecar_position: int
    topics: list[str]
    footer_crc: int
    groups: GroupPlaces | None


class _RowBuffer:
    """Rows that wait: the first `kept` for their page to fill, the others for their run to end.

    Known by address, since slices of structured arrays cost more than what is done with them.
    """

    def __init__(self, item_bytes: int) -> None:
        self.item_bytes = item_bytes
        self.kept = 0
        self.count = 0
        self._raw = np.empty(0, np.uint8)
        self.place = 0
        self._keep = np.empty(0, bool)
        self._distinct = np.empty(0, np.uint64)

    def add(self, rows: np.ndarray) -> None:
        begin = self.count * self.item_bytes
        end = begin + rows.nbytes
        if end > len(self._raw):
            raw = np.empty(end + end // 8, np.uint8)
            raw[:begin] = self._raw[:begin]
            self._raw, self.place = raw, address(raw)
        self._raw[begin:end] = rows.view(np.uint8)
        self.count += len(rows)

    def close_gap(self, begin: int, end: int) -> None:
        """Move the rows from `end` on to row `begin`."""
        moved = self._raw[end * self.item_bytes : self.count * self.item_bytes]
        self._raw[begin * self.item_bytes :][: len(moved)] = moved
        self.count -= end - begin

    def scratch(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return (b1[count], u8[count]) to write to; the next call gives the same memory."""
        if len(self._keep) < count:
            self._keep = np.empty(count + count // 8, bool)
            self._distinct = np.empty(len(self._keep), np.uint64)
        return self._keep[:count], self._distinct[:count]


class CompactedWriter:
    """Packs rows that come sorted by hash, newest arrival first among equal hashes."""

    def __init__(
        self,
        write: Callable[[Buffer], None],
        plan: FilePlan,
        *,
        filter_bits: int,
        created_ms: int,
    ) -> None:
        """Write the header. `write` must be done with its argument when it returns: it is reused."""
        schema = plan.schema
        self._file = TailWriter(write, plan.uuid)
        self._uuid = plan.uuid
        self._schema = schema
        self._slot_count = plan.slot_count
        self._dictionaries = plan.dictionaries
        self._filter_bits = filter_bits
        self._created_ms = created_ms
        self._extra: dict[str, int | str] = dict(plan.dates)
        for name, source in ((EXTRA_NAME, plan.source), (COVERS_NAME, plan.covers)):
            if source is not None:
                self._extra[name] = source.encode().hex()
        self._plan = PagePlan.from_bounds(schema, plan.bounds, plan.uuid)
        self._filter = FilterBuilder(
            plan.uuid, filter_bits, plan.expected_items, keys_per_partition=plan.group_sizes.keys
        )
        topic_count = len(plan.dictionaries.strings(TOPIC_DICTIONARY))
        self._whole_bytes = plan.group_sizes.whole_bytes
        self._topics = np.zeros((topic_count, 3), np.int64)
        self._topics[:, 2] = -1
        self._masks = identity_masks(schema)
        self._counters = np.zeros(3, np.int64)
        self._distinct_count = 0
        self._item_count = 0
        self._rows = _RowBuffer(schema.item_bytes)
        self._directory: list[np.ndarray] = []
        self._pages = 0
        self._out = np.empty(0, np.uint8)
        self._header = FileHeader(
            form=Form.COMPACTED,
            uuid=plan.uuid,
            schema=schema,
            slot_count=plan.slot_count,
            item_capacity=max(1, plan.expected_items),
            row_capacity=0,
            created_ms=created_ms,
        ).encode()
        self._file.write(self._header)

    def append(self, rows: np.ndarray) -> None:
        """Take rows (the schema's item dtype) that go on where the last ones ended.

        Raises CorruptFileError when they are not sorted or a value lies outside the bounds, and what
        `write` raises; the file is useless then.
        """
        assert rows.dtype.itemsize == self._schema.item_bytes
        if len(rows):
            waiting = self._rows
            waiting.add(np.ascontiguousarray(rows))
            cut = last_run(waiting.place, waiting.item_bytes, waiting.kept, waiting.count)
            is_too_long = waiting.count - cut > _RUN_ITEMS_MAX
            self._take(waiting.count if is_too_long else int(cut))

    def finish(self, now_ms: int | None = None) -> CompactedSummary:
        """Write what is left and the tail, which tells `now_ms` and the time since the beginning.

        Raises what `append` raises.
        """
        if now_ms is not None:
            self._extra[COMPACTED_AT] = now_ms
            self._extra[COMPACTION_MS] = max(0, now_ms - self._created_ms)
        self._take(self._rows.count)
        self._put_pages(self._rows.kept)
        sidecar_position = self._file.position
        used = self._topics[:, 0] > 0
        statistics = FileStatistics(
            item_count=self._item_count,
            distinct_count=self._distinct_count,
            min_time=int(self._topics[used, 1].min()) if self._item_count else 0,
            max_time=int(self._topics[used, 2].max()) if self._item_count else -1,
            longest_run=int(self._counters[2]),
            page_count=self._pages,
            items_per_page=self._plan.items_per_page,
            filter_bits=self._filter_bits,
        )
        footer_crc = self._write_tail(statistics)
        names = self._dictionaries.strings(TOPIC_DICTIONARY)
        return CompactedSummary(
            schema=self._schema,
            slot_count=self._slot_count,
            item_count=self._item_count,
            min_time=statistics.min_time,
            max_time=statistics.max_time,
            bytes=self._file.position,
            sidecar_position=sidecar_position,
            topics=[names[i] for i in np.flatnonzero(used).tolist()],
            footer_crc=footer_crc,
            groups=GroupPlaces.of(self._file.parts),
        )

    # -- rows to pages --------------------------------------------------------------------------------

    def _take(self, end: int) -> None:
        """Drop repeated entries from the whole runs before row `end`, and write full pages."""
        waiting = self._rows
        count = end - waiting.kept
        if not count:
            return
        place, item_bytes = waiting.place + waiting.kept * waiting.item_bytes, waiting.item_bytes
        keep, distinct = waiting.scratch(count)
        found = mark_runs(place, item_bytes, count, self._masks, keep, distinct, self._counters)
        if found < 0:
            raise CorruptFileError(_SOURCE, "are not sorted by hash")
        self._distinct_count += found
        self._filter.add(distinct[:found])
        stay = count
        if not keep.all():
            stay = int(keep_rows(place, item_bytes, count, keep))
            waiting.close_gap(waiting.kept + stay, end)
        if not count_topics(place, item_bytes, stay, self._topics):
            raise CorruptFileError(_SOURCE, "have a topic that is not in the dictionary")
        self._item_count += stay
        waiting.kept += stay
        full = waiting.kept - waiting.kept % self._plan.items_per_page
        self._put_pages(full)
        waiting.close_gap(0, full)
        waiting.kept -= full

    def _put_pages(self, count: int) -> None:
        """Pack the first `count` rows into pages (only the file's last may be short), write them."""
        if not count:
            return
        pages = -(-count // self._plan.items_per_page)
        entries = np.empty(pages, layout.DIRECTORY_ENTRY)
        most = pages * layout.PAGE_BYTES_MAX + 16
        if len(self._out) < most:
            self._out = np.empty(most, np.uint8)
        length = encode_pages(
            self._rows.place,
            count,
            self._plan.address,
            self._pages,
            self._file.position,
            address(self._out),
            entries.ctypes.data,
        )
        if length < 0:
            raise CorruptFileError(_SOURCE, "have a value outside the bounds that were given")
        self._directory.append(entries)
        self._pages += pages
        self._file.write(self._out[:length])

    # -- the tail -------------------------------------------------------------------------------------

    def _write_tail(self, statistics: FileStatistics) -> int:
        """Write all parts, the part table and the footer; return the footer's checksum."""
        directory = self._closed_directory(statistics)
        topics = np.zeros(len(self._topics), layout.TOPIC)
        for column, name in enumerate(("item_count", "min_time", "max_time")):
            topics[name] = self._topics[:, column]
        extra = json.dumps(self._extra, separators=(",", ":"), sort_keys=True).encode()
        head = {
            Part.HEADER_COPY: self._header.rstrip(b"\0"),
            Part.STATISTICS: statistics.encode(),
            Part.DICTIONARIES: self._dictionaries.encode(),
            Part.COLUMNS: self._plan.columns.tobytes(),
            Part.QUEUES: self._plan.queues.tobytes(),
            Part.TOPICS: topics.tobytes(),
            Part.EXTRA: extra,
        }
        encoded, fingerprints = self._filter.finish()
        partitions, stride = np.frombuffer(encoded, FILTER_PARTITION), 0
        large = directory.nbytes + sum(map(len, fingerprints))
        pieces: Iterable[np.ndarray] = fingerprints
        small = sum(len(data) for data in head.values())
        if fingerprints and large + small >= self._whole_bytes:
            groups = GroupWriter(self._uuid, self._filter_bits, partitions, fingerprints, directory)
            partitions, stride = groups.table, groups.stride
            pieces = groups.pieces(self._file.parts)
        parts: list[tuple[Part, Iterable[Buffer | np.ndarray]]] = [
            *((kind, [data]) for kind, data in head.items()),
            (Part.CHECKSUMS, [directory_checksums(directory, self._uuid).tobytes()]),
            (Part.FILTER_PARTITIONS, [partitions.tobytes()]),
            (Part.DIRECTORY, [directory.view(np.uint8)]),
            (Part.FILTER, pieces),
        ]
        return self._file.write_tail(
            parts,
            form=Form.COMPACTED,
            item_count=self._item_count,
            details={Part.FILTER: stride},
        )

    def _closed_directory(self, statistics: FileStatistics) -> np.ndarray:
        """Return all entries, the closing one included."""
        closing = np.zeros(1, layout.DIRECTORY_ENTRY)
        closing["first_hash"] = np.iinfo(np.uint64).max
        closing["position"] = self._file.position
        closing["min_time"], closing["max_time"] = statistics.min_time, statistics.max_time
        directory = np.concatenate([*self._directory, closing])
        self._directory = []
        return directory
