"""Proving batches: each verified, its items measured and fingerprinted, tile by tile, in one pass.

A batch may be far larger than the cache. The checksum is continued over one tile of rows at a time, and
the tile is measured and fingerprinted while it is in the cache. When a batch then does not verify, the
caller discards what was measured.

Depends on batch_statistics, row_scan, checksum, compile and batch_record.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tierdex.fileparts.kernels.checksum import crc32c, rows_fingerprint
from tierdex.fileparts.kernels.compile import kernel
from tierdex.indexfile.chained.kernels.batch_record import (
    batch_crc,
    batch_length,
    crc_of_record,
    item_count_of,
    place_of_row,
)
from tierdex.indexfile.chained.kernels.batch_statistics import (
    B_BATCHES,
    B_CRC,
    B_FINGERPRINT,
    B_ITEM_BYTES,
    B_ITEMS,
    B_NEXT_ROW,
    B_PENDING,
)
from tierdex.indexfile.kernels.row_scan import measure_rows

PROOF_END = 0  # the next bytes are no batch that verifies
PROOF_GROW = 1  # the table of queues is half full: make it larger and go on

# Arguments of a proof besides the statistics (i8 each).
P_CRC = 0  # of the batch under way, so far
P_MEASURES = 1  # 1: rows are measured too
PROOF_ARGUMENTS = 2

_TILE = 512  # rows


@kernel
def prove_batches(statistics: Any, proof: Any, row_limit: int, measure: Any) -> Any:
    """Verify batches from B_NEXT_ROW on, and measure their items into `measure`, a MeasureArrays.

    Rows up to `row_limit` may be read. Returns PROOF_END with B_NEXT_ROW at the first row that belongs to
    no batch that verifies, or PROOF_GROW: call again with a larger table of queues.
    """
    item_bytes = statistics[B_ITEM_BYTES]
    while True:
        record = place_of_row(statistics, statistics[B_NEXT_ROW])
        length = batch_length(statistics, record, row_limit - statistics[B_NEXT_ROW] + 1)
        if length == 0:
            return PROOF_END
        items = item_count_of(record)
        head = (length - items) * item_bytes
        if statistics[B_PENDING] == 0:
            proof[P_CRC] = np.int64(batch_crc(record, head, np.uint32(statistics[B_CRC])))
            statistics[B_PENDING] = items
        while statistics[B_PENDING] > 0:
            tile = record + head + (items - statistics[B_PENDING]) * item_bytes
            count = min(_TILE, statistics[B_PENDING])
            # First, since a tile may have to be begun again.
            if proof[P_MEASURES] != 0 and measure_rows(tile, item_bytes, count, measure) < count:
                return PROOF_GROW
            crc = crc32c(tile, count * item_bytes, np.uint32(proof[P_CRC]))
            proof[P_CRC] = np.int64(crc)
            statistics[B_FINGERPRINT] += rows_fingerprint(tile, item_bytes, count)
            statistics[B_PENDING] -= count
        if proof[P_CRC] != np.int64(crc_of_record(record)):
            return PROOF_END
        statistics[B_CRC] = proof[P_CRC]
        statistics[B_BATCHES] += 1
        statistics[B_ITEMS] += items
        statistics[B_NEXT_ROW] += length
