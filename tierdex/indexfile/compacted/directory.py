"""The sparse directory of a compacted file: first hash, place and time bounds of every page.

It stays in its bytes: kernels search it where it lies, and its blocks of 4096 bytes are verified when
first used. A closing entry ends the last page. Depends on layout and checksums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.checksums import checksum, unit_seed
from tierdex.fileparts.layout import Part
from tierdex.indexfile import layout

if TYPE_CHECKING:
    from typing_extensions import Buffer

_BLOCK = layout.DIRECTORY_BLOCK_BYTES


def directory_checksums(entries: np.ndarray, uuid: bytes, *, first_block: int = 0) -> np.ndarray:
    """Return the CRC32C (u4) of each block of the directory's entries, which begin with `first_block`."""
    data = entries.view(np.uint8).reshape(-1)
    starts = range(0, len(data), _BLOCK)
    sums = [
        checksum(data[start : start + _BLOCK], unit_seed(uuid, Part.DIRECTORY, number))
        for number, start in enumerate(starts, first_block)
    ]
    return np.array(sums, np.uint32)


class Directory:
    """The entries of a file's pages, `entries[page_count]` being the closing one.

    Borrows the parts' bytes. `verified` is the byte map of blocks that were verified.
    """

    def __init__(self, data: Buffer, checksums: Buffer, *, page_count: int, path: object) -> None:
        """Open a directory. Raises CorruptFileError when its size is not that of the pages."""
        size = (page_count + 1) * layout.DIRECTORY_ENTRY_BYTES
        blocks = -(-size // _BLOCK)
        if memoryview(data).nbytes != size or memoryview(checksums).nbytes != 4 * blocks:
            raise CorruptFileError(path, f"directory does not fit {page_count} pages")
        self.entries = np.frombuffer(memoryview(data), layout.DIRECTORY_ENTRY)
        self.checksums = np.frombuffer(memoryview(checksums), "<u4")
        self.verified = np.zeros(blocks, np.uint8)
        self.page_count = page_count

    def damaged_blocks(self, uuid: bytes) -> list[int]:
        """Return the numbers of all blocks whose checksum differs, reading each now."""
        found = directory_checksums(self.entries, uuid)
        return [int(number) for number in np.flatnonzero(found != self.checksums)]
