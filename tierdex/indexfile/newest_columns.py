"""Columns of the newest entry of many keys, filled file by file, newest file first.

::

    columns = NewestColumns(hashes)
    columns.take_from(file, tag, place)      # for each file that may hold keys, until `is_complete`

Row i belongs to hash i; rows of keys that no file holds are not set (`found`). Only files of the
message schema can be asked. One thread. Depends on chained_reader, compacted and their kernels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tierdex.indexfile.columns import address
from tierdex.indexfile.compacted import CompactedFile
from tierdex.indexfile.kernels import chain_columns as k
from tierdex.indexfile.schema import MESSAGE_SCHEMA
from tierdex.indexfile.work_limit import NO_LIMIT, WorkLimit

if TYPE_CHECKING:
    from tierdex.indexfile.chained_reader import ChainedReader

_POSITIONS = {
    k.C_OFFSET_POSITION: MESSAGE_SCHEMA.position("offset"),
    k.C_SIZE_POSITION: MESSAGE_SCHEMA.position("size"),
    k.C_QUEUE_POSITION: MESSAGE_SCHEMA.position("queue_id"),
}


class NewestColumns:
    """What was found so far. `places` says from which call of `take_from` a row came."""

    __slots__ = ("_hashes", "_missing", "_wanted", "_words", "found", "long", "short", "walked")

    def __init__(self, hashes: np.ndarray, most_items: int = NO_LIMIT.items) -> None:
        """Begin with nothing found of `hashes` (u8); at most `most_items` may be walked."""
        count = len(hashes)
        self._hashes = hashes
        self._wanted: np.ndarray | None = None  # i8; None: all
        self._missing = count
        self.walked = 0  # items
        self.found = np.zeros(count, np.uint8)
        self.long = np.empty((2, count), np.int64)  # times, offsets
        self.short = np.empty((3, count), np.int32)  # places, sizes (u4), queues
        words = np.zeros(k.COLUMN_WORDS, np.int64)
        long, short = address(self.long), address(self.short)
        words[:] = (
            address(hashes), count, 0, 0, 0, 0, address(self.found),
            short, long, long + 8 * count, short + 4 * count, short + 8 * count,
            *_POSITIONS.values(), most_items,
        )  # fmt: skip
        self._words = words

    @property
    def is_complete(self) -> bool:
        """Say whether every key was found."""
        return self._missing == 0

    def take_from(self, file: ChainedReader | CompactedFile, tag: int, place: int) -> None:
        """Fill in what `file` holds of the keys not found yet.

        Raises CorruptFileError, BudgetExceededError.
        """
        assert file.schema == MESSAGE_SCHEMA, "another schema"
        if self._missing < len(self._hashes):
            self._wanted = np.flatnonzero(self.found == 0)
        if isinstance(file, CompactedFile):
            self._take_from_compacted(file, tag, place)
            return
        words, wanted = self._words, self._wanted
        words[k.C_WANTED] = 0 if wanted is None else address(wanted)
        words[k.C_COUNT] = self._missing
        words[k.C_TAG], words[k.C_PLACE] = tag, place
        found, walked = file.take_newest(words)
        self._missing -= found
        self.walked += walked
        words[k.C_MOST_ITEMS] -= walked

    def _take_from_compacted(self, file: CompactedFile, tag: int, place: int) -> None:
        hashes = self._hashes if self._wanted is None else self._hashes[self._wanted]
        most = WorkLimit(int(self._words[k.C_MOST_ITEMS]))
        offsets, rows = file.find_many(
            hashes, np.full(len(hashes), tag, np.uint32), limit=1, most=most
        )
        which = np.flatnonzero(offsets[1:] - offsets[:-1])
        lookup = which if self._wanted is None else self._wanted[which]
        self.found[lookup] = 1
        self.long[0, lookup], self.long[1, lookup] = rows["timestamp"], rows["offset"]
        self.short[0, lookup], self.short[2, lookup] = place, rows["queue_id"]
        self.short[1].view(np.uint32)[lookup] = rows["size"]
        self._missing -= len(lookup)
        self.walked += len(lookup)
