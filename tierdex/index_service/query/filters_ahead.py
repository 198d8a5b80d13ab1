"""The files of a batch in order; filters that are not here are fetched a few files at a time, side by side.

::

    first cold file     alone: it may answer everything
    the next ones       2, 4 .. `look_ahead` at once, as long as lookups are left

A file's filter comes with its sidecar, or with hash groups of it. Whether a later file is needed is known
when those before it were searched. So the number of files that are fetched ahead doubles with each round
that left lookups unanswered: a batch fetches no more than it needs where the first file answers, and at most
twice as much otherwise. What was fetched is kept, and is charged to the batch that uses it.

Depends on readers, indexfile, lifecycle and errors.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from tierdex.errors import CorruptFileError
from tierdex.index_service.readers.file_reader import Budget, FileMeter
from tierdex.index_service.readers.published_file import PublishedFile
from tierdex.indexfile.work_limit import NO_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor

    import numpy as np

    from tierdex.lifecycle.table.file_handle import FileHandle

_PASSED: Final = 4  # files that are looked at for each one that may be fetched ahead


class _Fetch:
    """The filter of one file for some hashes, which another thread fetches."""

    def __init__(self, reader: PublishedFile, hashes: np.ndarray, executor: Executor) -> None:
        self._meter = FileMeter(Budget(requests=NO_LIMIT.items, items=NO_LIMIT.items))
        self._task: Any = executor.submit(reader.fetch_filter, hashes, self._meter)

    def wait(self, meter: FileMeter) -> None:
        """Wait, and charge what it took. Raises what the store raised."""
        try:
            with suppress(CorruptFileError):  # the search fetches it anew, once
                self._task.result()
        finally:
            meter.take_over(self._meter)

    def cancel(self) -> None:
        self._task.cancel()


class FiltersAhead:
    """The files that a batch may need, newest first. One thread; others fetch."""

    def __init__(
        self,
        candidates: Iterator[FileHandle],
        hashes_of: Callable[[FileHandle], np.ndarray],
        executor: Executor,
        most: int,
    ) -> None:
        """Fetch from at most `most` files at once; `hashes_of` says what is wanted of one."""
        self._candidates = candidates
        self._hashes_of = hashes_of
        self._executor = executor
        self._most = most
        self._width = 1
        self._waiting: deque[FileHandle] = deque()
        self._fetching: dict[bytes, _Fetch] = {}  # by the file's uuid

    def next(self) -> FileHandle | None:
        """Return the next file; begin to fetch its filter, and those of some behind it."""
        handle = self._waiting.popleft() if self._waiting else next(self._candidates, None)
        if handle is not None and handle.uuid not in self._fetching and self._is_cold(handle):
            self._fetch_from(handle)
        return handle

    def more(self, fits: Callable[[FileHandle], bool], most: int) -> list[FileHandle]:
        """Return the files that follow, as long as they fit, at most so many; nothing is fetched for them."""
        found: list[FileHandle] = []
        while len(found) < most:
            if not self._waiting:
                handle = next(self._candidates, None)
                if handle is None:
                    break
                self._waiting.append(handle)
            if not fits(self._waiting[0]):
                break
            found.append(self._waiting.popleft())
        return found

    def _is_cold(self, handle: FileHandle) -> bool:
        if not isinstance(handle.reader, PublishedFile):
            return False
        hashes = self._hashes_of(handle)
        return len(hashes) > 0 and handle.reader.needs_fetch(hashes)

    def _fetch_from(self, first: FileHandle) -> None:
        width, self._width = self._width, min(2 * self._width, self._most)
        if width == 1:
            return  # its search fetches it
        cold = [first]
        for number in range(_PASSED * width):
            if len(cold) == width:
                break
            if number == len(self._waiting):
                handle = next(self._candidates, None)
                if handle is None:
                    break
                self._waiting.append(handle)
            handle = self._waiting[number]
            if handle.uuid not in self._fetching and self._is_cold(handle):
                cold.append(handle)
        if len(cold) > 1:
            self._fetching |= {
                each.uuid: _Fetch(each.reader, self._hashes_of(each), self._executor)
                for each in cold
            }

    def wait_for(self, handle: FileHandle, meter: FileMeter) -> None:
        """Wait for a filter that is being fetched, and charge it. Raises what the store raised."""
        fetch = self._fetching.pop(handle.uuid, None)
        if fetch is not None:
            fetch.wait(meter)

    def cancel(self) -> None:
        """Begin no more fetches."""
        for fetch in self._fetching.values():
            fetch.cancel()
