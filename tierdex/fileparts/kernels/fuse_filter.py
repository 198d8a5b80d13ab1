"""Queries of the partitions of a 4-wise binary fuse filter.

A partition is an array of fingerprints in `segment_count + 3` segments of `segment_length` (a power
of two). A mixed hash names one position in each of four neighbouring segments; the filter says
"maybe" when the four fingerprints there, xored, give the fingerprint of the hash. After
T. M. Graf and D. Lemire, "Binary Fuse Filters: Fast and Smaller Than Xor Filters" (2022).

A file's filter is many partitions by hash range, each small enough to be built in the cache; their
table has a `layout.FILTER_PARTITION` of 32 bytes each. `filter` is the address of the i8 array that
`filter.FuseFilter` prepares (FILTER_WORDS numbers); a partition is verified when first asked.

Depends on the kernel decorator, intrinsics, checksum and layout only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tierdex.fileparts import layout
from tierdex.fileparts.kernels.checksum import crc32c, numbered_seed
from tierdex.fileparts.kernels.compile import kernel, primitive
from tierdex.fileparts.kernels.intrinsics import (
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    load_u64,
    mul_high,
    prefetch,
    store_u8,
)

_ENTRY_BYTES = layout.FILTER_PARTITION_BYTES
_POSITION = layout.PARTITION_POSITION_POSITION
_SEED = layout.PARTITION_SEED_POSITION
_SEGMENT_LENGTH = layout.PARTITION_SEGMENT_LENGTH_POSITION
_SEGMENT_COUNT = layout.PARTITION_SEGMENT_COUNT_POSITION
_KEY_COUNT = layout.PARTITION_KEY_COUNT_POSITION
_CRC = layout.PARTITION_CRC_POSITION

# The words of an open filter.
PARTITIONS, PARTITION_COUNT, FINGERPRINTS, BITS, VERIFIED, SEED = range(6)
FILTER_WORDS = 8
NO, MAYBE, DAMAGED = 0, 1, -1

_GROUP = 64  # hashes whose cache misses overlap in a batch
_PLACES = 5  # words that are noted of each: the mixed hash, four addresses
_U1 = np.uint64(1)
_U18 = np.uint64(18)
_U32 = np.uint64(32)
_U33 = np.uint64(33)
_U36 = np.uint64(36)
_BYTE = np.uint64(0xFF)
_MIX_1 = np.uint64(0xFF51AFD7ED558CCD)
_MIX_2 = np.uint64(0xC4CEB9FE1A85EC53)


@kernel
def mix(key_hash: Any, seed: Any) -> Any:
    """Return a bijection of `key_hash` that another `seed` changes wholly; both u8."""
    value = key_hash + seed
    value = (value ^ (value >> _U33)) * _MIX_1
    value = (value ^ (value >> _U33)) * _MIX_2
    return value ^ (value >> _U33)


@kernel
def positions(value: Any, length: Any, span: Any) -> Any:
    """Return the four positions of a mixed hash; `span` = segment_length * segment_count."""
    mask = length - _U1
    first = mul_high(value, span)
    second = (first + length) ^ ((value >> _U36) & mask)
    third = (first + length + length) ^ ((value >> _U18) & mask)
    fourth = (first + length + length + length) ^ (value & mask)
    return first, second, third, fourth


@primitive
def _entry_of(partitions: int, partition: int) -> Any:
    """Return the address of a partition's entry in the table at `partitions`."""
    return partitions + _ENTRY_BYTES * partition


@primitive
def _key_count(entry: int) -> Any:
    return load_u32(entry + _KEY_COUNT)


@kernel
def _word(filter_words: int, word: int) -> Any:
    return load_i64(filter_words + 8 * word)


@kernel
def _opened(filter_words: int) -> Any:
    """Return the words of a filter as a tuple, which stays in registers."""
    return (
        _word(filter_words, PARTITIONS),
        _word(filter_words, PARTITION_COUNT),
        _word(filter_words, FINGERPRINTS),
        _word(filter_words, BITS),
        _word(filter_words, VERIFIED),
        _word(filter_words, SEED),
    )


@kernel
def _verify(opened: Any, partition: int) -> Any:
    """Verify a partition, and remember it when it is sound; two threads may do it at once."""
    entry = _entry_of(opened[PARTITIONS], partition)
    if _key_count(entry) != 0:
        size = np.int64(load_u32(entry + _SEGMENT_LENGTH)) * (
            np.int64(load_u32(entry + _SEGMENT_COUNT)) + 3
        )
        seed = numbered_seed(np.uint32(opened[SEED]), np.uint64(partition))
        begin = opened[FINGERPRINTS] + load_i64(entry + _POSITION)
        if crc32c(begin, (size * opened[BITS]) >> 3, seed) != load_u32(entry + _CRC):
            return False
    store_u8(opened[VERIFIED] + partition, np.uint8(1))
    return True


@kernel
def partition_is_sound(filter_words: int, partition: int) -> Any:
    """Verify a partition at its first use."""
    if load_u8(_word(filter_words, VERIFIED) + partition) != 0:
        return True
    return _verify(_opened(filter_words), partition)


@kernel
def has_keys(filter_words: int, partition: int) -> Any:
    """Return whether a partition has any key; else it excludes every hash."""
    return _key_count(_entry_of(_word(filter_words, PARTITIONS), partition)) != 0


@kernel
def partition_of(filter_words: int, key_hash: Any) -> Any:
    return np.int64(mul_high(key_hash, np.uint64(_word(filter_words, PARTITION_COUNT))))


