"""Queries on a chained file, whatever its life: what it says of itself, one key, many keys, all rows.

The reading half of `ChainedFile`. It sees what was published: one value that the writing half replaces
in one step, after the batch is real. Never waits for a writer.

Depends on fileparts, searched_file, proof, layout, schema, row_bounds and batch_statistics.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tierdex.errors import ClosedError, CorruptFileError, UnavailableError
from tierdex.fileparts.memory import address
from tierdex.indexfile import layout
from tierdex.indexfile.chained.proof import Proof, prove
from tierdex.indexfile.row_bounds import RowBounds, RowMeasure
from tierdex.indexfile.schema import TOPIC_DICTIONARY
from tierdex.indexfile.searched_file import SearchedFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tierdex.fileparts.dictionary import Dictionaries
    from tierdex.indexfile.chained.batch_statistics import BatchStatistics
    from tierdex.indexfile.chained.view import ChainedView
    from tierdex.indexfile.header import FileHeader
    from tierdex.indexfile.schema import Schema


class Published(NamedTuple):
    """What readers may see: rows 1 .. rows, and what holds for the items in them."""

    rows: int
    items: int
    min_time: int
    max_time: int


class ChainedReader:
    """The reading half of a chained file. Any number of threads may use it without locks."""

    def __init__(
        self,
        path: Path,
        header: FileHeader,
        statistics: BatchStatistics,
        dictionaries: Dictionaries,
        view: ChainedView,
    ) -> None:
        """Read `view`, of which the rows that `statistics` counts are published."""
        self.path = path
        self.header = header
        self.dictionaries = dictionaries
        self._statistics = statistics
        self._statistics_lock = threading.Lock()  # against end_offsets beside an append
        self._current_view: ChainedView | None = None
        self._view_place = np.zeros(1, np.int64)  # the address of the view's array; 0: no view
        self._look_at(view)
        self._closed = False
        self._proof: Proof | None = None  # of a row_bounds that no walk has used yet
        self._seen = np.zeros(len(Published._fields), np.int64)  # a Published, one i8 a field
        self._published = self._seen.data
        self._publish()

    # -- what the file says of itself --------------------------------------------------------------

    @property
    def uuid(self) -> bytes:
        return self.header.uuid

    @property
    def schema(self) -> Schema:
        return self.header.schema

    @property
    def slot_count(self) -> int:
        return self.header.slot_count

    @property
    def item_capacity(self) -> int:
        return self.header.item_capacity

    @property
    def created_ms(self) -> int:
        return self.header.created_ms

    @property
    def snapshot(self) -> Published:
        """What is visible now, as one consistent value."""
        return Published(*self._published.tolist())

    @property
    def published(self) -> int:
        """Rows that are visible."""
        return self._published[0]

    @property
    def item_count(self) -> int:
        return self._published[1]

    @property
    def min_time(self) -> int:
        """Least entry time, ms; above `max_time` while the file is empty."""
        return self._published[2]

    @property
    def max_time(self) -> int:
        return self._published[3]

    @property
    def topics(self) -> list[str]:
        """Topics of the items, in order of arrival."""
        return list(self.dictionaries.strings(TOPIC_DICTIONARY))

    def end_offsets(self) -> dict[tuple[str, int], int]:
        """Return the greatest end offset (offset + size) of each (topic, queue); empty without."""
        with self._statistics_lock:
            ends = self._statistics.ends()
        strings = self.dictionaries.strings(TOPIC_DICTIONARY)
        return {(strings[topic], queue): end for topic, queue, end in ends}

    # -- queries -----------------------------------------------------------------------------------

    def searched(
        self,
        tags: np.ndarray,
        *,
        hidden: np.ndarray | None = None,
        topics: np.ndarray | None = None,
    ) -> SearchedFile:
        """Return what a `ColumnSearch` knows of this file, as far as it is published now."""
        view, (rows, _, least, greatest) = self._view, self._published.tolist()
        return SearchedFile(
            view, view.damage, view.place, 0, 0, rows, least, greatest, tags, hidden, topics
        )

    @property
    def finder_places(self) -> tuple[int, int]:
        """Return what a `MessageFinder` knows of this file: addresses of its view's place and of what is
        published. They last as long as the file.
        """
        return address(self._view_place), address(self._seen)

    def tag_of(self, topic: str | None, kind: int) -> int:
        """Return the tag that items of (topic, kind) have; TAG_NONE when there are none."""
        if topic is None:
            assert kind == layout.KIND_MESSAGE_ID, "only message IDs are found without a topic"
            return layout.TAG_ANY_MESSAGE_ID
        index = self.dictionaries.index(TOPIC_DICTIONARY, topic)
        if index < 0:
            return layout.TAG_NONE
        return index | (layout.KIND_BIT if kind == layout.KIND_MESSAGE_ID else 0)

    def tags_of(self, topics: Sequence[str | None], kind: int) -> np.ndarray:
        """Return the tags (u4) of several topics; index them by a lookup's topic for `search`."""
        return np.array([self.tag_of(topic, kind) for topic in topics], np.uint32)

    def rows_in_hash_order(self, chunk_items: int = 65_536) -> Iterator[np.ndarray]:
        """Yield all published rows, sorted by hash, newest first among equals; `link` means nothing.

        Afterwards proves that each item came out exactly once. Raises CorruptFileError.
        """
        view, published = self._view, self.published
        proof, self._proof = self._proof, None
        if proof is None or proof.rows != published:
            proof = prove(self.header, self.path, view, published)
        emitted = 0
        walk = view.rows_in_hash_order(chunk_items, published)
        while True:
            try:
                chunk = next(walk)
            except StopIteration as stop:
                if (emitted, stop.value) != (proof.items, proof.fingerprint):
                    raise CorruptFileError(
                        self.path, f"chains hold {emitted} items, batches {proof.items}, or others"
                    ) from None
                return
            emitted += len(chunk)
            yield chunk

    def row_bounds(self) -> RowBounds:
        """Return the bounds of all published rows, verifying every batch. Raises CorruptFileError.

        The next `rows_in_hash_order` of the same rows is held against this proof and needs no other.
        """
        measure = RowMeasure(self.schema)
        rows = self.published
        self._proof = prove(self.header, self.path, self._view, rows, measure)
        return measure.bounds()

    # -- private ---------------------------------------------------------------------------------

    @property
    def _view(self) -> ChainedView:
        """The memory to read. Never an empty one: an absent file must not look like an absent key."""
        view = self._current_view
        if view is not None:
            return view
        if self._closed:
            raise ClosedError(f"{self.path} was closed")
        raise UnavailableError(f"{self.path} is being read again from the device")

    def _look_at(self, view: ChainedView | None) -> None:
        """Read from `view` from now on, or from none."""
        self._view_place[0] = 0 if view is None else view.place
        self._current_view = view

    def _publish(self) -> None:
        """Make everything in the statistics visible, in one step for every Python thread."""
        statistics = self._statistics
        bounds = statistics.time_bounds
        self._seen[:] = (statistics.next_row - 1, statistics.items, *bounds)
