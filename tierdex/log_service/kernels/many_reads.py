"""Messages of many queues of an unsealed journal: found, measured and copied in three passes.

    find_many     each place -> how many messages, and the bounds of its queue
    gather_many   ... -> addresses of all rows; how many of them the limit of bytes leaves
    copy_many     ... -> columns of one batch after the other

A place is a queue and an offset. What lies in memory of its own is asked for ahead, over queues. Rows are
published ones: they lie in the mapping. Depends on intrinsics, locate, state and rows.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.intrinsics import load_i32, load_i64, load_u32, prefetch
from tierdex.logfile.journal.kernels.locate import first_offset, gather_rows, messages_below
from tierdex.logfile.journal.kernels.state import (
    TAIL_AHEAD,
    W_BASE_TIME,
    ask_state,
    ask_tail,
    find_queue,
    name_bounds,
)
from tierdex.logfile.kernels.rows import batch_bytes, column_places, copy_rows, open_row

# What is wanted: names of topics, and by place the index of its topic (u4), queue id (i4), offset (i8).
M_NAMES, M_NAME_ENDS, M_TOPIC_INDEX, M_QUEUE_IDS, M_OFFSETS = range(5)
M_MOST_COUNT, M_MOST_BYTES, M_LIMIT = 5, 6, 7
WANTED_WORDS: Final = 8
# What is known of a place (i8 each).
P_QUEUE, P_ORDINAL, P_COUNT, P_FIRST, P_END, P_BODIES, P_EXTRAS, P_BEGIN = range(8)
PLACE_WORDS: Final = 8
_AHEAD: Final = 16  # rows
_LINE: Final = 64  # bytes of a line of the cache


@kernel
def find_many(words: Any, wanted: Any, places: Any) -> Any:
    """Find queue, bounds and count of each place; return how many messages that are, at most.

    P_QUEUE is -1 where the journal does not know the queue, P_ORDINAL below 0 where it begins later.
    """
    total, count = np.int64(0), places.shape[0]
    for i in range(count):
        topic = np.int64(load_u32(wanted[M_TOPIC_INDEX] + 4 * i))
        begin, end = name_bounds(wanted[M_NAME_ENDS], topic)
        queue_id = np.int64(load_i32(wanted[M_QUEUE_IDS] + 4 * i))
        queue = find_queue(words, wanted[M_NAMES] + begin, end - begin, queue_id)
        places[i, P_QUEUE] = queue
        if queue >= 0:
            ask_state(words, queue)
    for i in range(count):
        if i + TAIL_AHEAD < count and places[i + TAIL_AHEAD, P_QUEUE] >= 0:
            ask_tail(words, places[i + TAIL_AHEAD, P_QUEUE])
        queue = places[i, P_QUEUE]
        places[i, P_COUNT] = 0
        if queue < 0:
            continue
        first, below = first_offset(words, queue), messages_below(words, queue, wanted[M_LIMIT])
        ordinal = load_i64(wanted[M_OFFSETS] + 8 * i) - first
        places[i, P_ORDINAL], places[i, P_FIRST], places[i, P_END] = ordinal, first, first + below
        if ordinal >= 0:
            places[i, P_COUNT] = max(0, min(wanted[M_MOST_COUNT], below - ordinal))
        total += places[i, P_COUNT]
    return total


@kernel
def gather_many(words: Any, stage: Any, wanted: Any, places: Any, rows: int) -> Any:
    """Write the addresses (i8) of all rows, and cut each place to the limit; return the bytes of all."""
    found = np.int64(0)
    for i in range(places.shape[0]):
        count = places[i, P_COUNT]
        if count > 0:
            queue, ordinal = places[i, P_QUEUE], places[i, P_ORDINAL]
            found += gather_rows(words, stage, queue, ordinal, count, rows + 8 * found)
    total, row = np.int64(0), np.int64(0)
    for i in range(places.shape[0]):
        taken, bodies, extras = np.int64(0), np.int64(0), np.int64(0)
        for j in range(places[i, P_COUNT]):
            if row + j + _AHEAD < found:
                ahead = load_i64(rows + 8 * (row + j + _AHEAD))
                prefetch(ahead)
                prefetch(ahead + _LINE)
            _, _, _, body, _, extra = open_row(load_i64(rows + 8 * (row + j)), 0)
            if j > 0 and bodies + extras + body + extra > wanted[M_MOST_BYTES]:
                break
            taken, bodies, extras = taken + 1, bodies + body, extras + extra
        row += places[i, P_COUNT]
        places[i, P_COUNT], places[i, P_BODIES], places[i, P_EXTRAS] = taken, bodies, extras
        places[i, P_BEGIN] = total
        # The columns of the next one begin at a whole word.
        total += (batch_bytes(taken, bodies, extras) + 7) & ~np.int64(7)
    return total


@kernel
def copy_many(words: Any, places: Any, counts: Any, rows: int, memory: int) -> None:
    """Write the batch of each place; `counts` (i8) are those that `find_many` gave: rows of a place."""
    row = np.int64(0)
    for i in range(places.shape[0]):
        begin, count, bodies = places[i, P_BEGIN], places[i, P_COUNT], places[i, P_BODIES]
        columns = column_places(memory + begin, count, bodies)
        copy_rows(rows + 8 * row, count, words[W_BASE_TIME], columns)
        row += counts[i]
