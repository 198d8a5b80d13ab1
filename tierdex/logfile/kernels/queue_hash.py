"""The hash of a queue: what the filter of a file is asked for.

Depends on hashing, intrinsics, layout and the kernel decorator.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.hashing import xxh64
from tierdex.fileparts.kernels.intrinsics import load_i32, load_i64, load_u32, store_u64
from tierdex.logfile import layout

_SEED = np.uint64(layout.QUEUE_HASH_SEED)


@kernel
def queue_hash(name: int, length: int, queue_id: int, scratch: int) -> Any:
    """Return the hash (u8) of a queue; `scratch` is a place for 8 bytes."""
    store_u64(scratch, np.uint64(queue_id))
    return xxh64(scratch, np.int64(8), xxh64(name, length, _SEED))


@kernel
def hash_queues(names: int, ends: int, topics: int, queue_ids: int, count: int, out: int) -> None:
    """Write the hash (u8) of each queue; topics (u4) index the names that end at `ends` (i8)."""
    for i in range(count):
        topic = np.int64(load_u32(topics + 4 * i))
        begin = load_i64(ends + 8 * (topic - 1)) if topic > 0 else np.int64(0)
        length = load_i64(ends + 8 * topic) - begin
        queue_id = np.int64(load_i32(queue_ids + 4 * i))
        store_u64(out + 8 * i, queue_hash(names + begin, length, queue_id, out + 8 * i))
