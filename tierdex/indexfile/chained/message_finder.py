"""Finds the messages of one name in several chained files, with no step of Python in between.

Most names have one message or none (`ask`); `find` returns the others, page by page. A finder is made once
for a topic and some files, and lasts: a topic's tag never changes. Any number of threads may use it.

Depends on fileparts, single_gets and lookup.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tierdex.fileparts.memory import address, thread_buffer
from tierdex.indexfile.lookup import START, TIME_MAX, TIME_MIN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tierdex.indexfile.chained.reader import ChainedReader


class FoundRows(NamedTuple):
    """Messages, newest first, by column; `file` is the number of each one's file among the finder's.

    The search goes on in file `next_file` (None: nothing is left) at `next_row`.
    """

    file: Sequence[int]
    tag: Sequence[int]
    queue_id: list[int]
    offset: list[int]
    size: list[int]
    timestamp: list[int]
    row: Sequence[int]
    key_hash: int
    next_file: int | None
    next_row: int

    def __len__(self) -> int:
        return len(self.row)


class MessageFinder:
    """The messages of a name in some files.

    `ask(name)` returns (1 + tag, queue, offset, size, timestamp, row number, file) of a name's one message.
    The first number is 0 when there is no such message; below 0, to be asked otherwise: a name of the wrong
    type or size, more messages, a long chain, a file that is damaged or closed.
    """

    __slots__ = ("_arguments", "_count", "_files", "_find", "ask")

    def __init__(
        self, files: Sequence[ChainedReader], topic: str | None, seed: int, most_bytes: int
    ) -> None:
        """Look for keys of `topic`, None: for message IDs, in files that know the topic, newest first.

        `seed` is that of the hashes (i8, its bits), `most_bytes` what a name may have.
        """
        from tierdex.indexfile.chained.kernels import single_gets  # numba loads only when needed

        numbers = [len(files), seed, most_bytes]
        for file in files:
            known = file.finder_arguments(topic)
            assert known is not None, "a file that does not know the topic"
            numbers += known
        self._files = tuple(files)  # they own the memory that is looked at
        self._arguments = np.array(numbers, np.int64)
        self._count = len(files)
        self.ask: Callable[[object], tuple[int, int, int, int, int, int, int]]
        self.ask = partial(single_gets.load(), address(self._arguments))
        self._find: Any = partial(single_gets.load_rows(), address(self._arguments))

    def find(
        self,
        name: object,
        limit: int,
        begin: int = TIME_MIN,
        end: int = TIME_MAX,
        *,
        file: int = 0,
        row: int = START,
    ) -> FoundRows | None:
        """Return at most `limit` messages, none twice; from row `row` of file number `file` on.

        None: to be asked otherwise, see `ask`. Message IDs of any topic are not compared.
        """
        buffer, place = thread_buffer(8 * _COLUMNS * limit)
        count, next_file, next_row, bits = self._find(name, begin, end, file, row, limit, place)
        if count < 0:
            return None
        columns: Any = np.frombuffer(buffer, np.int64, _LISTS * limit).reshape(_LISTS, limit)
        queue_id, offset, size, timestamp = columns[:, :count].tolist()
        # Of these few numbers are read: a copy is cheaper than objects.
        others = memoryview(buffer[8 * _LISTS * limit : 8 * _COLUMNS * limit]).cast("q")
        file_, tag, rows = (others[begin : begin + count] for begin in (0, limit, 2 * limit))
        following = None if next_file == self._count else next_file
        return FoundRows(
            file_, tag, queue_id, offset, size, timestamp, rows, bits & _BITS, following, next_row
        )


_COLUMNS = 7  # see kernels.single_gets
_LISTS = 4  # of them that become lists
_BITS = (1 << 64) - 1
