"""The keys of one topic as they lie in a column: what batch lookups hash on their way.

Nothing about a caller's column is believed; but nearly always it is plain: keys of 1 to a few dozen
bytes of ASCII, all of one topic. Then one kernel hashes and checks them, and no Python object a key
is made. Whatever else it is, is found here and left to the caller.

Depends on fileparts and key_column.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tierdex.fileparts.memory import address
from tierdex.indexfile.kernels.key_column import hash_key_column


class NotPlainError(Exception):
    """Some key is empty, too long, not surely UTF-8, or lies outside the column's bytes."""


class PlainKeys(NamedTuple):
    """`key_count` > 0 strings in Arrow's layout, by address.

    `owner` keeps the memory alive. `is_text` says that the bytes are known to be UTF-8; else ASCII is
    asked for.
    """

    offsets: int  # address of the first key's offset
    width: int  # bytes an offset, 4 or 8
    data: int
    data_bytes: int
    key_count: int
    most_bytes: int  # of a key
    seed: int  # the topic's, its bits as i8
    is_text: bool
    owner: object

    def hash_into(self, out: int) -> None:
        """Write the hashes (u8) to the address `out`. Raises NotPlainError."""
        if not hash_key_column(*self[:8], out):
            raise NotPlainError

    def hashes(self) -> np.ndarray:
        """Return the hashes (u8). Raises NotPlainError."""
        hashes = np.empty(self.key_count, np.uint64)
        self.hash_into(address(hashes))
        return hashes
