"""What every lookup in chains needs: a view, blocks verified at their first use, an item that matches.

A *view* is an i8 array whose places are named V_* below: where slots and rows lie and, for a sealed
file, how its 4 KiB blocks are verified: a block is verified at its first use, before a byte of it
is believed, and a mismatch ends the lookup with an error, never with "not found".

Errors are negative answers: BAD_CHAIN, or BAD_BLOCK - number of the block.
Depends on intrinsics, checksum, fileparts and layout.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tierdex.fileparts.kernels.checksum import verify_block
from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.intrinsics import (
    load_i64,
    load_u8,
    load_u32,
    load_u64,
    prefetch,
    store_u64,
)
from tierdex.fileparts.layout import BLOCK_BYTES
from tierdex.indexfile import layout

# Places of a view (i8 each).
V_SLOTS = 0  # address of slot 0
V_SLOT_COUNT = 1
V_ROWS = 2  # address of row 1
V_ITEM_BYTES = 3
V_ROW_LIMIT = 4  # greatest row number that is mapped
V_BASE = 5  # address of block 0
V_CHECKSUMS = 6  # address of the blocks' u4 checksums; 0: nothing is to be verified
V_VERIFIED = 7  # address of the byte map of blocks that were verified
V_SEED = 8
VIEW_LENGTH = 9

BAD_CHAIN = -1
BAD_BLOCK = -2  # and below: BAD_BLOCK - block

_AHEAD = 16
_BLOCK_BYTES = BLOCK_BYTES
_LINK = layout.ITEM_LINK_POSITION
_TAG = layout.ITEM_TAG_POSITION
_TIME = layout.ITEM_TIME_POSITION
_HASH = layout.ITEM_HASH_POSITION
_KIND_BIT = np.uint32(layout.KIND_BIT)
_ANY_MESSAGE_ID = np.uint32(layout.TAG_ANY_MESSAGE_ID)


@kernel
def bad_block(view: Any, address: int, length: int) -> Any:
    """Verify the blocks that hold [address, address + length); return 0 or BAD_BLOCK - block."""
    if view[V_CHECKSUMS] == 0:
        return 0
    first = (address - view[V_BASE]) // _BLOCK_BYTES
    last = (address + length - 1 - view[V_BASE]) // _BLOCK_BYTES
    for block in range(first, last + 1):
        if load_u8(view[V_VERIFIED] + block) == 0:
            sound = verify_block(
                view[V_BASE],
                _BLOCK_BYTES,
                block,
                np.uint32(view[V_SEED]),
                view[V_CHECKSUMS],
                view[V_VERIFIED],
            )
            if not sound:
                return BAD_BLOCK - block
    return 0


@kernel
def matches(place: int, key_hash: Any, tag: Any, begin: int, end: int) -> bool:
    """Return whether the item at `place` has this hash and tag, and a time within [begin, end]."""
    if load_u64(place + _HASH) != key_hash:
        return False
    found = load_u32(place + _TAG)
    if found != tag and not (tag == _ANY_MESSAGE_ID and (found & _KIND_BIT) != 0):
        return False
    time = load_i64(place + _TIME)
    return bool(begin <= time and time <= end)


@kernel
def gather_rows(view: Any, numbers: int, count: int, out: int) -> None:
    """Copy the rows with these numbers (i8), which a lookup gave, to `out`."""
    base, item_bytes = view[V_ROWS], view[V_ITEM_BYTES]
    for i in range(count):
        if i + _AHEAD < count:
            place = base + (load_i64(numbers + 8 * (i + _AHEAD)) - 1) * item_bytes
            prefetch(place)
            prefetch(place + item_bytes - 1)
        place = base + (load_i64(numbers + 8 * i) - 1) * item_bytes
        for position in range(0, item_bytes, 8):
            store_u64(out + position, load_u64(place + position))
        out += item_bytes