@kernel
def _fingerprint_places(entry: int, fingerprints: int, key_hash: Any, bits: int) -> Any:
    """Return the mixed hash and the addresses of its four fingerprints in the partition of `entry`."""
    value = mix(key_hash, load_u64(entry + _SEED))
    length = np.uint64(load_u32(entry + _SEGMENT_LENGTH))
    at0, at1, at2, at3 = positions(
        value, length, length * np.uint64(load_u32(entry + _SEGMENT_COUNT))
    )
    wide = np.uint64(bits == 16)
    begin = fingerprints + load_i64(entry + _POSITION)
    a0 = begin + np.int64(at0 << wide)
    a1 = begin + np.int64(at1 << wide)
    a2 = begin + np.int64(at2 << wide)
    a3 = begin + np.int64(at3 << wide)
    return value, a0, a1, a2, a3


@kernel
def filter_positions(filter_words: int, partition: int, key_hash: Any) -> Any:
    """Return the mixed hash and the addresses of its four fingerprints."""
    entry = _entry_of(_word(filter_words, PARTITIONS), partition)
    return _fingerprint_places(
        entry, _word(filter_words, FINGERPRINTS), key_hash, _word(filter_words, BITS)
    )


@kernel
def fingerprints_match(value: Any, a0: int, a1: int, a2: int, a3: int, bits: int) -> Any:
    """Return whether the four fingerprints of a mixed hash xor to its own."""
    wanted = value ^ (value >> _U32)
    if bits == 16:
        return np.uint16(wanted & np.uint64(0xFFFF)) == (
            load_u16(a0) ^ load_u16(a1) ^ load_u16(a2) ^ load_u16(a3)
        )
    return np.uint8(wanted & _BYTE) == (load_u8(a0) ^ load_u8(a1) ^ load_u8(a2) ^ load_u8(a3))


@kernel
def contains(filter_words: int, key_hash: Any) -> Any:
    """Return NO, MAYBE or DAMAGED for one hash (u8)."""
    if _word(filter_words, BITS) == 0:
        return MAYBE
    partition = partition_of(filter_words, key_hash)
    if not partition_is_sound(filter_words, partition):
        return DAMAGED
    if not has_keys(filter_words, partition):
        return NO
    value, a0, a1, a2, a3 = filter_positions(filter_words, partition, key_hash)
    return MAYBE if fingerprints_match(value, a0, a1, a2, a3, _word(filter_words, BITS)) else NO


@kernel
def _ask(opened: Any, partition: int, key_hash: Any, places: Any, at: int) -> None:
    """Ask for the cache lines of one hash in a verified partition of the filter with these words.

    Notes at places[at] (i8) what `_answer` needs once they are there.
    """
    partitions, _, fingerprints, bits, _, _ = opened
    entry = _entry_of(partitions, partition)
    value, a0, a1, a2, a3 = _fingerprint_places(entry, fingerprints, key_hash, bits)
    if _key_count(entry) == 0:
        a0 = np.int64(0)
    else:
        prefetch(a0)
        prefetch(a1)
        prefetch(a2)
        prefetch(a3)
    places[at], places[at + 1] = np.int64(value), a0
    places[at + 2], places[at + 3], places[at + 4] = a1, a2, a3


@kernel
def _answer(places: Any, at: int, bits: int) -> Any:
    """Return NO or MAYBE for the hash that was noted at places[at]."""
    a0 = places[at + 1]
    if a0 == 0:
        return np.uint8(NO)
    a1, a2, a3 = places[at + 2], places[at + 3], places[at + 4]
    return np.uint8(fingerprints_match(np.uint64(places[at]), a0, a1, a2, a3, bits))


@kernel
def contains_many(filter_words: int, hashes: int, count: int, answers: int) -> Any:
    """Write 0 or 1 for each of `count` hashes; return -1, or the damaged partition met first.

    Goes through groups twice: the first pass names the cache lines, the second finds them there.
    """
    opened = _opened(filter_words)
    _, partition_count, _, bits, verified, _ = opened
    places = np.empty(_GROUP * _PLACES, np.int64)
    for first in range(0, count, _GROUP):
        group = min(_GROUP, count - first)
        for i in range(group):
            key_hash = load_u64(hashes + 8 * (first + i))
            partition = np.int64(mul_high(key_hash, np.uint64(partition_count)))
            if load_u8(verified + partition) == 0 and not _verify(opened, partition):
                return partition
            _ask(opened, partition, key_hash, places, _PLACES * i)
        for i in range(group):
            store_u8(answers + first + i, _answer(places, _PLACES * i, bits))
    return -1


@kernel
def contains_each(filters: int, count: int, key_hash: int, answers: int) -> None:
    """Write NO or MAYBE for one hash (its bits as i8) to `answers` (u1), one for each of `count` filters.

    `filters` holds their addresses (i8). A damaged partition is a MAYBE: the search meets the damage.
    """
    places = np.empty(_GROUP * _PLACES, np.int64)
    asked_bits = np.empty(_GROUP, np.int64)  # 0 where the answer is MAYBE without asking
    wanted = np.uint64(key_hash)
    for first in range(0, count, _GROUP):
        group = min(_GROUP, count - first)
        for i in range(group):
            words = load_i64(filters + 8 * (first + i))
            asked_bits[i] = _word(words, BITS)
            if asked_bits[i] == 0:
                continue
            partition = partition_of(words, wanted)
            if partition_is_sound(words, partition):
                _ask(_opened(words), partition, wanted, places, _PLACES * i)
            else:
                asked_bits[i] = 0
        for i in range(group):
            bits = asked_bits[i]
            store_u8(
                answers + first + i,
                np.uint8(MAYBE) if bits == 0 else _answer(places, _PLACES * i, bits),
            )
