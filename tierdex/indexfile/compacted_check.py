"""Every rule of the compacted form, in words: what `check` of a compacted file finds broken.

Reads the whole file once, page by page, and compares it with directory, filter, statistics and
dictionaries. Depends on layout, footer and the page kernels; sees the file through its own methods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.indexfile import layout
from tierdex.indexfile.checksums import checksum, unit_seed
from tierdex.indexfile.kernels.row_scan import count_topics, mark_runs
from tierdex.indexfile.pages import location_masks
from tierdex.indexfile.schema import TOPIC_DICTIONARY

if TYPE_CHECKING:
    from tierdex.indexfile.compacted import CompactedFile

_PAGES_AT_ONCE = 256
_FAULTS_MAX = 100  # a file that is broken everywhere needs no longer list


def find_damage(file: CompactedFile) -> list[str]:
    """Return every broken rule; empty means the file is sound. Raises what reading pages raises."""
    faults = _part_faults(file)
    faults += [
        f"checksum of directory block {block} differs"
        for block in file.directory.damaged_blocks(file.uuid)
    ]
    faults += [
        f"checksum of filter partition {partition} differs"
        for partition in file.filter.damaged_partitions()
    ]
    if not faults:
        faults += _directory_faults(file)
    if not faults:
        faults += _RowCheck(file).run()
    return faults[:_FAULTS_MAX]


def _part_faults(file: CompactedFile) -> list[str]:
    """Compare the checksum of every part, and the zero bytes between parts."""
    faults = []
    sidecar = file.sidecar_bytes()
    end = file.sidecar_position
    for entry in sorted(file.footer.parts.values(), key=lambda entry: entry.position):
        name = entry.kind.name.lower().replace("_", " ")
        start = entry.position - file.sidecar_position
        data = sidecar[start : start + entry.length]
        if checksum(data, unit_seed(file.uuid, entry.kind)) != entry.crc:
            faults.append(f"checksum of part {name} differs")
        between = sidecar[max(0, end - file.sidecar_position) : start]
        if entry.position < end or len(between) >= 8 or between.any():
            faults.append(f"part {name} does not follow the one before")
        end = entry.position + entry.length
    return faults


def _directory_faults(file: CompactedFile) -> list[str]:
    """Check that pages follow each other from the header to the tail, in the order of hashes."""
    faults = []
    entries = file.directory.entries
    positions = entries["position"].astype(np.int64)
    lengths = np.diff(positions)
    if positions[0] != layout.HEADER_BYTES or positions[-1] != file.sidecar_position:
        faults.append("the pages do not lie between the header and the tail")
    if np.any(lengths <= 0) or np.any(lengths > layout.PAGE_BYTES_MAX):
        faults.append("a page is empty or longer than 4096 bytes")
    if np.any(entries["first_hash"][1:] < entries["first_hash"][:-1]):
        faults.append("the directory is not sorted by hash")
    closing = entries[-1]
    if (int(closing["min_time"]), int(closing["max_time"])) != (file.min_time, file.max_time):
        faults.append("the directory's closing entry has other times than the statistics")
    return faults


class _RowCheck:
    """One pass over all rows, comparing them with what the parts say."""

    def __init__(self, file: CompactedFile) -> None:
        self._file = file
        self._faults: list[str] = []
        self._items = 0
        self._distinct = 0
        self._counters = np.zeros(3, np.int64)  # of mark_runs: last hash, its run, longest run
        self._masks = location_masks(file.schema)
        self._topics = np.zeros((len(file.topic_rows), 3), np.int64)
        self._topics[:, 2] = -1
        self._used: dict[str, np.ndarray] = {
            name: np.zeros(len(file.dictionaries.strings(name)), bool)
            for name in file.schema.dictionary_names
            if name != TOPIC_DICTIONARY  # whose rows are counted
        }

    def run(self) -> list[str]:
        pages = self._file.page_count
        for first in range(0, pages, _PAGES_AT_ONCE):
            self._pages(first, min(_PAGES_AT_ONCE, pages - first))
            if len(self._faults) >= _FAULTS_MAX:
                return self._faults
        if not self._faults:  # a page that could not be read makes every count wrong
            self._totals()
        return self._faults

    def _pages(self, first: int, count: int) -> None:
        span = self._file.span(first, count)
        try:
            rows = self._file.decode_span(span, self._file.page_bytes(span))
        except CorruptFileError as error:
            self._faults.append(error.reason)
            # The pages beside the damaged one are still looked at, one by one.
            if count > 1:
                self._faults.pop()
                for page in range(first, first + count):
                    self._pages(page, 1)
            return
        full = self._file.statistics.items_per_page
        last_is_full = first + count < self._file.page_count
        if len(rows) > count * full or len(rows) <= (count - 1) * full + last_is_full * (full - 1):
            self._faults.append(f"a page of {first} to {first + count - 1} is not full")
            return
        self._compare_directory(first, count, rows)
        self._count(first, rows)

    def _compare_directory(self, first: int, count: int, rows: np.ndarray) -> None:
        """Compare first hashes and time bounds of pages with the directory's entries."""
        entries = self._file.directory.entries[first : first + count]
        starts = np.arange(count) * self._file.statistics.items_per_page
        times = np.ascontiguousarray(rows["timestamp"])
        wrong = entries["first_hash"] != rows["key_hash"][starts]
        for page in (first + np.flatnonzero(wrong)).tolist():
            self._fault(page, "does not begin with the hash that the directory says")
        wrong = entries["min_time"] != np.minimum.reduceat(times, starts)
        wrong |= entries["max_time"] != np.maximum.reduceat(times, starts)
        for page in (first + np.flatnonzero(wrong)).tolist():
            self._fault(page, "has other times than the directory says")

    def _count(self, first: int, rows: np.ndarray) -> None:
        """Add rows to the totals; note dictionary strings that they use."""
        count, size = len(rows), rows.dtype.itemsize
        hashes = np.empty(count, np.uint64)
        keep = np.empty(count, bool)
        found = mark_runs(rows.ctypes.data, size, count, self._masks, keep, hashes, self._counters)
        if found < 0:
            self._fault(first, "or one after it is not sorted by hash")
            return
        if not keep.all():
            self._fault(first, "or one after it has a location twice for one hash")
        if not self._file.filter.may_contain_many(hashes[:found]).all():
            self._fault(first, "or one after it has a hash that the filter excludes")
        self._distinct += found
        self._items += count
        known = count_topics(rows.ctypes.data, size, count, self._topics)
        unknown = [] if known else [TOPIC_DICTIONARY]
        for name, used in self._used.items():
            column = rows[name]
            if int(column.max()) >= len(used):
                unknown.append(name)
            else:
                used[column] = True
        for name in unknown:
            self._fault(first, f"or one after it names an unknown string of dictionary {name}")

    def _totals(self) -> None:
        file, statistics = self._file, self._file.statistics
        found = (self._items, self._distinct, int(self._counters[2]))
        said = (statistics.item_count, statistics.distinct_count, statistics.longest_run)
        if found != said:
            self._faults.append(f"items, distinct hashes, longest run are {found}, not {said}")
        names = ("item_count", "min_time", "max_time")
        if any((self._topics[:, i] != file.topic_rows[name]).any() for i, name in enumerate(names)):
            self._faults.append("the items and times of a topic differ from the statistics")
        if file.statistics.filter_bits and file.filter.key_count != self._distinct:
            self._faults.append(
                f"the filter has {file.filter.key_count} keys, not {self._distinct}"
            )
        topics = {TOPIC_DICTIONARY: self._topics[:, 0] > 0}
        for name, used in (topics | self._used).items():
            if not used.all():
                unused = file.dictionaries.strings(name)[int(np.flatnonzero(~used)[0])]
                self._faults.append(f"no item uses {unused!r} of dictionary {name}")

    def _fault(self, page: int, what: str) -> None:
        self._faults.append(f"page {page} {what}")
