"""XXH64 over a whole column of keys of one topic, 128 keys at a time, in vectors where there are some.

Hashing key by key, a CPU mispredicts how many words and odd bytes each one has: half of the time goes
there. Here every key of a block takes the same steps, and what is not meant for its length is not
chosen, so that LLVM turns the steps into vectors (eight keys at once with AVX-512).

    _gather   the words of 128 keys -> lanes, one row a word
    _stripes_of_long   the state of keys of 32 bytes and more after their whole stripes
    _finish   what is left of each key, at most 31 bytes, and the avalanche

Loads reach up to 32 bytes beyond a key's end: the last keys of a column are hashed one by one. The same
pass checks bounds, lengths and ASCII; a byte that follows the keys may make it doubt ASCII, which costs
the caller a closer look, and nothing else. Depends on intrinsics, hashing, text_scan.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.hashing import (
    _PRIME_1,
    _PRIME_2,
    _PRIME_3,
    _PRIME_4,
    _PRIME_5,
    _merge,
    _rotate,
    _round,
    _stripes,
    xxh64,
)
from tierdex.fileparts.kernels.intrinsics import load_i32, load_i64, load_u64, store_u64
from tierdex.fileparts.kernels.text_scan import is_ascii

_BLOCK = 128
_BEYOND = 32  # bytes after a block's last key that may be read
_STATE = 0  # rows of the lanes: the state of each key,
_LENGTH = 1  # its length,
_TAIL = 2  # three words of what is left after whole stripes,
_REST = 5  # the word that begins with what is left after whole words,
_FIRST = 6  # and of keys of 32 bytes and more, in their order: the first stripe's four words,
_NUMBER = 10  # and the key's number in the block
_LANES = 11
_ZERO = np.uint64(0)
_HIGH_BITS = np.uint64(0x8080808080808080)


@kernel
def _bound(offsets: int, width: int, number: int) -> Any:
    """Return where key `number` begins; offsets have `width` bytes, 4 or 8."""
    if width == 4:
        return np.int64(load_i32(offsets + 4 * number))
    return load_i64(offsets + 8 * number)


@kernel
def _is_sound(offsets: int, width: int, data_bytes: int, count: int, most_bytes: int) -> bool:
    """Return whether `count` keys have 1 to `most_bytes` bytes and lie inside the data."""
    first = _bound(offsets, width, 0)
    least, greatest, begin = np.int64(most_bytes), np.int64(0), first
    for i in range(1, count + 1):
        end = _bound(offsets, width, i)
        least, greatest = min(least, end - begin), max(greatest, end - begin)
        begin = end
    return bool(first >= 0 and begin <= data_bytes and least >= 1 and greatest <= most_bytes)


@kernel
def _gather(lanes: Any, offsets: int, width: int, data: int, count: int) -> Any:
    """Fill the lanes with the words of `count` keys.

    Returns how many have 32 bytes or more, and all words in one, from which ASCII can be told.
    """
    begin, long, bits = _bound(offsets, width, 0), 0, _ZERO
    for i in range(count):
        end = _bound(offsets, width, i + 1)
        length, place = end - begin, data + begin
        tail = place + (length & ~np.int64(31))
        for word in range(4):
            value = load_u64(place + 8 * word)
            lanes[_FIRST + word, long] = value
            bits |= value
        for word in range(3):
            value = load_u64(tail + 8 * word)
            lanes[_TAIL + word, i] = value
            bits |= value
        value = load_u64(tail + (length & 24))
        lanes[_REST, i] = value
        lanes[_LENGTH, i] = np.uint64(length)
        lanes[_NUMBER, long] = np.uint64(i)
        bits |= value
        long += length >= 32
        begin = end
    return long, bits


@kernel
def _stripes_of_long(lanes: Any, offsets: int, width: int, data: int, long: int, seed: Any) -> Any:
    """Write the state of the `long` keys of 32 bytes and more."""
    for j in range(_BLOCK):  # all lanes, used or not: a loop of fixed length becomes vectors
        lane_1 = _round(seed + _PRIME_1 + _PRIME_2, lanes[_FIRST, j])
        lane_2 = _round(seed + _PRIME_2, lanes[_FIRST + 1, j])
        lane_3 = _round(seed, lanes[_FIRST + 2, j])
        lane_4 = _round(seed - _PRIME_1, lanes[_FIRST + 3, j])
        state = _rotate(lane_1, 1) + _rotate(lane_2, 7) + _rotate(lane_3, 12) + _rotate(lane_4, 18)
        state = _merge(_merge(_merge(_merge(state, lane_1), lane_2), lane_3), lane_4)
        lanes[_FIRST, j] = state
    for j in range(long):
        i = np.int64(lanes[_NUMBER, j])
        state = lanes[_FIRST, j]
        if lanes[_LENGTH, i] >= np.uint64(64):
            place, length = data + _bound(offsets, width, i), np.int64(lanes[_LENGTH, i])
            state = _stripes(place, length, seed)
            if not is_ascii(place + 32, place + length):
                bits = _HIGH_BITS
        lanes[_STATE, i] = state
    return bits


@kernel
def _take_word(state: Any, word: Any) -> Any:
    return _rotate(state ^ _round(_ZERO, word), 27) * _PRIME_1 + _PRIME_4


@kernel
def _take_byte(state: Any, word: Any) -> Any:
    return _rotate(state ^ (word & np.uint64(0xFF)) * _PRIME_5, 11) * _PRIME_1


@kernel
def _finish(lanes: Any) -> None:
    """Turn every state into a hash: the words, the half word and the bytes that a key has."""
    for i in range(_BLOCK):
        length, rest = lanes[_LENGTH, i], lanes[_REST, i]
        words, odd = length & np.uint64(24), length & np.uint64(3)
        state = lanes[_STATE, i] + length
        taken = _take_word(state, lanes[_TAIL, i])
        state = taken if words >= np.uint64(8) else state
        taken = _take_word(state, lanes[_TAIL + 1, i])
        state = taken if words >= np.uint64(16) else state
        taken = _take_word(state, lanes[_TAIL + 2, i])
        state = taken if words >= np.uint64(24) else state
        has_half = (length & np.uint64(4)) != _ZERO
        half = state ^ (rest & np.uint64(0xFFFFFFFF)) * _PRIME_1
        taken = _rotate(half, 23) * _PRIME_2 + _PRIME_3
        state = taken if has_half else state
        rest = rest >> np.uint64(32) if has_half else rest
        taken = _take_byte(state, rest)
        state = taken if odd > _ZERO else state
        taken = _take_byte(state, rest >> np.uint64(8))
        state = taken if odd > np.uint64(1) else state
        taken = _take_byte(state, rest >> np.uint64(16))
        state = taken if odd > np.uint64(2) else state
        state = (state ^ (state >> np.uint64(33))) * _PRIME_2
        state = (state ^ (state >> np.uint64(29))) * _PRIME_3
        lanes[_STATE, i] = state ^ (state >> np.uint64(32))


@kernel
def hash_key_column(
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
    """Write the hashes (u8) of `count` keys, all seeded with `seed` (its bits), to `out`.

    `offsets` are `count` + 1 of `width` bytes, 4 or 8. False, with some hashes written: a key does not
    have 1 to `most_bytes` bytes, does not lie in `data`, or is not ASCII and not known to be text. The
    list of arguments is flat, as Python has it in a PlainKeys beside objects that no kernel takes.
    """
    start, bits = np.uint64(seed), _ZERO
    lanes = np.zeros((_LANES, _BLOCK), np.uint64)
    for first in range(0, count, _BLOCK):
        size = min(_BLOCK, count - first)
        bounds, target = offsets + width * first, out + 8 * first
        if not _is_sound(bounds, width, data_bytes, size, most_bytes):
            return False
        if _bound(bounds, width, size) + _BEYOND > data_bytes:
            bits |= _hash_one_by_one(bounds, width, data, size, start, target)
            continue
        long, found = _gather(lanes, bounds, width, data, size)
        bits |= found
        for i in range(_BLOCK):
            lanes[_STATE, i] = start + _PRIME_5
        if long:
            bits |= _stripes_of_long(lanes, bounds, width, data, long, start)
        _finish(lanes)
        for i in range(size):
            store_u64(target + 8 * i, lanes[_STATE, i])
    return bool(is_text or (bits & _HIGH_BITS) == _ZERO)


@kernel
def _hash_one_by_one(offsets: int, width: int, data: int, count: int, seed: Any, out: int) -> Any:
    """Write the hashes of `count` keys; return _HIGH_BITS, or 0 when all are ASCII."""
    first, last = _bound(offsets, width, 0), _bound(offsets, width, count)
    for i in range(count):
        begin, end = _bound(offsets, width, i), _bound(offsets, width, i + 1)
        store_u64(out + 8 * i, xxh64(data + begin, end - begin, seed))
    return _ZERO if is_ascii(data + first, data + last) else _HIGH_BITS
