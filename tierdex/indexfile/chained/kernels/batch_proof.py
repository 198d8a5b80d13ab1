"""Proving batches: each verified, its items measured and fingerprinted, tile by tile, in one pass.

A batch may be far larger than the cache. So its checksum is continued over a tile of rows at a time, and
all else that is asked of a row is done while the tile is in the cache; what was taken from a batch that
then does not verify is of no use, and the caller lets go of it.

Depends on tally, row_scan, checksum, intrinsics and batches.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tierdex.fileparts.kernels.checksum import crc32c, rows_fingerprint
from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.intrinsics import load_u32
from tierdex.indexfile.chained.kernels.batches import batch_crc, batch_length
from tierdex.indexfile.chained.kernels.tally import (
    T_BATCHES,
    T_CRC,
    T_FINGERPRINT,
    T_ITEM_BYTES,
    T_ITEMS,
    T_NEXT_ROW,
    T_PENDING,
    T_ROWS,
)
from tierdex.indexfile.kernels.row_scan import measure_columns, measure_queues, measure_tags

PROOF_END = 0  # the next bytes are no batch that verifies
PROOF_GROW = 1  # the table of queues is half full: make it larger and go on

# Words of a proof besides the tally (i8 each).
P_CRC = 0  # of the batch under way, so far
P_QUEUES = 1  # in the table
P_MEASURES = 2  # 1: rows are measured too
PROOF_WORDS = 3

_TILE = 512  # rows


@kernel
def prove_batches(
    tally: Any,
    proof: Any,
    row_limit: int,
    columns: Any,
    bounds: Any,
    tags: Any,
    positions: Any,
    keys: Any,
    least: Any,
    ends: Any,
) -> Any:
    """Verify batches from T_NEXT_ROW on, and measure their items as `RowMeasure` does.

    Rows up to `row_limit` may be read. Returns PROOF_END with T_NEXT_ROW at the first row that belongs to
    no batch that verifies, or PROOF_GROW: call again with a larger table of queues.
    """
    item_bytes, base = tally[T_ITEM_BYTES], tally[T_ROWS]
    while True:
        record = base + (tally[T_NEXT_ROW] - 1) * item_bytes
        length = batch_length(tally, record, row_limit - tally[T_NEXT_ROW] + 1)
        if length == 0:
            return PROOF_END
        items = np.int64(load_u32(record + 12))
        head = (length - items) * item_bytes
        if tally[T_PENDING] == 0:
            proof[P_CRC] = np.int64(batch_crc(record, head, np.uint32(tally[T_CRC])))
            tally[T_PENDING] = items
        while tally[T_PENDING] > 0:
            tile = record + head + (items - tally[T_PENDING]) * item_bytes
            count = min(_TILE, tally[T_PENDING])
            if proof[P_MEASURES] != 0:
                if positions[0] >= 0:  # first, since a tile may have to be begun again
                    done, proof[P_QUEUES] = measure_queues(
                        tile, item_bytes, count, positions, keys, least, ends, proof[P_QUEUES]
                    )
                    if done < count:
                        return PROOF_GROW
                measure_tags(tile, item_bytes, count, tags)
                measure_columns(tile, item_bytes, count, columns, bounds)
            crc = crc32c(tile, count * item_bytes, np.uint32(proof[P_CRC]))
            proof[P_CRC] = np.int64(crc)
            tally[T_FINGERPRINT] += rows_fingerprint(tile, item_bytes, count)
            tally[T_PENDING] -= count
        if proof[P_CRC] != np.int64(load_u32(record + 4)):
            return PROOF_END
        tally[T_CRC] = proof[P_CRC]
        tally[T_BATCHES] += 1
        tally[T_ITEMS] += items
        tally[T_NEXT_ROW] += length
