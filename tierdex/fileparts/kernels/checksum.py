"""CRC32C inside kernels: the CPU's instruction where there is one, else a table of 8 x 256 words.

`crc32c(address, length, crc)` continues `crc` over `length` bytes, exactly as
`google_crc32c.extend(crc, data)` does; both spellings of the same number are used in this package.
`row_fingerprint` is no checksum of the format: its sums compare two sets of rows in any order.
Depends on intrinsics.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tierdex.fileparts.kernels.compile import kernel, primitive
from tierdex.fileparts.kernels.intrinsics import (
    HAS_SSE42_CRC,
    crc_step_u64,
    load_u8,
    load_u32,
    load_u64,
    mul_high,
    store_u8,
    store_u32,
    store_u64,
    unpredictable,
)

_MIX_1 = np.uint64(0x9E3779B97F4A7C15)
_MIX_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_MIX_3 = np.uint64(0xFF51AFD7ED558CCD)
_WORD_BYTES = 8
_FIVE_WORDS = 5 * _WORD_BYTES
_POLYNOMIAL = 0x82F63B78  # CRC32C, reflected


def _make_table() -> np.ndarray:
    table = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        table[0, byte] = value
    for level in range(1, 8):
        previous = table[level - 1]
        table[level] = (previous >> 8) ^ table[0][previous & 0xFF]
    return table


_TABLE = _make_table()
_STREAM_LONG = 1360  # three of them are all but the last 16 bytes of a block
_STREAM_SHORT = 336


def _make_skip(length: int) -> np.ndarray:
    """Return u4[4, 256]: what `length` zero bytes make of each byte of a state."""
    bits = np.array([1 << bit for bit in range(32)], np.uint32)
    for _ in range(length):
        bits = (bits >> 8) ^ _TABLE[0][bits & 0xFF]
    table = np.zeros((4, 256), np.uint32)
    for place in range(4):
        for bit in range(8):
            with_bit = np.arange(256) >> bit & 1 == 1
            table[place, with_bit] ^= bits[8 * place + bit]
    return table


_SKIP_LONG = _make_skip(_STREAM_LONG)
_SKIP_SHORT = _make_skip(_STREAM_SHORT)


@kernel
def crc32c_by_table(address: int, length: int, crc: Any) -> Any:
    """Continue `crc` over `length` bytes at `address`, eight bytes a step, without the instruction."""
    state = np.uint64(np.uint32(crc) ^ np.uint32(0xFFFFFFFF))
    byte_mask = np.uint64(0xFF)
    position = np.int64(0)
    while position + 8 <= length:
        word = load_u64(address + position) ^ state
        state = np.uint64(0)
        for level in range(8):
            state ^= np.uint64(_TABLE[7 - level, (word >> np.uint64(8 * level)) & byte_mask])
        position += 8
    while position < length:
        index = (state ^ np.uint64(load_u8(address + position))) & byte_mask
        state = (state >> np.uint64(8)) ^ np.uint64(_TABLE[0, index])
        position += 1
    return np.uint32(state) ^ np.uint32(0xFFFFFFFF)


@kernel
def _skip(table: Any, state: Any) -> Any:
    """Return the state after as many zero bytes as `table` stands for."""
    mask = np.uint64(0xFF)
    skipped = table[0, state & mask] ^ table[1, (state >> np.uint64(8)) & mask]
    skipped ^= table[2, (state >> np.uint64(16)) & mask]
    return np.uint64(skipped ^ table[3, (state >> np.uint64(24)) & mask])


@kernel
def _three_streams(address: int, length: int, state: Any, table: Any) -> Any:
    """Feed 3 * `length` bytes to a state: three runs side by side, for the instruction has to wait.

    It takes a word a cycle, but its answer comes two cycles later. `table` skips `length` zero bytes.
    """
    second, third = np.uint64(0), np.uint64(0)
    for position in range(0, length, 8):
        place = address + position
        state = crc_step_u64(state, load_u64(place))
        second = crc_step_u64(second, load_u64(place + length))
        third = crc_step_u64(third, load_u64(place + 2 * length))
    return _skip(table, _skip(table, state) ^ second) ^ third


@kernel
def crc32c_by_instruction(address: int, length: int, crc: Any) -> Any:
    """Continue `crc` over `length` bytes at `address` with the CPU's instruction."""
    state = np.uint64(np.uint32(crc) ^ np.uint32(0xFFFFFFFF))
    byte_mask = np.uint64(0xFF)
    position = np.int64(0)
    while position + 3 * _STREAM_LONG <= length:
        state = _three_streams(address + position, _STREAM_LONG, state, _SKIP_LONG)
        position += 3 * _STREAM_LONG
    while position + 3 * _STREAM_SHORT <= length:
        state = _three_streams(address + position, _STREAM_SHORT, state, _SKIP_SHORT)
        position += 3 * _STREAM_SHORT
    while position + 8 <= length:
        state = crc_step_u64(state, load_u64(address + position))
        position += 8
    while position < length:
        index = (state ^ np.uint64(load_u8(address + position))) & byte_mask
        state = (state >> np.uint64(8)) ^ np.uint64(_TABLE[0, index])
        position += 1
    return np.uint32(state) ^ np.uint32(0xFFFFFFFF)


