"""Taking the batches of a file one after the other: into the statistics, and into chains.

    scan_batches   batches that verify -> statistics, and chains  (recovery, readers)

Work goes in blocks of 128 items: the slots of a block are prefetched while the block before it is linked.
Depends on batch_statistics, batch_record, head_insertion and compile.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tierdex.fileparts.kernels.compile import kernel
from tierdex.indexfile.chained.kernels.batch_record import (
    batch_crc,
    batch_length,
    crc_of_record,
    dictionary_bytes_of,
    has_source,
    item_count_of,
    place_of_row,
    record_rows,
)
from tierdex.indexfile.chained.kernels.batch_statistics import (
    B_BATCHES,
    B_CRC,
    B_DICTIONARY_BYTES,
    B_DICTIONARY_ROW,
    B_HAS_SOURCE,
    B_ITEM_BYTES,
    B_NEXT_ROW,
    B_PENDING,
    BLOCK_ITEMS,
    is_crowded,
    observe_block,
)
from tierdex.indexfile.chained.kernels.head_insertion import prefetch_slots, replay_head, slots_of

# What scan_batches does with items besides the statistics. On top of it: nothing is written to rows.
FOR_STATISTICS = 0
FOR_CHAINS = 1  # move the slots to them, and compare their links

# Answers of scan_batches.
SCAN_END = 0  # the next bytes are no batch that verifies
# Load the source position and the dictionary entries of the batch just inserted, then go on.
SCAN_DICTIONARY = 1
SCAN_GROW = 2  # the table of end offsets is crowded: grow it, then go on
SCAN_BAD_LINK = 3  # a verified item does not link to the head of its chain


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
                prefetch_slots(
                    statistics, first + size, min(BLOCK_ITEMS, statistics[B_PENDING] - size)
                )
            if purpose == FOR_CHAINS and not _relink_block(statistics, first, size):
                return SCAN_BAD_LINK
            observe_block(statistics, first, size)
            statistics[B_PENDING] -= size
        if statistics[B_DICTIONARY_BYTES] > 0:
            return SCAN_DICTIONARY


@kernel
def _enter_batch(statistics: Any, row_limit: int) -> bool:
    """Verify the batch at B_NEXT_ROW and step over it; its items are pending. False: it is none."""
    row = statistics[B_NEXT_ROW]
    record = place_of_row(statistics, row)
    length = batch_length(statistics, record, row_limit - row + 1)
    if length == 0:
        return False
    crc = batch_crc(record, length * statistics[B_ITEM_BYTES], np.uint32(statistics[B_CRC]))
    if crc != crc_of_record(record):
        return False
    statistics[B_CRC] = np.int64(crc)
    statistics[B_BATCHES] += 1
    statistics[B_NEXT_ROW] += length
    statistics[B_PENDING] = item_count_of(record)
    statistics[B_DICTIONARY_ROW] = row + record_rows(statistics)
    statistics[B_DICTIONARY_BYTES] = dictionary_bytes_of(record)
    statistics[B_HAS_SOURCE] = np.int64(has_source(record))
    return True


@kernel
def _relink_block(statistics: Any, first_row: int, count: int) -> bool:
    """Move the slots to `count` rows whose links are known; say whether the links were right."""
    slots, sound = slots_of(statistics), True
    for row in range(first_row, first_row + count):
        sound &= replay_head(slots, place_of_row(statistics, row), row)
    return bool(sound)
