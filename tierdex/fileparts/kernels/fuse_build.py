"""Building the partitions of a 4-wise binary fuse filter by peeling.

A position that a single key uses is assigned to that key; removing the key frees other positions. The
fingerprints are then written in the opposite order. fuse_filter defines the positions of a hash.

Depends on the kernel decorator and fuse_filter.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.fuse_filter import mix, positions

_U0 = np.uint64(0)
_U1 = np.uint64(1)
_U32 = np.uint64(32)


class Scratch(NamedTuple):
    """Arrays that building needs: `mixed` u8, `counts` u1, `alone` u4 (one more), one element a position.

    And one a key: `stack` u8, `sides` u1.
    """

    mixed: Any
    counts: Any
    alone: Any
    stack: Any
    sides: Any


@kernel
def _count_keys(hashes: Any, seed: Any, length: Any, span: Any, scratch: Any) -> Any:
    """Xor every mixed hash into its four positions; say whether no position overflows its count.

    The upper six bits of a count are keys, the lower two the xor of their side numbers.
    """
    mixed, counts = scratch.mixed, scratch.counts
    crowded = np.int64(0)
    for i in range(hashes.shape[0]):
        value = mix(hashes[i], seed)
        at0, at1, at2, at3 = positions(value, length, span)
        mixed[at0] ^= value
        mixed[at1] ^= value
        mixed[at2] ^= value
        mixed[at3] ^= value
        count0 = np.int64(counts[at0]) + 4
        count1 = (np.int64(counts[at1]) + 4) ^ 1
        count2 = (np.int64(counts[at2]) + 4) ^ 2
        count3 = (np.int64(counts[at3]) + 4) ^ 3
        counts[at0] = np.uint8(count0)
        counts[at1] = np.uint8(count1)
        counts[at2] = np.uint8(count2)
        counts[at3] = np.uint8(count3)
        crowded |= count0 | count1 | count2 | count3
    return crowded < 256


@kernel
def _peel(size: int, length: Any, span: Any, scratch: Any) -> Any:
    """Take out key after key that has a position to itself; return how many could be taken."""
    mixed, counts, alone, stack, sides = scratch
    waiting = 0
    for position in range(size):
        alone[waiting] = position
        waiting += (counts[position] >> 2) == 1
    peeled = 0
    at = np.empty(4, np.uint64)
    while waiting > 0:
        waiting -= 1
        position = alone[waiting]
        if counts[position] >> 2 != 1:
            continue
        value = mixed[position]
        side = np.int64(counts[position]) & 3
        stack[peeled] = value
        sides[peeled] = side
        peeled += 1
        at[0], at[1], at[2], at[3] = positions(value, length, span)
        for step in range(1, 4):
            other_side = (side + step) & 3
            other = at[other_side]
            count = np.int64(counts[other])
            alone[waiting] = other
            waiting += (count >> 2) == 2
            counts[other] = np.uint8((count - 4) ^ other_side)
            mixed[other] ^= value
    return peeled


@kernel
def _assign(count: int, length: Any, span: Any, bits: int, scratch: Any, fingerprints: Any) -> None:
    """Write fingerprints in the opposite order of the peeling; `fingerprints` (u2) begins zeroed."""
    stack, sides = scratch.stack, scratch.sides
    at = np.empty(4, np.uint64)
    mask = (_U1 << np.uint64(bits)) - _U1
    for i in range(count - 1, -1, -1):
        value = stack[i]
        at[0], at[1], at[2], at[3] = positions(value, length, span)
        wanted = np.uint16((value ^ (value >> _U32)) & mask)
        # The target itself is still zero, so xoring all four is xoring the other three.
        others = (
            fingerprints[at[0]] ^ fingerprints[at[1]] ^ fingerprints[at[2]] ^ fingerprints[at[3]]
        )
        fingerprints[at[sides[i]]] = wanted ^ others


@kernel
def build_partition(
    hashes: Any,
    seed: Any,
    segment_length: int,
    segment_count: int,
    bits: int,
    scratch: Any,
    fingerprints: Any,
) -> Any:
    """Write the fingerprints of distinct `hashes` (u8[n]) into `fingerprints` (u2, one a position).

    `scratch` is a Scratch. False means that this seed leaves keys that cannot be peeled.
    """
    length = np.uint64(segment_length)
    span = length * np.uint64(segment_count)
    size = segment_length * (segment_count + 3)
    for position in range(size):
        scratch.mixed[position] = _U0
        scratch.counts[position] = 0
        fingerprints[position] = 0
    if not _count_keys(hashes, seed, length, span, scratch):
        return False
    count = _peel(size, length, span, scratch)
    if count != hashes.shape[0]:
        return False
    _assign(count, length, span, bits, scratch, fingerprints)
    return True
