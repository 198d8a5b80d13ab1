"""A chained file's items in memory: what searches read, and all rows in hash order.

A view is the memory that lookups read: slots and rows of one mapping (or private slots), and for a
sealed file the checksums of its blocks and the byte map of those that were verified. It is immutable
but for that map, and safe to share; a file replaces its view as a whole.

Depends on layout, kernels.chain_lookup, kernels.chain_walk, checksum and fileparts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.kernels.checksum import block_checksums
from tierdex.fileparts.layout import BLOCK_BYTES
from tierdex.fileparts.memory import address
from tierdex.indexfile import layout
from tierdex.indexfile.chained.kernels import chain_lookup as k
from tierdex.indexfile.chained.kernels import chain_walk as walk_k

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from tierdex.indexfile.header import FileHeader

_STEPS = 65_536  # items of a long chain that are collected at once
_DISTINCT = 64  # hashes of a long chain that are walked for one by one


class BlockChecksums(NamedTuple):
    """The checksums of the 4 KiB blocks from the slots on, and a map of the verified ones."""

    checksums: np.ndarray  # u4
    verified: np.ndarray  # u1, 0 or 1
    seed: int


class ChainedView:
    """Slots and rows in memory."""

    def __init__(
        self,
        header: FileHeader,
        path: object,
        data: np.ndarray,
        *,
        slots: np.ndarray | None = None,
        blocks: BlockChecksums | None = None,
    ) -> None:
        """Read `data`, the file from byte 0; `slots` (u4) replaces the file's own slots."""
        begin = layout.rows_position(header.slot_count)
        item_bytes = header.schema.item_bytes
        count = min((len(data) - begin) // item_bytes, header.row_capacity)
        assert count >= 0, "data ends before the rows"
        self.path = path
        self.data = data
        self.slots = slots
        self.rows = data[begin : begin + count * item_bytes].view(header.schema.dtype)
        self.dtype = header.schema.dtype
        self.item_bytes = item_bytes
        self.slot_count = header.slot_count
        self._blocks = blocks
        file_slots = data.ctypes.data + layout.HEADER_BYTES
        self.array = np.zeros(k.VIEW_LENGTH, np.int64)
        self.place = address(self.array)  # what kernels take that one key asks
        self.array[k.V_SLOTS] = file_slots if slots is None else slots.ctypes.data
        self.array[k.V_SLOT_COUNT] = header.slot_count
        self.array[k.V_ROWS] = data.ctypes.data + begin
        self.array[k.V_ITEM_BYTES] = item_bytes
        self.array[k.V_ROW_LIMIT] = count
        self.array[k.V_BASE] = file_slots
        if blocks is not None:
            self.array[k.V_CHECKSUMS] = blocks.checksums.ctypes.data
            self.array[k.V_VERIFIED] = blocks.verified.ctypes.data
            self.array[k.V_SEED] = blocks.seed

    def verify_blocks(self) -> list[int]:
        """Verify all blocks of a sealed file again; return the numbers of the bad ones."""
        if self._blocks is None:
            return []
        checksums, verified, seed = self._blocks
        found = np.empty_like(checksums)
        block_checksums(
            int(self.array[k.V_BASE]),
            BLOCK_BYTES,
            len(found),
            np.uint32(seed),
            found.ctypes.data,
        )
        verified[:] = found == checksums
        bad: list[int] = np.flatnonzero(found != checksums).tolist()
        return bad

    def damage(self, answer: int, _: int = 0) -> CorruptFileError:
        """Return the error that a kernel's negative answer stands for."""
        if answer == k.BAD_CHAIN:
            return CorruptFileError(self.path, "a chain links to a row that cannot be")
        return CorruptFileError(self.path, f"checksum of block {k.BAD_BLOCK - answer} differs")

    def _gather(self, numbers: np.ndarray) -> np.ndarray:
        """Return copies of the rows with these numbers (i8)."""
        raw = np.empty(len(numbers) * self.item_bytes, np.uint8)
        k.gather_rows(self.array, address(numbers), len(numbers), address(raw))
        return raw.view(self.dtype)

    # -- all rows ------------------------------------------------------------------------------------

    def rows_in_hash_order(
        self, chunk_items: int, published: int
    ) -> Generator[np.ndarray, None, int]:
        """Yield all rows up to `published`, sorted by hash, newest first among equals.

        Returns (the generator's value) the sum of the fingerprints of what was yielded.
        """
        walk = np.zeros(walk_k.WALK_LENGTH, np.int64)
        walk[walk_k.W_PUBLISHED] = published
        room = max(chunk_items, walk_k.GROUP_ITEMS)
        while walk[walk_k.W_SLOT] < self.slot_count:
            out = np.empty(room, self.dtype)
            written = walk_k.walk_slots(self.array, walk, out.ctypes.data, room)
            if written < 0:
                raise self.damage(written)
            if written:
                yield out[:written]
            if walk[walk_k.W_LONG]:
                yield from self._long_chain(walk, chunk_items, published)
        return int(walk[walk_k.W_FINGERPRINT])

    def _long_chain(
        self, walk: np.ndarray, chunk_items: int, published: int
    ) -> Iterator[np.ndarray]:
        """Yield the sorted rows of slot W_SLOT's chain, which is long: a hot key, or few slots."""
        head = self._slot(int(walk[walk_k.W_SLOT]))
        walk[walk_k.W_SLOT] += 1
        distinct = self._few_hashes(head, published)
        pieces = (
            self._numbers_sorted(head, published)
            if distinct is None
            else self._numbers_by_hash(head, published, distinct)
        )
        for numbers in pieces:
            for first in range(0, len(numbers), chunk_items):
                # Bytes, not fields: numpy leaves out the padding, which the fingerprint covers.
                rows = self._gather(numbers[first : first + chunk_items].astype(np.int64))
                total = walk_k.rows_fingerprint(rows.ctypes.data, self.item_bytes, len(rows))
                walk_k.add_fingerprint(walk, total)
                yield rows

    def _slot(self, slot: int) -> int:
        if self.slots is not None:
            return int(self.slots[slot])
        begin = layout.HEADER_BYTES + 4 * slot
        return int(self.data[begin : begin + 4].view(np.uint32)[0])

    def _pieces(self, row: int, published: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield (row numbers, hashes) of a chain, newest first, piece by piece."""
        while row:
            numbers = np.empty(_STEPS, np.uint32)
            hashes = np.empty(_STEPS, np.uint64)
            count, row = walk_k.collect_chain(
                self.array, row, published, numbers.ctypes.data, hashes.ctypes.data, _STEPS
            )
            if count < 0:
                raise self.damage(count)
            yield numbers[:count], hashes[:count]

    def _few_hashes(self, head: int, published: int) -> np.ndarray | None:
        """Return a chain's distinct hashes, sorted, or None when there are many."""
        distinct = np.empty(0, np.uint64)
        for _, hashes in self._pieces(head, published):
            distinct = np.union1d(distinct, hashes)
            if len(distinct) > _DISTINCT:
                return None
        return distinct

    def _numbers_by_hash(
        self, head: int, published: int, distinct: np.ndarray
    ) -> Iterator[np.ndarray]:
        """Yield row numbers hash by hash, one walk each: memory stays small for a hot key."""
        for value in distinct:
            for numbers, hashes in self._pieces(head, published):
                yield numbers[hashes == value]

    def _numbers_sorted(self, head: int, published: int) -> Iterator[np.ndarray]:
        """Yield all row numbers, sorted in memory: 20 bytes an item of this one chain."""
        pieces = list(self._pieces(head, published))
        numbers = np.concatenate([piece[0] for piece in pieces])
        hashes = np.concatenate([piece[1] for piece in pieces])
        yield numbers[np.argsort(hashes, kind="stable")]