crc32c = crc32c_by_instruction if HAS_SSE42_CRC else crc32c_by_table


@kernel
def _step_by_table(state: Any, word: Any) -> Any:
    """Feed 8 bytes to a CRC state (u8), as `crc_step_u64` does."""
    word ^= state
    state = np.uint64(0)
    for level in range(8):
        state ^= np.uint64(_TABLE[7 - level, (word >> np.uint64(8 * level)) & np.uint64(0xFF)])
    return state


crc_step = crc_step_u64 if HAS_SSE42_CRC else _step_by_table


@primitive
def crc_state(crc: Any) -> Any:
    """Return the state (u8) from which `crc_step` continues a checksum."""
    return np.uint64(np.uint32(crc) ^ np.uint32(0xFFFFFFFF))


@primitive
def crc_of(state: Any) -> Any:
    """Return the checksum (u4) that a state stands for."""
    return np.uint32(state) ^ np.uint32(0xFFFFFFFF)


@kernel
def _numbered_state(seed: Any, number: Any) -> Any:
    """Return the seed of unit `number`: the part's seed continued over the number, 8 bytes."""
    state = np.uint64(np.uint32(seed) ^ np.uint32(0xFFFFFFFF))
    word = np.uint64(number) ^ state
    state = np.uint64(0)
    for level in range(8):
        state ^= np.uint64(_TABLE[7 - level, (word >> np.uint64(8 * level)) & np.uint64(0xFF)])
    return np.uint32(state) ^ np.uint32(0xFFFFFFFF)


numbered_seed = _numbered_state


@kernel
def block_checksums(address: int, block_bytes: int, block_count: int, seed: Any, out: int) -> None:
    """Write the CRC32C of each block to the u4 array at `out`; block i is seeded with (seed, i)."""
    for block in range(block_count):
        begin = numbered_seed(np.uint32(seed), np.uint64(block))
        crc = crc32c(address + block * block_bytes, np.int64(block_bytes), begin)
        store_u32(out + 4 * block, crc)


@kernel
def verify_block(
    address: int, block_bytes: int, block: int, seed: Any, checksums: int, verified: int
) -> bool:
    """Return whether block `block` is sound, and remember in the byte map at `verified` that it is.

    Two threads may verify the same block at once: both write the same byte.
    """
    begin = numbered_seed(np.uint32(seed), np.uint64(block))
    crc = crc32c(address + block * block_bytes, np.int64(block_bytes), begin)
    if crc != load_u32(checksums + 4 * block):
        return False
    store_u8(verified + block, np.uint8(1))
    return True


@kernel
def _fold(a: Any, b: Any) -> Any:
    """Return both halves of a 128-bit product, xored."""
    return (a * b) ^ mul_high(a, b)


@primitive
def _word(place: int, number: int) -> Any:
    """Return word `number` (u8) of the row at `place`."""
    return load_u64(place + _WORD_BYTES * number)


@primitive
def load_five_words(place: int) -> Any:
    """Return the words of a row of 40 bytes: in a loop they stay in registers."""
    return (
        _word(place, 0), _word(place, 1), _word(place, 2), _word(place, 3), _word(place, 4),
    )  # fmt: skip


@primitive
def store_five_words(place: int, row: Any) -> None:
    """Store the words of a row."""
    a, b, c, d, e = row
    store_u64(place, a)
    store_u64(place + 1 * _WORD_BYTES, b)
    store_u64(place + 2 * _WORD_BYTES, c)
    store_u64(place + 3 * _WORD_BYTES, d)
    store_u64(place + 4 * _WORD_BYTES, e)


@kernel
def row_fingerprint(place: int, item_bytes: int) -> Any:
    """Return a number (u8) that depends on every word of the row at `place` and on its position."""
    state = _MIX_2
    words = item_bytes >> 3
    for i in range(0, words - 1, 2):
        pair = _fold(_word(place, i) ^ _MIX_1, _word(place, i + 1) ^ _MIX_3)
        state = ((state << np.uint64(1)) | (state >> np.uint64(63))) + pair
    if words & 1:
        state += _word(place, words - 1)
    return _fold(state ^ _MIX_3, _MIX_1)


@kernel
def five_word_fingerprint(row: Any) -> Any:
    """Return `row_fingerprint` of a row of 40 bytes, whose words (u8) these are."""
    a, b, c, d, e = row
    state = ((_MIX_2 << np.uint64(1)) | (_MIX_2 >> np.uint64(63))) + _fold(a ^ _MIX_1, b ^ _MIX_3)
    state = ((state << np.uint64(1)) | (state >> np.uint64(63))) + _fold(c ^ _MIX_1, d ^ _MIX_3)
    return _fold((state + e) ^ _MIX_3, _MIX_1)


@kernel
def rows_fingerprint(rows: int, item_bytes: int, count: int) -> Any:
    """Return the sum (i8, wrapping) of the fingerprints of `count` rows."""
    total = np.uint64(0)
    for i in range(count):
        place = unpredictable(rows + i * item_bytes)
        if item_bytes == _FIVE_WORDS:  # the message schema
            total += five_word_fingerprint(load_five_words(place))
        else:
            total += row_fingerprint(place, item_bytes)
    return np.int64(total)
