"""What a grouped file is written from: sealed journals, or grouped files that are merged.

A source is a sequence of messages in order of (topic's name, queue_id, offset), read by ranges as rows of a
journal. Everything is verified on the way: damage raises CorruptFileError.

Depends on fileparts, forgotten, journal, file, page_write, queue_groups and topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.memory import address
from tierdex.logfile.grouped.kernels.page_write import BLANK_BYTES, blank_rows
from tierdex.logfile.grouped.queue_groups import QueueRows

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from tierdex.logfile.forgotten import ForgottenPlaces
    from tierdex.logfile.grouped.file import GroupedFile
    from tierdex.logfile.journal.sealed import SealedJournal
    from tierdex.logfile.topics import Topics

_NONE = np.zeros(0, np.int64)


class SourceRows(NamedTuple):
    """Rows by address (i8), the base of their times (i8), and the memory that they lie in."""

    addresses: np.ndarray
    bases: np.ndarray
    memory: object


class Source(Protocol):
    """Messages in order of their queues."""

    topics: Topics
    queues: QueueRows
    left_out: Collection[bytes]  # topics that the new file is not to have of this source

    def rows(self, first: int, count: int) -> SourceRows:
        """Return messages `first` .. `first + count` of the whole sequence. Raises CorruptFileError."""
        ...


class JournalSource:
    """A sealed journal, verified whole when this is made. Borrows it."""

    left_out: Collection[bytes] = ()

    def __init__(self, journal: SealedJournal) -> None:
        """Raises CorruptFileError."""
        journal.blocks.verify(
            0, len(journal.blocks.data)
        )  # in order, before chains of slots jump about
        self._journal = journal
        self.topics = journal.topics
        rows = journal.queues()
        self.queues = QueueRows(
            *(
                rows[name].astype(np.int64)
                for name in ("topic", "queue_id", "first_offset", "count")
            )
        )
        self._starts = np.cumsum(self.queues.counts) - self.queues.counts
        if not (np.diff(self.queues.keys) > 0).all():
            raise CorruptFileError(journal.path, "the queues are not sorted")

    def rows(self, first: int, count: int) -> SourceRows:
        queue = int(np.searchsorted(self._starts, first, side="right")) - 1
        addresses = self._journal.row_addresses(queue, first - int(self._starts[queue]), count)
        bases = np.full(count, self._journal.base_time, np.int64)
        return SourceRows(addresses, bases, self._journal.mapped_bytes)


class ForgettingSource:
    """Another source, in which messages that were forgotten are empty, and say so. Borrows it."""

    def __init__(self, source: Source, places: ForgottenPlaces) -> None:
        self._source = source
        self.topics, self.queues, self.left_out = source.topics, source.queues, source.left_out
        self._forgotten = np.sort(np.concatenate([_NONE, *self._ordinals(places)]))

    def _ordinals(self, places: ForgottenPlaces) -> Iterator[np.ndarray]:
        """Yield where the messages of each queue stand in the whole sequence."""
        queues = self.queues
        keys, starts = queues.keys, np.cumsum(queues.counts) - queues.counts
        for name, queue_id, offsets in places.queues():
            key = (self.topics.find(name) << 32) | queue_id
            place = int(np.searchsorted(keys, key))
            if key < 0 or place == len(keys) or int(keys[place]) != key:
                continue
            ordinals = offsets - queues.first_offsets[place]
            held = ordinals[(ordinals >= 0) & (ordinals < queues.counts[place])]
            yield held + starts[place]

    def rows(self, first: int, count: int) -> SourceRows:
        rows = self._source.rows(first, count)
        begin, end = np.searchsorted(self._forgotten, [first, first + count])
        if begin == end:
            return rows
        hits = np.ascontiguousarray(self._forgotten[begin:end] - first)
        addresses = np.array(rows.addresses, np.int64)  # the source may keep its own
        blank = np.empty(len(hits) * BLANK_BYTES, np.uint8)
        bases = np.ascontiguousarray(rows.bases)
        blank_rows(address(addresses), address(bases), address(hits), len(hits), address(blank))
        return SourceRows(addresses, rows.bases, (rows.memory, blank))


class GroupedSource:
    """A grouped file that is merged. Borrows it; keeps the last page open."""

    def __init__(self, file: GroupedFile, left_out: Collection[bytes] = ()) -> None:
        """Raises CorruptFileError."""
        self.file = file
        self.left_out = left_out
        self.topics = file.topics
        self.queues = file.queues()
        starts = np.cumsum(self.queues.counts) - self.queues.counts
        directory = file.directory()[:-1]
        first_queues = directory["first_queue"].astype(np.int64)
        if len(directory) and int(first_queues.max()) >= len(starts):
            raise CorruptFileError(file.path, "a page begins with a queue that the file lacks")
        self._page_starts = starts[first_queues] + directory["first_ordinal"].astype(np.int64)
        self._last: tuple[int, np.ndarray, np.ndarray] | None = None

    def rows(self, first: int, count: int) -> SourceRows:
        page = int(np.searchsorted(self._page_starts, first, side="right")) - 1
        begin, end = first, first + count
        pieces, memory = [], []
        while begin < end:
            addresses, rows = self._page_rows(page)
            start = int(self._page_starts[page])
            piece = addresses[begin - start : end - start]
            if not len(piece):
                raise CorruptFileError(self.file.path, f"page {page} lacks message {begin}")
            pieces.append(piece)
            memory.append(rows)
            begin += len(piece)
            page += 1
        return SourceRows(np.concatenate(pieces), np.zeros(count, np.int64), memory)

    def _page_rows(self, page: int) -> tuple[np.ndarray, np.ndarray]:
        if self._last is None or self._last[0] != page:
            if page >= len(self._page_starts):
                raise CorruptFileError(self.file.path, "has fewer pages than messages need")
            addresses, memory = self.file.page(page).rows()
            starts = self._page_starts
            if page + 1 < len(starts) and len(addresses) != int(starts[page + 1] - starts[page]):
                raise CorruptFileError(
                    self.file.path, f"page {page} has other messages than it should"
                )
            self._last = page, addresses, memory
        return self._last[1], self._last[2]
