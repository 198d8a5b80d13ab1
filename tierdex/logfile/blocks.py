"""The bytes of a file that have a checksum a block, and what was verified of them.

Depends on fileparts and kernels.blocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.checksums import part_seed
from tierdex.fileparts.layout import BLOCK_BYTES, Part
from tierdex.fileparts.memory import address
from tierdex.logfile.kernels import blocks as k

if TYPE_CHECKING:
    from typing_extensions import Buffer


def block_sums(
    pieces: list[np.ndarray], uuid: bytes, part: Part = Part.BLOCK_CHECKSUMS
) -> np.ndarray:
    """Return the checksum (u4) of each block of the pieces (u1), whole blocks each but the last."""
    sums = []
    first = 0
    for piece in pieces:
        out = np.empty(-(-len(piece) // BLOCK_BYTES), np.uint32)
        k.block_sums(
            address(piece), len(piece), first, np.uint32(part_seed(uuid, part)), address(out)
        )
        first += len(out)
        sums.append(out)
    return np.concatenate(sums) if sums else np.empty(0, np.uint32)


class CheckedBlocks:
    """A range of bytes in memory whose blocks are verified when first used.

    Borrows its memory. Safe to share between threads.
    """

    def __init__(
        self, data: np.ndarray, sums: Buffer, *, uuid: bytes, path: object,
        part: Part = Part.BLOCK_CHECKSUMS,
    ) -> None:  # fmt: skip
        """Take `data` (u1) and its checksums. Raises CorruptFileError when they do not fit it."""
        self.data = data
        self.path = path
        blocks = -(-len(data) // BLOCK_BYTES)
        if memoryview(sums).nbytes != np.dtype(np.uint32).itemsize * blocks:
            raise CorruptFileError(path, f"{memoryview(sums).nbytes} bytes of block checksums")
        self._sums = np.frombuffer(memoryview(sums), np.uint32)
        self._verified = np.zeros(blocks, np.uint8)
        words = self.words = np.zeros(k.RANGE_WORDS, np.int64)
        words[k.R_ADDRESS], words[k.R_LENGTH] = address(data), len(data)
        words[k.R_SUMS], words[k.R_VERIFIED] = address(self._sums), address(self._verified)
        words[k.R_SEED] = part_seed(uuid, part)
        words[k.R_SELF] = self._place = address(words)

    def damaged(self) -> list[int]:
        """Return the numbers of all blocks whose checksum differs, reading each now."""
        self._verified[:] = 0
        found = []
        for block in range(len(self._verified)):
            begin = block * BLOCK_BYTES
            if k.verify(self._place, begin, min(begin + BLOCK_BYTES, len(self.data))) != k.SOUND:
                found.append(block)
        return found

    def verify(self, begin: int, end: int) -> None:
        """Verify the blocks of [begin, end). Raises CorruptFileError."""
        damaged = int(k.verify(self._place, begin, end))
        if damaged != k.SOUND:
            raise self.damage(damaged)

    def damage(self, block: int) -> CorruptFileError:
        return CorruptFileError(self.path, f"checksum of block {block} differs")
