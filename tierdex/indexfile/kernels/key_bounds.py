"""The bounds of the keys of a batch of lookups in their column, and whether all keys are plain.

A caller's batch is not trusted, but nearly always it is plain: ASCII keys that lie in the column.
`key_column` hashes them apart, `column_search` while it walks.

Depends on fileparts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.intrinsics import load_i32, load_i64
from tierdex.fileparts.kernels.text_scan import is_ascii


@kernel
def key_bound(offsets: int, width: int, number: int) -> Any:
    """Return where key `number` begins; offsets have `width` bytes, 4 or 8."""
    if width == 4:
        return np.int64(load_i32(offsets + 4 * number))
    return load_i64(offsets + 8 * number)


@kernel
def bytes_are_plain(
    offsets: int, width: int, data: int, data_bytes: int, count: int, is_text: bool
) -> bool:
    """Return whether the bytes of all keys lie in the column and are ASCII, or text in any case."""
    first, last = key_bound(offsets, width, 0), key_bound(offsets, width, count)
    if first < 0 or first > last or last > data_bytes:
        return False
    return bool(is_text or is_ascii(data + first, data + last))
