"""Messages by column -> rows in the open stage, and their slots in the index.

    stage_rows    rows and slots, until the stage is full or the arena short of room
    write_head    what stands in a row before extra and body

Queue state is asked for 32 rows ahead, the slot's place 16. Depends on state, message_columns,
totals, intrinsics and layout.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tierdex.fileparts.kernels.compile import kernel, primitive
from tierdex.fileparts.kernels.intrinsics import (
    copy_bytes,
    load_i64,
    load_u8,
    load_u32,
    store_i64,
    store_u32,
)
from tierdex.logfile import layout
from tierdex.logfile.journal.kernels.state import (
    S_TOPIC,
    STATE_AHEAD,
    STATE_BYTES,
    TAIL_AHEAD,
    V_ADDRESS,
    V_BEGIN,
    V_COUNT,
    V_ENTRY_USED,
    V_LIMIT,
    V_USED,
    W_BASE_TIME,
    W_HAS_BASE,
    W_STATES,
    add_totals,
    ask_state,
    ask_tail,
    note_row,
)
from tierdex.logfile.kernels.message_columns import (
    C_BODIES,
    C_EXTRA_OFFSETS,
    C_HELD,
    C_OFFSET_BYTES,
    C_OFFSETS,
    C_QUEUE_STRIDE,
    C_QUEUES,
    C_TIME_STRIDE,
    C_TIMES,
    bound,
    extra_of,
)
from tierdex.logfile.kernels.totals import TIME_MAX, TIME_MIN

_ROW = layout.places(layout.ROW)
_SIZE, _QUEUE, _TIME = _ROW["size"], _ROW["queue"], _ROW["time"]
_ROW_BYTES: Final = layout.ROW_BYTES
_LONG_BYTES: Final = layout.LONG_TIME_BYTES
_EXTRA_LENGTH: Final = layout.EXTRA_LENGTH_BYTES
_HAS_EXTRA, _LONG, _HELD = layout.ROW_HAS_EXTRA, layout.ROW_LONG_TIME, layout.ROW_HELD
_UNIT: Final = layout.POSITION_UNIT
_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1


@kernel
def is_far(time: int, base: int) -> bool:
    """Return whether time - base does not fit the four bytes of a row."""
    delta = time - base
    wrapped = ((time ^ base) & (time ^ delta)) < 0
    return bool(wrapped or delta < _INT32_MIN or delta > _INT32_MAX)


@primitive
def row_bytes(body_bytes: int, extra_bytes: int, far: bool) -> Any:
    """Return the bytes of a row, with its padding."""
    length = _ROW_BYTES + body_bytes
    if far:
        length += _LONG_BYTES
    if extra_bytes > 0:
        length += _EXTRA_LENGTH + extra_bytes
    return (length + (_UNIT - 1)) & ~np.int64(_UNIT - 1)


@primitive
def write_head(
    place: int, padded: int, size: int, queue: Any, time: int, base: int, extra_bytes: int
) -> Any:
    """Write what stands before extra and body of a row of `padded` bytes, and its padding.

    `size` is the body's, with the flags that the caller knows. Returns where the extra begins.
    """
    far = is_far(time, base)
    store_u32(place + padded - _UNIT, np.uint32(0))  # the padding; then what may overwrite it
    flags = np.int64(_LONG if far else 0) | np.int64(_HAS_EXTRA if extra_bytes > 0 else 0)
    store_u32(place + _SIZE, np.uint32(size | flags))
    store_u32(place + _QUEUE, queue)
    store_u32(place + _TIME, np.uint32(0 if far else time - base))
    place += _ROW_BYTES
    if far:
        store_i64(place, time)
        place += _LONG_BYTES
    if extra_bytes > 0:
        store_u32(place, np.uint32(extra_bytes))
        place += _EXTRA_LENGTH
    return place


@kernel
def stage_rows(words: Any, stage: Any, columns: Any, first: int, count: int) -> Any:
    """Stage the rows from `first` on, of `count`; return how many were.

    Fewer than there are: the stage is full, or the arena short of room.
    """
    if first >= count:
        return np.int64(0)
    times, time_step = columns[C_TIMES], columns[C_TIME_STRIDE]
    if words[W_HAS_BASE] == 0:
        words[W_BASE_TIME] = load_i64(times + time_step * first)
        words[W_HAS_BASE] = 1
    base, states = words[W_BASE_TIME], words[W_STATES]
    queues, step = columns[C_QUEUES], columns[C_QUEUE_STRIDE]
    offsets, width, bodies = columns[C_OFFSETS], columns[C_OFFSET_BYTES], columns[C_BODIES]
    has_extras = columns[C_EXTRA_OFFSETS] != 0
    held = columns[C_HELD]  # address of one u1 a row, or 0: no row is held
    # What each row changes stays in registers as long as its topic does: stores into memory keep the
    # compiler from knowing anything of what it has loaded.
    memory, begin, used = stage[V_ADDRESS], stage[V_BEGIN], stage[V_USED]
    limit = stage[V_LIMIT] - stage[V_ENTRY_USED]
    topic, messages, message_bytes = np.int64(0), np.int64(0), np.int64(0)
    least, greatest = TIME_MAX, TIME_MIN
    body_begin, done = bound(offsets, width, first), np.int64(count)
    for i in range(first, count):
        if i + STATE_AHEAD < count:
            ask_state(words, np.int64(load_u32(queues + step * (i + STATE_AHEAD))))
        if i + TAIL_AHEAD < count:
            ask_tail(words, np.int64(load_u32(queues + step * (i + TAIL_AHEAD))))
        body_end = bound(offsets, width, i + 1)
        body_bytes = body_end - body_begin
        time = load_i64(times + time_step * i)
        extra, extra_bytes = np.int64(0), np.int64(0)
        if has_extras:
            extra, extra_bytes = extra_of(columns, i)
        padded = row_bytes(body_bytes, extra_bytes, is_far(time, base))
        if used + padded > limit:
            done = np.int64(i)
            break
        queue = load_u32(queues + step * i)
        size = body_bytes
        if held != 0 and load_u8(held + i) != 0:
            size |= np.int64(_HELD)
        place = write_head(memory + used, padded, size, queue, time, base, extra_bytes)
        if extra_bytes > 0:
            copy_bytes(place, extra, extra_bytes)
        copy_bytes(place + extra_bytes, bodies + body_begin, body_bytes)
        state = states + STATE_BYTES * np.int64(queue)
        if not note_row(
            words, state, np.uint32((begin + used) // _UNIT)
        ):  # else readable from now on
            done = np.int64(i)
            break
        its_topic = np.int64(load_u32(state + S_TOPIC))
        if its_topic != topic:
            add_totals(words, topic, messages, message_bytes, least, greatest)
            topic, messages, message_bytes = its_topic, np.int64(0), np.int64(0)
            least, greatest = TIME_MAX, TIME_MIN
        messages += 1
        message_bytes += body_bytes
        least, greatest = min(least, time), max(greatest, time)
        used += padded
        body_begin = body_end
    add_totals(words, topic, messages, message_bytes, least, greatest)
    stage[V_USED] = used
    stage[V_COUNT] += done - first
    return done - first
