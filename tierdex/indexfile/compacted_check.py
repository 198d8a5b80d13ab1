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
from tierdex.indexfile.schema import TOPIC_DICTIONARY

if TYPE_CHECKING:
    from tierdex.indexfile.compacted import CompactedFile

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
        self._topics = np.zeros(len(file.topic_rows), layout.TOPIC)
        self._topics["max_time"] = -1
        self._items = 0
        self._distinct = 0
        self._longest = 0
        self._run = 0
        self._last_hash = -1
        self._used: dict[str, np.ndarray] = {
            name: np.zeros(len(file.dictionaries.strings(name)), bool)
            for name in file.schema.dictionary_names
        }

    def run(self) -> list[str]:
        for page in range(self._file.page_count):
            span = self._file.span(page, 1)
            try:
                rows = self._file.decode_span(span, self._file.page_bytes(span))
            except CorruptFileError as error:
                self._faults.append(error.reason)
                continue
            self._page(page, rows)
            if len(self._faults) >= _FAULTS_MAX:
                return self._faults
        if not self._faults:  # a page that could not be read makes every count wrong
            self._totals()
        return self._faults

    def _page(self, page: int, rows: np.ndarray) -> None:
        file, hashes, times = self._file, rows["key_hash"], rows["timestamp"]
        entry = file.directory.entries[page]
        full = page + 1 < file.page_count
        if full and len(rows) != file.statistics.items_per_page:
            self._fault(page, f"has {len(rows)} items")
        if int(entry["first_hash"]) != int(hashes[0]):
            self._fault(page, "does not begin with the hash that the directory says")
        if (entry["min_time"], entry["max_time"]) != (times.min(), times.max()):
            self._fault(page, "has other times than the directory says")
        if int(hashes[0]) < self._last_hash or np.any(hashes[1:] < hashes[:-1]):
            self._fault(page, "is not sorted by hash")
        if not file.filter.may_contain_many(hashes).all():
            self._fault(page, "has a hash that the filter excludes")
        self._count(page, rows)

    def _count(self, page: int, rows: np.ndarray) -> None:
        """Add a page to the totals; note dictionary strings that its rows use."""
        hashes = rows["key_hash"]
        starts = np.flatnonzero(np.r_[True, hashes[1:] != hashes[:-1]])
        lengths = np.diff(np.r_[starts, len(rows)])
        goes_on = int(hashes[0]) == self._last_hash
        if goes_on:
            lengths[0] += self._run
        self._distinct += len(starts) - goes_on
        self._longest = max(self._longest, int(lengths.max()))
        self._run, self._last_hash = int(lengths[-1]), int(hashes[-1])
        self._items += len(rows)
        for name, used in self._used.items():
            column = (
                rows["tag"] & np.uint32(layout.TOPIC_MASK)
                if name == TOPIC_DICTIONARY
                else rows[name]
            )
            if int(column.max()) >= len(used):
                self._fault(page, f"names string {int(column.max())} of dictionary {name}")
                return
            used[column] = True
        topics = rows["tag"] & np.uint32(layout.TOPIC_MASK)
        for topic in np.unique(topics).tolist():
            times = rows["timestamp"][topics == topic]
            row = self._topics[topic]
            first = row["item_count"] == 0
            row["min_time"] = times.min() if first else min(row["min_time"], times.min())
            row["max_time"] = times.max() if first else max(row["max_time"], times.max())
            row["item_count"] += len(times)

    def _totals(self) -> None:
        file, statistics = self._file, self._file.statistics
        found = (self._items, self._distinct, self._longest)
        said = (statistics.item_count, statistics.distinct_count, statistics.longest_run)
        if found != said:
            self._faults.append(f"items, distinct hashes, longest run are {found}, not {said}")
        if not np.array_equal(self._topics, file.topic_rows):
            self._faults.append("the items and times of a topic differ from the statistics")
        if file.statistics.filter_bits and file.filter.key_count != self._distinct:
            self._faults.append(
                f"the filter has {file.filter.key_count} keys, not {self._distinct}"
            )
        for name, used in self._used.items():
            if not used.all():
                unused = file.dictionaries.strings(name)[int(np.flatnonzero(~used)[0])]
                self._faults.append(f"no item uses {unused!r} of dictionary {name}")

    def _fault(self, page: int, what: str) -> None:
        self._faults.append(f"page {page} {what}")
