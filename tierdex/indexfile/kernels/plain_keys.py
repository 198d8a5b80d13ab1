"""Hashing the keys of a batch lookup in one go: bounds, lengths, ASCII and hash of each.

A batch of lookups comes from a caller, so nothing about it is believed; but nearly always it is plain:
short ASCII keys of one topic. Then one pass does it all. Depends on hashing, text_scan, intrinsics.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tierdex.indexfile.kernels.compile import kernel
from tierdex.indexfile.kernels.hashing import xxh64
from tierdex.indexfile.kernels.intrinsics import load_i32, load_i64, store_u64
from tierdex.indexfile.kernels.text_scan import is_ascii


@kernel
def hash_plain_keys(
    offsets: int,
    offset_bytes: int,
    data: int,
    data_bytes: int,
    count: int,
    max_bytes: int,
    seed: int,
    out: int,
) -> Any:
    """Write the hashes (u8) of `count` > 0 keys, all seeded with `seed`, to `out`.

    False: some key is not 1 to `max_bytes` bytes of ASCII, or an offset leads outside `data_bytes`.
    """
    if offset_bytes == 4:
        begin = np.int64(load_i32(offsets))
    else:
        begin = load_i64(offsets)
    first = begin
    if first < 0 or first > data_bytes:
        return False
    for i in range(1, count + 1):
        if offset_bytes == 4:
            end = np.int64(load_i32(offsets + 4 * i))
        else:
            end = load_i64(offsets + 8 * i)
        length = end - begin
        if length < 1 or length > max_bytes or end > data_bytes:
            return False
        store_u64(out + 8 * (i - 1), xxh64(data + begin, length, np.uint64(seed)))
        begin = end
    return is_ascii(data + first, data + begin)
