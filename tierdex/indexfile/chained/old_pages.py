"""The pages that an earlier process left in the page cache: written again, so that a sync means something.

After a failed sync the kernel may mark pages clean that the device never got. The process that met the
failure writes the file anew; the next process, after a close or a kill, cannot know of it: it reads the
right bytes from the cache, its own sync finds nothing to write and succeeds, and a power cut takes what
was acknowledged. So nothing is trusted to be on the device because an earlier process wrote it: every
byte that recovery goes on with is written over itself, and the next sync covers it.

The bytes stay the same, so a crash or a reader in between sees no difference. Depends on layout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tierdex.indexfile import layout

if TYPE_CHECKING:
    from tierdex.filesystem import OpenFile
    from tierdex.indexfile.header import FileHeader

_PIECE_BYTES = 1 << 20


def write_recovered(file: OpenFile, header: FileHeader, slots: np.ndarray, end: int) -> None:
    """Write the header and the rows up to `end` again, and between them new `slots`. Raises OSError."""
    file.reserve(0, end)  # a copied file may have holes where its writer had reserved blocks
    _write_again(file, 0, layout.HEADER_BYTES)
    file.write_at(layout.HEADER_BYTES, slots.view(np.uint8).data)
    _write_again(file, layout.rows_position(header.slot_count), end)


def cut_behind(file: OpenFile, header: FileHeader, end: int) -> None:
    """Zero the record behind `end`, durably: a batch that was cut off verifies, and would be found again.

    Durable before anything is appended: the log whose messages it names gives their offsets anew.
    """
    length = min(layout.BATCH_RECORD_BYTES, header.full_length - end)
    if length and file.read_at(end, length).strip(b"\0"):
        file.reserve(end, length)
        file.write_at(end, bytes(length))
        file.sync()


def _write_again(file: OpenFile, begin: int, end: int) -> None:
    for position in range(begin, end, _PIECE_BYTES):
        file.write_at(position, file.read_at(position, min(end - position, _PIECE_BYTES)))
