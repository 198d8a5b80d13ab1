"""The files of one lookup in order, published ones searched a little ahead on other threads.

The caller's own thread searches the file whose turn has come: a handover to another one would cost as much
as a page that is in memory. Each published file before holds at least one entry, or costs nothing: so no
more of them are begun than there are entries still wanted. Files whose filter is in memory and says no are
passed over.

Depends on paging, readers, indexfile, trace, requests and lifecycle.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tierdex.index_service.readers.file_reader import FileMeter, FileSearch
from tierdex.index_service.readers.local_file import query_reader
from tierdex.indexfile.lookup import DONE, START

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor, Future

    from tierdex.index_service.query.paging import Page
    from tierdex.index_service.query.trace import Trace
    from tierdex.index_service.readers.file_reader import Budget, FileRows, QueryReader
    from tierdex.index_service.requests.lookups import Lookups
    from tierdex.lifecycle.table.file_handle import FileHandle

_CHUNK: Final = 4096  # rows that one step takes beyond what is wanted, at most


class SingleLookup(NamedTuple):
    """One lookup that goes alone, from its newest file, its cursor or where it was parked."""

    lookups: Lookups
    number: int
    page: Page
    where: tuple[FileHandle, int] | None

    def place_in(self, handle: FileHandle) -> int | None:
        if self.where is not None and handle is self.where[0]:
            return None if self.where[1] == START else self.where[1]
        return self.page.place_in(handle)


class SingleSearch:
    """The search of one file for one lookup: its first step may be under way on another thread."""

    def __init__(
        self, single: SingleLookup, handle: FileHandle, budget: Budget, started: float
    ) -> None:
        self.single = single
        self.handle = handle
        self.reader: QueryReader = query_reader(handle.reader)
        self.meter = FileMeter(budget)
        self.started = started
        self._place = single.place_in(handle)
        self._first: Future[FileRows] | None = None
        self._room = 16  # rows of the next step, at least: it grows where rows are not returned

    def begin(self, executor: Executor, want: int) -> None:
        """Give the first step to another thread."""
        is_begun = self.single.page.is_begun
        self._first = executor.submit(self._step, want, is_begun=is_begun, executor=executor)

    def cancel(self) -> None:
        if self._first is not None:
            self._first.cancel()

    def next(self, want: int, *, is_begun: bool) -> FileRows | None:
        """Return the next rows; None when the file has no more."""
        if self._place == DONE:
            return None
        if self._first is not None:
            answer, self._first = self._first.result(), None
        else:
            answer = self._step(want, is_begun=is_begun)
        following = answer.found.following
        self._place = int(following[0]) if len(following) else DONE
        return answer

    def _step(self, want: int, *, is_begun: bool, executor: Executor | None = None) -> FileRows:
        left = self.meter.budget.work_limit()
        # The entry of the cursor itself is passed over, and what lies before it in a walk.
        limit = min(max(want + (not is_begun), self._room), left.rows + (not is_begun))
        self._room = min(4 * self._room, _CHUNK)
        place = None if self._place is None else np.array([self._place])
        search = FileSearch(
            self.single.lookups,
            np.array([self.single.number]),
            np.array([limit]),
            place,
            left.items,
        )
        return self.reader.search(search, self.meter, executor)


class SingleSearches:
    """The files of one lookup in order, published ones begun a little ahead."""

    def __init__(
        self,
        candidates: Iterator[FileHandle],
        single: SingleLookup,
        budget: Budget,
        executor: Executor,
        look_ahead: int,
        trace: Trace,
    ) -> None:
        self._waiting = candidates
        self._single = single
        self._key_hash = int(single.lookups.hashes[single.number])
        self._budget = budget
        self._executor = executor
        self._look_ahead = look_ahead
        self._trace = trace
        self.under_way: deque[SingleSearch] = deque()  # begun, and not returned by `next`

    def next(self, want: int) -> SingleSearch | None:
        """Return the next file's search, beginning at most `want` files ahead."""
        while len(self.under_way) < max(1, min(self._look_ahead, want)):
            handle = next(self._waiting, None)
            if handle is None:
                break
            search = SingleSearch(self._single, handle, self._budget, self._trace.now())
            if search.reader.excludes(self._key_hash) and not self._single.page.begins_in(handle):
                search.meter.filtered = True
                self._trace.note(search, "pruned_by_filter", 0, 0)
                continue
            if self.under_way and not search.reader.is_local:
                search.begin(self._executor, want)
            self.under_way.append(search)
            if self.under_way[0].reader.is_local:
                break  # searched at once: nothing to look ahead for
        return self.under_way.popleft() if self.under_way else None

    def cancel(self) -> None:
        for search in self.under_way:
            search.cancel()
