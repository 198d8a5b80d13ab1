"""What a search asks of an index file, whatever its form, and what it returns.

::

    search(Search) -> Found      ChainedReader, CompactedFile; a file in a store through its pages

For each lookup a search returns the matching rows, newest arrival first, at most `limits[i]` of them, and
where it stopped. A *place* is a number of the form's own: a row number in a chained file, page and row in
a compacted one. The row at a place is the first that a search from there returns; a place that a file
cannot have returns nothing. So a search that was cut goes on where it stopped, and so does a page of a
query.

A lookup looks at no more than about `most_items` items before it is cut: keys that were chosen to
collide make long chains, and must not cost the other lookups their answer.

Depends on schema and numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from tierdex.indexfile.schema import join_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

TIME_MIN = -(1 << 63)
TIME_MAX = (1 << 63) - 1

START: Final = -1
"""The place of the newest row that a lookup may match."""
DONE: Final = -2
"""Where a search stopped that left nothing behind."""

NO_LIMIT: Final = 1 << 62
_MOST_ROOM: Final = 1 << 16


class Lookup(NamedTuple):
    """What to look for. `topic` is None for a message ID, which is found under every topic."""

    key_hash: int
    kind: int
    topic: str | None


class Search(NamedTuple):
    """Lookups in one file, as contiguous columns of n elements. Times are inclusive ms."""

    hashes: np.ndarray  # u8
    tags: np.ndarray  # u4, see `tag_of` of the file
    begin: np.ndarray  # i8
    end: np.ndarray  # i8
    limits: np.ndarray  # i8, above 0: rows wanted
    places: np.ndarray | None = None  # i8: where to begin; None: START for all
    most_items: int = NO_LIMIT  # that each lookup may look at

    @classmethod
    def of(
        cls,
        hashes: Any,
        tags: Any,
        *,
        begin: Any = TIME_MIN,
        end: Any = TIME_MAX,
        limit: Any = NO_LIMIT,
        places: Any = None,
        most_items: int = NO_LIMIT,
    ) -> Search:
        """Return a search of columns, or of one value for all lookups."""
        count = np.size(hashes)

        def column(values: Any, dtype: Any) -> np.ndarray:
            return np.ascontiguousarray(np.broadcast_to(np.asarray(values, dtype), count))

        return cls(
            column(hashes, np.uint64),
            column(tags, np.uint32),
            column(begin, np.int64),
            column(end, np.int64),
            column(limit, np.int64),
            None if places is None else column(places, np.int64),
            most_items,
        )

    @property
    def room(self) -> int:
        """Return the rows to make room for: most lookups have one, a single one may have all it wants."""
        count = len(self.hashes)
        return min(int(self.limits[0]), _MOST_ROOM) if count == 1 else count + count // 4 + 16

    def taken(self, which: Any) -> Search:
        """Return some of the lookups, by a slice, by number or by mask."""
        return Search(
            self.hashes[which],
            self.tags[which],
            self.begin[which],
            self.end[which],
            self.limits[which],
            None if self.places is None else self.places[which],
            self.most_items,
        )


class Few(NamedTuple):
    """What one lookup found in one step: its rows as tuples in the order of the dtype, newest first."""

    rows: list[tuple[int, ...]]
    places: bytes  # i8, one a row
    following: int  # the place where the search goes on, or DONE


NOTHING: Final = Few([], b"", DONE)
NOT_SEARCHED: Final = Few([], b"", START)


class Found(NamedTuple):
    """Lookup i has the rows `rows[offsets[i] : offsets[i + 1]]`, newest arrival first.

    Rows are copies in the schema's item dtype. `following[i]` is the place where the search of lookup i
    goes on, or DONE.
    """

    offsets: np.ndarray  # i8[n + 1]
    rows: np.ndarray
    places: np.ndarray  # i8, one a row
    following: np.ndarray  # i8[n]
    items: int  # that were looked at

    @classmethod
    def nothing(cls, count: int, dtype: np.dtype) -> Found:
        """Return what `count` lookups find in a file that cannot hold them."""
        none = np.empty(0, np.int64)
        return cls(np.zeros(count + 1, np.int64), np.empty(0, dtype), none, np.full(count, DONE), 0)

    @classmethod
    def joined(cls, pieces: Sequence[Found]) -> Found:
        """Return what several searches found, of lookups that follow each other, as one."""
        if len(pieces) == 1:
            return pieces[0]
        sizes = np.concatenate([np.diff(found.offsets) for found in pieces])
        return cls(
            np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]),
            join_rows([found.rows for found in pieces]),
            np.concatenate([found.places for found in pieces]),
            np.concatenate([found.following for found in pieces]),
            sum(found.items for found in pieces),
        )
