"""Batches as they lie in a file: which bytes are one that verifies, and taking them into the statistics.

    scan_batches   batches that verify -> statistics, and chains  (recovery, readers)

Work goes in blocks of 128 items: the slots of a block are asked for while the block before it is linked.
Depends on batch_statistics, intrinsics, checksum and layout.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tierdex.fileparts.kernels.checksum import _TABLE, crc32c
from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.intrinsics import load_u32, load_u64, mul_high, store_slot
from tierdex.indexfile import layout
from tierdex.indexfile.chained.kernels.batch_statistics import (
    B_BATCHES,
    B_CRC,
    B_DICTIONARY_BYTES,
    B_DICTIONARY_ROW,
    B_ITEM_BYTES,
    B_NEXT_ROW,
    B_PENDING,
    B_ROWS,
    B_SLOT_COUNT,
    B_SLOTS,
    B_UUID,
    BLOCK_ITEMS,
    ask_block,
    is_crowded,
    observe_block,
)

# What scan_batches does with items besides the statistics. On top of it: nothing is written to rows.
FOR_STATISTICS = 0
FOR_CHAINS = 1  # move the slots to them, and compare their links

# Answers of scan_batches.
SCAN_END = 0  # the next bytes are no batch that verifies
SCAN_DICTIONARY = 1  # load the dictionary entries of the batch just inserted, then go on
SCAN_GROW = 2  # the table of end offsets is crowded: grow it, then go on
SCAN_BAD_LINK = 3  # a verified item does not link to the head of its chain

_LINK = layout.ITEM_LINK_POSITION
_RECORD_BYTES = layout.BATCH_RECORD_BYTES
_MAGIC = np.uint32(layout.BATCH_MAGIC)


@kernel
def scan_batches(statistics: Any, row_limit: int, purpose: int) -> int:
    """Take batch after batch into the statistics; `purpose` is one of FOR_*.

    Rows up to `row_limit` may be read. Stops as a SCAN_* answer says, at SCAN_END with B_NEXT_ROW at
    the first row that belongs to no batch that verifies.
    """
    while True:
        if statistics[B_PENDING] == 0 and not _enter_batch(statistics, row_limit):
            return SCAN_END
        while statistics[B_PENDING] > 0:
            if is_crowded(statistics):
                return SCAN_GROW
            size = min(BLOCK_ITEMS, statistics[B_PENDING])
            first = statistics[B_NEXT_ROW] - statistics[B_PENDING]
            if purpose == FOR_CHAINS:
                ask_block(statistics, first + size, min(BLOCK_ITEMS, statistics[B_PENDING] - size))
            if purpose == FOR_CHAINS and not _relink_block(statistics, first, size):
                return SCAN_BAD_LINK
            observe_block(statistics, first, size)
            statistics[B_PENDING] -= size
        if statistics[B_DICTIONARY_BYTES] > 0:
            return SCAN_DICTIONARY


@kernel
def _enter_batch(statistics: Any, row_limit: int) -> bool:
    """Verify the batch at B_NEXT_ROW and step over it; its items are pending. False: it is none."""
    item_bytes, row = statistics[B_ITEM_BYTES], statistics[B_NEXT_ROW]
    address = statistics[B_ROWS] + (row - 1) * item_bytes
    length = batch_length(statistics, address, row_limit - row + 1)
    if length == 0:
        return False
    crc = batch_crc(address, length * item_bytes, np.uint32(statistics[B_CRC]))
    if crc != load_u32(address + 4):
        return False
    statistics[B_CRC] = np.int64(crc)
    statistics[B_BATCHES] += 1
    statistics[B_NEXT_ROW] += length
    statistics[B_PENDING] = np.int64(load_u32(address + 12))
    statistics[B_DICTIONARY_ROW] = row + (_RECORD_BYTES + item_bytes - 1) // item_bytes
    statistics[B_DICTIONARY_BYTES] = np.int64(load_u32(address + 16))
    return True


@kernel
def batch_length(statistics: Any, address: int, rows_left: int) -> Any:
    """Return the rows of the batch whose record is at `address`; 0 when it is no next batch here.

    `rows_left` rows may be read from `address` on; a longer batch counts as none.
    """
    item_bytes = statistics[B_ITEM_BYTES]
    record_rows = (_RECORD_BYTES + item_bytes - 1) // item_bytes
    if rows_left < record_rows:
        return 0
    uuid = statistics[B_UUID]
    items = np.int64(load_u32(address + 12))
    dictionary_rows = (np.int64(load_u32(address + 16)) + item_bytes - 1) // item_bytes
    if (
        load_u32(address) != _MAGIC
        or np.int64(load_u32(address + 8)) != statistics[B_BATCHES]
        or items == 0
        or load_u32(address + 20) != 0
        or load_u64(address + 24) != load_u64(uuid)
        or load_u64(address + 32) != load_u64(uuid + 8)
        or record_rows + dictionary_rows + items > rows_left
    ):
        return 0
    return np.int64(record_rows + dictionary_rows + items)


@kernel
def batch_crc(address: int, length: int, crc: Any) -> Any:
    """Return the CRC of a whole batch at `address`, its crc field taken as zero."""
    state = crc32c(address, 4, np.uint32(crc)) ^ np.uint32(0xFFFFFFFF)
    for _ in range(4):
        state = (state >> np.uint32(8)) ^ _TABLE[0, state & np.uint32(0xFF)]
    return crc32c(address + 8, length - 8, np.uint32(state) ^ np.uint32(0xFFFFFFFF))


@kernel
def _relink_block(statistics: Any, first_row: int, count: int) -> bool:
    """Move the slots to `count` rows whose links are known; say whether the links were right."""
    slots, slot_count = statistics[B_SLOTS], np.uint64(statistics[B_SLOT_COUNT])
    item_bytes = statistics[B_ITEM_BYTES]
    target = statistics[B_ROWS] + (first_row - 1) * item_bytes
    sound = True
    for i in range(count):
        place = target + i * item_bytes
        slot = slots + 4 * np.int64(mul_high(load_u64(place), slot_count))
        sound &= load_u32(place + _LINK) == load_u32(slot)
        store_slot(slot, np.uint32(first_row + i))
    return bool(sound)
