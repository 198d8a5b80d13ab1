"""Every rule of the compacted form, in words: what `check` of a compacted file finds broken.

Reads the whole file once, page by page, and compares it with directory, filter, statistics and
dictionaries. Depends on layout, fileparts, hash_group, page_check, pages, row_scan and schema; sees the
file as its sidecar does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.check import part_faults
from tierdex.fileparts.memory import address
from tierdex.indexfile import layout
from tierdex.indexfile.compacted.hash_group import find_group_damage
from tierdex.indexfile.compacted.kernels import page_check as k
from tierdex.indexfile.compacted.pages import identity_masks
from tierdex.indexfile.kernels.row_scan import mark_runs
from tierdex.indexfile.schema import TOPIC_DICTIONARY

if TYPE_CHECKING:
    from tierdex.indexfile.compacted.sidecar import Sidecar

_PAGES_AT_ONCE = 256
_FAULTS_MAX = 100  # a file that is broken everywhere needs no longer list
_FAULTS = {
    k.BAD_CHECKSUM: "checksum of page {} differs",
    k.NOT_FULL: "page {} is not full",
    k.BAD_FIRST_HASH: "page {} does not begin with the hash that the directory says",
    k.BAD_TIMES: "page {} has other times than the directory says",
    k.NOT_SORTED: "page {} is not sorted by hash",
    k.BAD_TOPIC: "page {} names an unknown topic",
}


def find_damage(file: Sidecar) -> list[str]:
    """Return every broken rule; empty means the file is sound. Raises what reading pages raises."""
    faults = part_faults(file.sidecar_bytes(), file.sidecar_position, file.footer, file.uuid)
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
    if not faults and file.groups is not None:
        faults += find_group_damage(
            file.filter.fingerprints, file.footer, file.filter.partitions, file.directory.entries
        )
    if not faults:
        faults += _PageCheck(file).run()
    return faults[:_FAULTS_MAX]


def _directory_faults(file: Sidecar) -> list[str]:
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


class _PageCheck:
    """One pass over all pages, comparing them with what the parts say."""

    def __init__(self, file: Sidecar) -> None:
        self._file = file
        self._faults: list[str] = []
        self._counters = np.zeros(k.CHECK_LENGTH, np.int64)
        self._masks = identity_masks(file.schema)
        self._topics = np.zeros((len(file.topic_rows), 3), np.int64)
        self._topics[:, 2] = -1
        self._hashes = np.empty(_PAGES_AT_ONCE * file.statistics.items_per_page, np.uint64)
        self._string_counts = {
            name: len(file.dictionaries.strings(name))
            for name in file.schema.dictionary_names
            if name != TOPIC_DICTIONARY  # whose items are counted
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
        try:
            span = self._file.span(first, count)
        except CorruptFileError as error:
            self._faults.append(error.reason)
            return
        data = self._file.page_bytes(span)
        place = address(np.frombuffer(memoryview(data), np.uint8)) - span.position
        sound, page = True, first
        while page < first + count:
            begin = page
            page, what, hashes = k.check_pages(
                self._file.address,
                place,
                page,
                first + count - page,
                self._hashes,
                self._topics,
                self._counters,
            )
            if not self._file.filter.may_contain_many(self._hashes[:hashes]).all():
                self._fault(first, "or one after it has a hash that the filter excludes")
            if what != k.SOUND:
                sound = False
                self._faults.append(_FAULTS[what].format(page))
                page += 1
            elif self._counters[k.C_FIRST_REPEAT] >= 0:
                self._compare_entries(begin)
        if sound and self._string_counts:
            self._look_strings_up(first, self._rows(first, count))

    def _rows(self, first: int, count: int) -> np.ndarray:
        span = self._file.span(first, count)
        return self._file.decode_span(span, self._file.page_bytes(span))

    def _compare_entries(self, begin: int) -> None:
        """Check that no two items of one hash are one entry, on the pages from `begin` on."""
        first, last = (int(self._counters[place]) for place in (k.C_FIRST_REPEAT, k.C_LAST_REPEAT))
        first = max(begin, first - 1)  # where the run of its first item may have begun
        rows = self._rows(first, last + 1 - first)
        count, size = len(rows), rows.dtype.itemsize
        hashes, keep = np.empty(count, np.uint64), np.empty(count, bool)
        counters = np.zeros(3, np.int64)
        mark_runs(rows.ctypes.data, size, count, self._masks, keep, hashes, counters)
        if not keep.all():
            self._fault(first, "or one after it has an entry twice for one hash")

    def _look_strings_up(self, first: int, rows: np.ndarray) -> None:
        """Compare the rows' strings with the dictionaries, which may hold strings that no row uses.

        A batch brings all of its strings to a file, also when the file takes its first rows only.
        """
        for name, known in self._string_counts.items():
            if int(rows[name].max()) >= known:
                self._fault(first, f"or one after it names an unknown string of dictionary {name}")

    def _totals(self) -> None:
        file, statistics = self._file, self._file.statistics
        items, distinct, longest = (
            int(self._counters[place]) for place in (k.C_ITEMS, k.C_DISTINCT, k.C_LONGEST)
        )
        found = (items, distinct, longest)
        said = (statistics.item_count, statistics.distinct_count, statistics.longest_run)
        if found != said:
            self._faults.append(f"items, distinct hashes, longest run are {found}, not {said}")
        names = ("item_count", "min_time", "max_time")
        if any((self._topics[:, i] != file.topic_rows[name]).any() for i, name in enumerate(names)):
            self._faults.append("the items and times of a topic differ from the statistics")
        if file.statistics.filter_bits and file.filter.key_count != distinct:
            self._faults.append(f"the filter has {file.filter.key_count} keys, not {distinct}")

    def _fault(self, page: int, what: str) -> None:
        self._faults.append(f"page {page} {what}")
