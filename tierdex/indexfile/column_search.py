"""Searches local files of one schema for many lookups at once: the newest rows of each, none twice.

::

    search = ColumnSearch(files, Asked.of(...), most_items=...)
    search.run()
    search.rows, search.numbers ...     in the order of the files; `order()` brings lookups together
    search.columns()                    of messages, lookup by lookup

Of a search for one row of each lookup there are columns alone.

Files are chained or compacted, newest first. One thread. Depends on fileparts, kernels.column_search,
kernels.lookup_states, chained, lookup and searched_file.
"""

from __future__ import annotations

from array import array
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tierdex.fileparts.memory import address
from tierdex.indexfile.kernels import column_search
from tierdex.indexfile.kernels import lookup_states as k
from tierdex.indexfile.lookup import DONE, START, TIME_MAX, TIME_MIN, Found

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tierdex.indexfile.chained.reader import ChainedReader
    from tierdex.indexfile.lookup import Search
    from tierdex.indexfile.searched_file import SearchedFile

_MOST_ROOM: Final = 1 << 16
_NUMBERS: Final = 4  # of each row: its lookup, its file, its place, the row before it
COLUMN_BYTES: Final = 36  # of a row, see kernels.lookup_states.message_columns


class Asked(NamedTuple):
    """Lookups as columns. None: one code (i4) for all, any time; one row of each, which names its topic."""

    hashes: np.ndarray  # u8
    codes: np.ndarray | None = None
    begin: np.ndarray | None = None  # i8, as all that follow
    end: np.ndarray | None = None
    limits: np.ndarray | None = None

    @property
    def room(self) -> int:
        """Return the rows to make room for: most lookups have one, a single one may have all it wants."""
        count = len(self.hashes)
        if self.limits is None:
            return count
        return min(int(self.limits[0]), _MOST_ROOM) if count == 1 else count + count // 4 + 16


