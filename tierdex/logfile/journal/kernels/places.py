"""Places that are read together, in a journal: which queues it has, and the rows of what was chosen.

    find_growing, gather_growing   an unsealed one, by its tables; rows that are published
    find_dense, gather_dense       a sealed one, by its dense index, verified

What lies in memory of its own is asked for ahead, over places. Depends on intrinsics, blocks, locate,
places, sealed, state and topics.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.intrinsics import load_i64, load_u32, store_i64
from tierdex.logfile.journal.kernels.locate import (
    ask_slot,
    first_offset,
    locate,
    messages_below,
    row_addresses,
)
from tierdex.logfile.journal.kernels.sealed import (
    find_queue_row,
    locate_dense,
    queue_bounds,
    verify_dense,
)
from tierdex.logfile.journal.kernels.state import (
    TAIL_AHEAD,
    ask_queue_slot,
    ask_queue_state,
    ask_tail,
    find_queue_slot,
    find_topic,
)
from tierdex.logfile.kernels.blocks import SOUND
from tierdex.logfile.kernels.places import (
    A_NAME,
    A_NAME_BYTES,
    A_QUEUE_ID,
    ABSENT,
    C_COUNT,
    C_ORDINAL,
    C_QUEUE,
    F_END,
    F_FIRST,
    F_QUEUE,
    UNSURE,
    pass_by,
)
from tierdex.logfile.kernels.topics import topic_queues

_SLOTS_AHEAD: Final = 8  # places


@kernel
def find_growing(words: Any, asked: Any, limit: int, found: Any) -> None:
    """Find each place's queue, and the offsets that lie below byte `limit` of the file."""
    count = asked.shape[0]
    name, topic = np.int64(0), np.int64(-1)
    for i in range(count):
        if asked[i, A_NAME] != name:
            name = asked[i, A_NAME]
            topic = find_topic(words, name, asked[i, A_NAME_BYTES])
        found[i, F_QUEUE] = topic
        if topic >= 0:
            ask_queue_slot(words, topic, asked[i, A_QUEUE_ID])
    for i in range(count):
        if i + TAIL_AHEAD < count and found[i + TAIL_AHEAD, F_QUEUE] >= 0:
            ask_queue_state(
                words, found[i + TAIL_AHEAD, F_QUEUE], asked[i + TAIL_AHEAD, A_QUEUE_ID]
            )
        if found[i, F_QUEUE] >= 0:
            place = find_queue_slot(words, found[i, F_QUEUE], asked[i, A_QUEUE_ID])
            found[i, F_QUEUE] = np.int64(load_u32(place)) - 1
    for i in range(count):
        if i + TAIL_AHEAD < count and found[i + TAIL_AHEAD, F_QUEUE] >= 0:
            ask_tail(words, found[i + TAIL_AHEAD, F_QUEUE])
        queue = found[i, F_QUEUE]
        if queue >= 0:
            found[i, F_FIRST] = first_offset(words, queue)
            found[i, F_END] = found[i, F_FIRST] + messages_below(words, queue, limit)


@kernel
def gather_growing(words: Any, stage: Any, walk: Any, chosen: Any, rows: int) -> None:
    """Write the addresses (i8) of all chosen rows."""
    total, count = np.int64(0), chosen.shape[0]
    for i in range(count):
        if i + _SLOTS_AHEAD < count and chosen[i + _SLOTS_AHEAD, C_COUNT] > 0:
            ahead = i + _SLOTS_AHEAD
            ask_slot(words, chosen[ahead, C_QUEUE], chosen[ahead, C_ORDINAL])
        if chosen[i, C_COUNT] > 0:
            wanted = chosen[i, C_COUNT]
            place = rows + 8 * total
            chosen[i, C_COUNT] = locate(
                words, chosen[i, C_QUEUE], chosen[i, C_ORDINAL], wanted, place
            )
            row_addresses(stage, place, chosen[i, C_COUNT])
            total += chosen[i, C_COUNT]
            if chosen[i, C_COUNT] < wanted:
                pass_by(walk, i)


@kernel
def find_dense(words: Any, blocks: Any, topics: Any, asked: Any, found: Any) -> None:
    """Find each place's queue in a sealed journal; `topics` (TopicsAt) says which are whose."""
    name, first, count = np.int64(0), np.int64(0), np.int64(0)
    for i in range(asked.shape[0]):
        if asked[i, A_NAME] != name:
            name = asked[i, A_NAME]
            first, count = topic_queues(topics, name, asked[i, A_NAME_BYTES])
        found[i, F_QUEUE] = ABSENT
        if count == 0:
            continue
        queue, damaged = find_queue_row(words, blocks, first, count, asked[i, A_QUEUE_ID])
        if damaged != SOUND:
            found[i, F_QUEUE] = UNSURE
        elif queue >= 0:
            begin, held = queue_bounds(words, queue)
            found[i, F_QUEUE], found[i, F_FIRST], found[i, F_END] = queue, begin, begin + held


@kernel
def gather_dense(words: Any, blocks: Any, walk: Any, chosen: Any, rows: int) -> None:
    """Write the addresses (i8) of all chosen rows, verified; damage leaves a place to others."""
    total = np.int64(0)
    for i in range(chosen.shape[0]):
        if chosen[i, C_COUNT] > 0:
            queue, ordinal, count = chosen[i, C_QUEUE], chosen[i, C_ORDINAL], chosen[i, C_COUNT]
            if locate_dense(words, blocks, queue, ordinal, count, rows + 8 * total) == SOUND:
                total += count
            else:
                chosen[i, C_COUNT] = 0
                pass_by(walk, i)
    sound, row = np.int64(0), np.int64(0)
    for i in range(chosen.shape[0]):
        count = chosen[i, C_COUNT]
        if count > 0:
            place, behind = rows + 8 * row, total - row - count
            row += count
            if verify_dense(words, blocks, chosen[i, C_QUEUE], count, place, behind) == SOUND:
                for j in range(count):
                    store_i64(rows + 8 * (sound + j), load_i64(place + 8 * j))
                sound += count
            else:
                chosen[i, C_COUNT] = 0
                pass_by(walk, i)
