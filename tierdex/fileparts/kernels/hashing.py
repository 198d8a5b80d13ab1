"""XXH64 over strings of a column, each seeded with the hash of its topic.

`xxh64(address, length, seed)` equals the xxhash package's `xxh64_intdigest` for every length.
`hash_strings` fills an array for a whole column; `string_hash` is the step that inserts share.

A column's strings lie at `data`, their bounds in an array of 4 or 8 byte offsets; `indices` (i8, or
0 for none) says which string a row has (Arrow's dictionary arrays); `topic_index` (i4, or 0 when all
rows have topic 0) chooses the seed. Offsets were checked before. Depends on intrinsics.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.intrinsics import (
    load_i32,
    load_i64,
    load_u8,
    load_u32,
    load_u64,
    store_u64,
)

_PRIME_1 = np.uint64(0x9E3779B185EBCA87)
_PRIME_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_3 = np.uint64(0x165667B19E3779F9)
_PRIME_4 = np.uint64(0x85EBCA77C2B2AE63)
_PRIME_5 = np.uint64(0x27D4EB2F165667C5)
_LANE = 8  # bytes of a stripe that each of the four states takes


@kernel
def _rotate(value: Any, bits: Any) -> Any:
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


@kernel
def _round(lane: Any, word: Any) -> Any:
    return _rotate(lane + word * _PRIME_2, 31) * _PRIME_1


@kernel
def _merge(state: Any, lane: Any) -> Any:
    return (state ^ _round(np.uint64(0), lane)) * _PRIME_1 + _PRIME_4


@kernel
def _stripes(address: int, length: int, seed: Any) -> Any:
    """Return the state after all whole stripes of 32 bytes; `length` is at least 32."""
    lane_1 = seed + _PRIME_1 + _PRIME_2
    lane_2 = seed + _PRIME_2
    lane_3 = seed
    lane_4 = seed - _PRIME_1
    position = np.int64(0)
    while position + 32 <= length:
        lane_1 = _round(lane_1, load_u64(address + position))
        lane_2 = _round(lane_2, load_u64(address + position + 1 * _LANE))
        lane_3 = _round(lane_3, load_u64(address + position + 2 * _LANE))
        lane_4 = _round(lane_4, load_u64(address + position + 3 * _LANE))
        position += 32
    state = _rotate(lane_1, 1) + _rotate(lane_2, 7) + _rotate(lane_3, 12) + _rotate(lane_4, 18)
    return _merge(_merge(_merge(_merge(state, lane_1), lane_2), lane_3), lane_4)


@kernel
def xxh64(address: int, length: int, seed: Any) -> Any:
    """Return XXH64 of `length` bytes at `address` as u8."""
    position = np.int64(0)
    if length >= 32:
        state = _stripes(address, length, seed)
        position = length & ~np.int64(31)
    else:
        state = seed + _PRIME_5
    state += np.uint64(length)
    while position + 8 <= length:
        state ^= _round(np.uint64(0), load_u64(address + position))
        state = _rotate(state, 27) * _PRIME_1 + _PRIME_4
        position += 8
    if position + 4 <= length:
        state ^= np.uint64(load_u32(address + position)) * _PRIME_1
        state = _rotate(state, 23) * _PRIME_2 + _PRIME_3
        position += 4
    while position < length:
        state ^= np.uint64(load_u8(address + position)) * _PRIME_5
        state = _rotate(state, 11) * _PRIME_1
        position += 1
    state = (state ^ (state >> np.uint64(33))) * _PRIME_2
    state = (state ^ (state >> np.uint64(29))) * _PRIME_3
    return state ^ (state >> np.uint64(32))


@kernel
def string_hash(strings: Any, topic_index: int, seeds: int, row: int) -> Any:
    """Return the key hash of row `row` of the StringAddresses `strings` (see the module's picture)."""
    string = row
    if strings.indices != 0:
        string = load_i64(strings.indices + 8 * row)
    if strings.offset_bytes == 4:
        begin = np.int64(load_i32(strings.offsets + 4 * string))
        end = np.int64(load_i32(strings.offsets + 4 * (string + 1)))
    else:
        begin = load_i64(strings.offsets + 8 * string)
        end = load_i64(strings.offsets + 8 * (string + 1))
    topic = np.int64(0)
    if topic_index != 0:
        topic = np.int64(load_i32(topic_index + 4 * row))
    return xxh64(strings.data + begin, end - begin, load_u64(seeds + 8 * topic))


@kernel
def hash_strings(strings: Any, topic_index: int, seeds: int, count: int, out: int) -> None:
    """Write the hash of each of `count` rows to the u8 array at `out`."""
    for row in range(count):
        store_u64(out + 8 * row, string_hash(strings, topic_index, seeds, row))


@kernel
def bounds_are_sound(offsets: int, offset_bytes: int, count: int, data_bytes: int) -> bool:
    """Return whether `count` + 1 offsets rise from 0 or more to at most `data_bytes`."""
    previous = np.int64(0)
    sound: Any = True
    for place in range(count + 1):
        if offset_bytes == 4:
            value = np.int64(load_i32(offsets + 4 * place))
        else:
            value = load_i64(offsets + 8 * place)
        sound &= value >= previous
        previous = value
    return bool(sound and previous <= data_bytes)