class ColumnSearch:
    """What was found so far, and where each lookup goes on."""

    __slots__ = (
        "_arguments",
        "_asked",
        "_kept",
        "_memory",
        "_most_items",
        "_newest",
        "_place",
        "_rest",
        "_room",
        "_state",
        "files",
        "item_bytes",
    )

    def __init__(
        self,
        files: Iterable[SearchedFile],
        asked: Asked,
        *,
        item_bytes: int,
        is_message: bool,
        most_items: int,
    ) -> None:
        """Look at no more than `most_items` for a lookup in one file: then it is cut.

        The first of the files is taken at once, and the others when it does not tell everything.
        """
        hashes, limits = asked.hashes, asked.limits
        count = len(hashes)
        self._rest, self._most_items = iter(files), most_items
        self.files: list[SearchedFile] = []
        self.item_bytes, self._asked, self._room = item_bytes, asked, 0
        if limits is None:
            self._newest = np.empty((COLUMN_BYTES + 1) * count, np.uint8)
            states = address(self._newest) + COLUMN_BYTES * count
        else:
            self._state = np.empty((count, k.STATES), np.int64)
            states = address(self._state)
        self._kept: list[np.ndarray] = []
        columns: tuple[int, ...] = (address(hashes), 0, 0, 0, 0)
        if limits is not None:
            columns = tuple(0 if one is None else address(one) for one in asked)
        self._arguments = array(
            "q",
            (
                count, *columns, 0, most_items, is_message, states, 0, 0, 0, 0, 0, item_bytes,
                0, 0, 0, 0, 0, 0, 0, 0, 0, address(self._newest) if limits is None else 0,
            ),
        )  # fmt: skip
        self._take_files(1)
        if limits is not None:
            self._make_room(asked.room)

    def _take_files(self, most: int | None = None) -> bool:
        """Take the next files, all of them or some; say whether there were any."""
        arguments, before = self._arguments, len(self.files)
        for file in islice(self._rest, most):
            self.files.append(file)
            arguments.extend(_numbers_of(file, self._most_items))
            if file.pages and not arguments[k.L_SCRATCH]:
                self._prepare_for_pages()
        self._place = arguments.buffer_info()[0]
        arguments[k.L_FILES] = self._place + 8 * k.L_LENGTH
        arguments[k.L_FILE], arguments[k.L_FILE_COUNT] = before, len(self.files)
        return len(self.files) > before

    def _prepare_for_pages(self) -> None:
        """Make what only compacted files need: columns of the lookups, sorted by hash."""
        asked = self._asked
        count = len(asked.hashes)
        self._keep(k.L_SCRATCH, np.empty(column_search.SCRATCH * count + 1, np.int64))
        if asked.limits is None:
            self._make_room(count)  # the rows of one file, on their way to the columns
        elif count > 1:
            self._keep(k.L_ORDER, np.argsort(asked.hashes, kind="stable"))

    def _keep(self, place: int, column: np.ndarray) -> None:
        self._kept.append(column)
        self._arguments[place] = address(column)

    def _make_room(self, room: int) -> None:
        """Make room for so many rows, and their numbers; keep those that were found."""
        row_bytes = self.item_bytes + 8 * _NUMBERS
        memory = np.empty(row_bytes * room, np.uint8)
        if self._room:
            for known, larger in zip(
                (self.rows, *self._columns()), self._split(memory, room), strict=True
            ):
                larger[: len(known)] = known
        self._memory, self._room = memory, room
        begin = address(memory)
        places = [begin + (self.item_bytes + 8 * n) * room for n in range(_NUMBERS)]
        self._arguments[k.L_ROOM] = room
        self._arguments[k.L_ROWS : k.L_BEFORE + 1] = array("q", (begin, *places))

    def _split(self, memory: np.ndarray, room: int) -> list[np.ndarray]:
        """Return the bytes of rows, and their columns (i8)."""
        behind = self.item_bytes * room
        columns = np.frombuffer(memory, np.int64, _NUMBERS * room, behind).reshape(_NUMBERS, room)
        return [memory[:behind], *columns]

    def begin_at(self, places: np.ndarray) -> None:
        """Let each lookup begin at its place (i8) in the newest file."""
        self._state[:] = 0, 0, 0, -1, TIME_MAX
        self._state[:, 1] = places
        self._arguments[k.L_IS_BEGUN] = 1

    def run(self) -> None:
        """Search until each lookup has enough, is cut, or no file is left.

        Raises CorruptFileError.
        """
        while True:
            status, what, number = column_search.search_files(self._place)
            if status == column_search.FINISHED:
                if self.has_enough or not self._take_files():
                    return
                continue
            if status < 0:
                raise self.files[number].damage(status, what)
            self._make_room(2 * self._room)

    # -- what was found ----------------------------------------------------------------------------------

    @property
    def row_count(self) -> int:
        return self._arguments[k.L_FOUND]

    @property
    def rows(self) -> np.ndarray:
        """The bytes of the rows, those of the newest file first."""
        return self._memory[: self.item_bytes * self.row_count]

    @property
    def numbers(self) -> np.ndarray:
        """Of each row its lookup (i8)."""
        return self._columns()[0]

    @property
    def sources(self) -> np.ndarray:
        """Of each row its file (i8)."""
        return self._columns()[1]

    @property
    def places(self) -> np.ndarray:
        """Of each row its place in the file (i8)."""
        return self._columns()[2]

    def _columns(self) -> list[np.ndarray]:
        count = self.row_count
        return [column[:count] for column in self._split(self._memory, self._room)[1:]]

    def order(self) -> np.ndarray:
        """Return the rows' numbers by lookup, newest first within one (i8)."""
        order = np.empty(self.row_count, np.int64)
        k.order_rows(self._place, address(order))
        return order

    @property
    def has_one_each(self) -> bool:
        """Return whether one row of each lookup was wanted, and found."""
        return self._asked.limits is None and self.row_count == len(self._asked.hashes)

    def columns(self) -> np.ndarray:
        """Return what was found in files of messages (bytes): times i8, offsets i8, lookups i8, sizes u4,
        queues i4, files i4, in the order of `order`.

        Where it `has_one_each`, the lookups are not written.
        """
        count = self.row_count
        if self.has_one_each:
            return self._newest[: COLUMN_BYTES * count]
        out = np.empty(COLUMN_BYTES * count, np.uint8)
        k.message_columns(self._place, address(out))
        return out

    # -- of each lookup ----------------------------------------------------------------------------------

    @property
    def items(self) -> int:
        """Return how many items were looked at."""
        return self._arguments[k.L_ITEMS]

    @property
    def has_cut(self) -> bool:
        """Return whether a lookup was cut."""
        return bool(self._arguments[k.L_CUTS])

    @property
    def taken(self) -> np.ndarray:
        """Return how many rows each lookup has (i8)."""
        return self._state[:, 2]

    @property
    def has_enough(self) -> bool:
        """Return whether every lookup has all that it wants."""
        limits = self._asked.limits
        if limits is None:
            return self.has_one_each
        return bool((self.taken >= limits).all())

    def stopped(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return which lookups (b1) were cut or have enough, and the file and place where each goes on.

        A place is START where a file begins. The file behind the last one stands for nothing.
        """
        files, places = self._state[:, 0], self._state[:, 1]
        full = self.taken >= self._asked.limits
        return full | (files >= k.CUT), files & (k.CUT - 1), places


def _numbers_of(file: SearchedFile, most_items: int) -> tuple[int, ...]:
    """Return what the kernel knows of a file, see its C_*."""
    _, _, chains, pages, per_page, rows, least, greatest, tags, hidden, topics = file
    return (
        chains, pages, rows, least, greatest, address(tags), 0 if hidden is None else address(hidden),
        0 if topics is None else address(topics), most_items // per_page if per_page else 0,
    )  # fmt: skip


def search_file(file: ChainedReader, wanted: Search) -> Found:
    """Return the newest matching rows of each lookup in one chained file; a place is a row number.

    Hash, kind, topic and times are compared. Sees what is published when it begins. Raises
    CorruptFileError.
    """
    dtype = file.schema.dtype
    searched = file.searched(wanted.tags)._replace(least_time=TIME_MIN, greatest_time=TIME_MAX)
    count = len(wanted.hashes)
    codes = np.arange(count, dtype=np.int32)
    search = ColumnSearch(
        [searched], Asked(wanted.hashes, codes, wanted.begin, wanted.end, wanted.limits),
        item_bytes=dtype.itemsize, is_message=False, most_items=wanted.most_items,
    )  # fmt: skip
    if wanted.places is not None:
        search.begin_at(wanted.places)
    search.run()
    order, (_, files, following) = search.order(), search.stopped()
    return Found(
        np.concatenate([np.zeros(1, np.int64), np.cumsum(search.taken)]),
        search.rows.reshape(-1, dtype.itemsize)[order].reshape(-1).view(dtype),
        search.places[order],
        np.where((files == 0) & (following != START), following, DONE),
        search.items,
    )
