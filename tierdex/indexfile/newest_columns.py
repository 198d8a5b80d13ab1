"""Columns of the newest entry of many keys, filled file by file, newest file first.

::

    memory = some buffer of newest_bytes(keys.key_count) bytes
    columns = NewestColumns(keys, memory, its address)
    columns.take_from(file, tag, place)      # for each file that may hold keys, until `is_complete`

    memory: times i8 | offsets i8 | hashes u8 | places i4 | sizes u4 | queues i4 | found u1

Row i belongs to key i; rows of keys that no file holds are not set (`found`). Only files of the message
schema can be searched. One thread. Depends on plain_keys, compacted, fileparts, chain_columns, lookup
and work_limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tierdex.fileparts.memory import address
from tierdex.indexfile.chained.kernels import chain_columns as k
from tierdex.indexfile.compacted.file import CompactedFile
from tierdex.indexfile.lookup import DONE, Search
from tierdex.indexfile.plain_keys import NotPlainError
from tierdex.indexfile.work_limit import NO_LIMIT

if TYPE_CHECKING:
    from tierdex.indexfile.chained.reader import ChainedReader
    from tierdex.indexfile.plain_keys import PlainKeys

# Bytes before each column, for one key.
TIMES, OFFSETS, HASHES, PLACES, SIZES, QUEUES, FOUND = 0, 8, 16, 24, 28, 32, 36
_BYTES = 37


def newest_bytes(count: int) -> int:
    """Return the bytes that `count` keys need: their columns, and the arguments of the kernel."""
    return _BYTES * count + 8 * k.COLUMN_ARGUMENTS


class NewestColumns:
    """What was found so far. `places` says from which call of `take_from` a row came."""

    __slots__ = (
        "_arguments",
        "_hashed",
        "_keys",
        "_missing",
        "_most",
        "_place",
        "_wanted",
        "found",
        "memory",
    )  # fmt: skip

    def __init__(
        self,
        keys: PlainKeys,
        memory: Any,
        place: int,
        most_items: int = NO_LIMIT.items,
    ) -> None:
        """Begin with nothing found; `memory` begins at address `place`; `most_items` may be walked."""
        count = keys.key_count
        self._keys = keys
        self._hashed = False
        self._wanted: np.ndarray | None = None  # i8; None: all
        self._missing = count
        self.memory = memory
        self.found = self.column(FOUND, np.uint8)
        self.found.fill(0)
        self._arguments = place + _BYTES * count
        self._place = place
        self._most = most_items

    def _fill_arguments(self, file: ChainedReader, tag: int, number: int) -> None:
        """Set what the next call of the kernel asks for."""
        keys, wanted, place = self._keys, self._wanted, self._place
        count = keys.key_count
        arguments = np.frombuffer(self.memory, np.int64, k.COLUMN_ARGUMENTS, _BYTES * count)
        arguments[:] = (
            place + HASHES * count,
            self._missing,
            0 if wanted is None else address(wanted),
            tag,
            file.published,
            number,
            place + FOUND * count,
            place + PLACES * count,
            place + TIMES * count,
            place + OFFSETS * count,
            place + SIZES * count,
            place + QUEUES * count,
            self._most,
            0 if self._hashed else keys.offsets,
            *keys[1:4],
            *keys[5:8],
        )  # fmt: skip

    @property
    def count(self) -> int:
        """Return how many keys were asked for."""
        return self._keys.key_count

    @property
    def is_complete(self) -> bool:
        """Return whether every key was found."""
        return self._missing == 0

    def column(self, begin: int, dtype: type[np.generic]) -> np.ndarray:
        """Return the column that begins at `begin` (TIMES, OFFSETS ...) bytes a key."""
        return np.frombuffer(self.memory, dtype, self._keys.key_count, begin * self._keys.key_count)

    def hash_keys(self) -> None:
        """Check every key, if no file did yet. Raises NotPlainError."""
        if not self._hashed:
            self._keys.hash_into(self._place + HASHES * self._keys.key_count)
            self._hashed = True

    def take_from(self, file: ChainedReader | CompactedFile, tag: int, place: int) -> None:
        """Fill in what `file` holds of the keys not found yet.

        Raises NotPlainError, CorruptFileError, BudgetExceededError.
        """
        assert file.schema.is_message, "another schema"
        if self._missing < self._keys.key_count:
            self._wanted = np.flatnonzero(self.found == 0)
        if isinstance(file, CompactedFile):
            self.hash_keys()
            self._take_from_compacted(file, tag, place)
            return
        self._fill_arguments(file, tag, place)
        found, walked = file.take_newest(self._arguments)
        if found == k.NOT_PLAIN:
            raise NotPlainError
        self._hashed = True
        self._missing -= found
        self._most -= walked

    def _take_from_compacted(self, file: CompactedFile, tag: int, place: int) -> None:
        hashes = self.column(HASHES, np.uint64)
        if self._wanted is not None:
            hashes = hashes[self._wanted]
        found = file.search(Search.of(hashes, tag, limit=1, most_items=self._most))
        self._most -= found.items
        has_one = found.offsets[1:] > found.offsets[:-1]
        if self._most < 0 or (found.following[~has_one] != DONE).any():
            raise NO_LIMIT.refuse()
        which, rows = np.flatnonzero(has_one), found.rows
        lookup = which if self._wanted is None else self._wanted[which]
        self.found[lookup] = 1
        self.column(TIMES, np.int64)[lookup] = rows["timestamp"]
        self.column(OFFSETS, np.int64)[lookup] = rows["offset"]
        self.column(PLACES, np.int32)[lookup] = place
        self.column(SIZES, np.uint32)[lookup] = rows["size"]
        self.column(QUEUES, np.int32)[lookup] = rows["queue_id"]
        self._missing -= len(lookup)
