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
def key_bound(offsets: int, width: int, number: int) -> Any:
    """Return where key `number` begins; offsets have `width` bytes, 4 or 8."""
    if width == 4:
        return np.int64(load_i32(offsets + 4 * number))
    return load_i64(offsets + 8 * number)


@kernel
def bytes_are_plain(
    offsets: int, width: int, data: int, data_bytes: int, count: int, is_text: bool
) -> bool:
    """Say whether the bytes of all keys lie in the column and are ASCII, or text in any case."""
    first, last = key_bound(offsets, width, 0), key_bound(offsets, width, count)
    if first < 0 or first > last or last > data_bytes:
        return False
    return bool(is_text or is_ascii(data + first, data + last))


@kernel
def hash_plain_keys(
    offsets: int,
    width: int,
    data: int,
    data_bytes: int,
    count: int,
    most_bytes: int,
    seed: int,
    is_text: bool,
    out: int,
) -> bool:
    """Write the hashes (u8) of `count` > 0 keys, all seeded with `seed`, to `out`.

    False: some key does not have 1 to `most_bytes` bytes, or see `bytes_are_plain`.
    """
    if not bytes_are_plain(offsets, width, data, data_bytes, count, is_text):
        return False
    begin = key_bound(offsets, width, 0)
    for i in range(count):
        end = key_bound(offsets, width, i + 1)
        length = end - begin
        if length < 1 or length > most_bytes or end > data_bytes:
            return False
        store_u64(out + 8 * i, xxh64(data + begin, length, np.uint64(seed)))
        begin = end
    return True
