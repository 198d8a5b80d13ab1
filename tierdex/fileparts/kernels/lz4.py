"""LZ4 blocks -> bytes, by address: the pages of thousands of messages are unpacked in one call.

::

    token | more of the literals' length | literals | distance 2 | more of the match's length | ...

pyarrow has the codec, too, and unpacks as fast, but one block a call, into fresh memory each: as much again
for a page of 16 KiB. What is read and written stays in the block and in the target with its slack, whatever
the block holds. Depends on compile and intrinsics.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tierdex.fileparts.kernels.compile import kernel, primitive
from tierdex.fileparts.kernels.intrinsics import (
    copy_bytes,
    load_u8,
    load_u16,
    load_u64,
    store_u8,
    store_u64,
)

SLACK_BYTES: Final = 32  # that a target has behind its end: copies go in steps of 16 bytes

_LONG: Final = 15  # of a length: more bytes of it follow
_MATCH_LEAST: Final = 4
_DISTANCE_BYTES: Final = 2
_STEP: Final = 16
_WORD: Final = 8


@kernel
def unpack_lz4(block: int, length: int, target: int, size: int) -> bool:
    """Unpack the `length` bytes at `block`; say whether they are a block of just `size` bytes.

    `target` has SLACK_BYTES behind these.
    """
    at, end, to, limit = block, block + length, target, target + size
    while at < end:
        token = np.int64(load_u8(at))
        at += 1
        literals, at = _length(token >> 4, at, end)
        if literals > end - at or literals > limit - to:
            return False
        if literals <= _STEP and end - at >= _STEP:
            _copy_step(to, at)
        else:
            copy_bytes(to, at, literals)
        at += literals
        to += literals
        if at == end:  # a block ends with literals
            return bool(to == limit)
        if end - at < _DISTANCE_BYTES:
            return False
        distance = np.int64(load_u16(at))
        matched, at = _length(token & _LONG, at + _DISTANCE_BYTES, end)
        matched += _MATCH_LEAST
        if distance == 0 or distance > to - target or matched > limit - to:
            return False
        _repeat(to, distance, matched)
        to += matched
    return False


@primitive
def _length(short: int, at: int, end: int) -> Any:
    """Return (a length whose first part is `short`, where to read on); one that is cut is too long."""
    found = np.int64(short)
    if short == _LONG:
        while True:
            if at >= end:
                return np.int64(1 << 40), at
            more = np.int64(load_u8(at))
            at += 1
            found += more
            if more != 255:
                break
    return found, at


@primitive
def _copy_step(to: int, at: int) -> None:
    first, second = load_u64(at), load_u64(at + _WORD)
    store_u64(to, first)
    store_u64(to + _WORD, second)


@primitive
def _repeat(to: int, distance: int, length: int) -> None:
    """Write `length` bytes at `to` that repeat those `distance` before; up to a step more."""
    at, end = to - distance, to + length
    if distance >= _STEP:
        while to < end:
            _copy_step(to, at)
            to += _STEP
            at += _STEP
        return
    # What is nearer than a word is first written until it repeats in words.
    if distance < _WORD:
        for i in range(_WORD):
            store_u8(to + i, load_u8(at + i))
        to += _WORD
        at = to - distance * ((_WORD + distance - 1) // distance)
    while to < end:
        store_u64(to, load_u64(at))
        to += _WORD
        at += _WORD
