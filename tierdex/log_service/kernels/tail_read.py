"""Messages of one queue of an unsealed journal, from a caller's values to columns, in one call.

It takes what `read` was given, as it is, and returns nothing done when anything is out of the ordinary: the
caller takes the general path. It keeps the GIL: staged rows stay where they are meanwhile.

Depends on arguments, compile, intrinsics, layout, locate, state and rows.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tierdex.fileparts.kernels.arguments import (
    INTEGER,
    TEXT,
    is_number,
    number,
    text_address,
    text_bytes,
)
from tierdex.fileparts.kernels.compile import carray, direct_call, short_kernel, types
from tierdex.fileparts.kernels.intrinsics import numbers_at
from tierdex.logfile import layout
from tierdex.logfile.journal.kernels.locate import first_offset, gather_rows, messages_below
from tierdex.logfile.journal.kernels.state import (
    STAGE_WORD_COUNT,
    W_BASE_TIME,
    WORD_COUNT,
    find_queue,
)
from tierdex.logfile.kernels.rows import batch_bytes, column_places, copy_rows, measure_rows

REFUSED: Final = -1
COUNT_MOST: Final = 256  # messages that one call takes
PLACES_BYTES: Final = 8 * COUNT_MOST  # at the begin of the memory: addresses of rows
_QUEUE_ID_MAX: Final = layout.QUEUE_ID_MAX


@short_kernel
def _read(
    words: int, stage: int, topic: Any, queue_id: Any, offset: Any, most_count: Any, most_bytes: Any,
    limit: int, memory: int, room: int,
) -> Any:  # fmt: skip
    """Copy messages that lie below byte `limit` of the file into `memory`, behind PLACES_BYTES.

    Returns (messages, or REFUSED; bytes of bodies, bytes of extras, first and end offset of the queue).
    `room` are the bytes of the memory. The list of arguments is flat: each is taken from Python.
    """
    refused = np.int64(REFUSED), np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    if (
        text_bytes(topic) <= 0
        or not (is_number(queue_id) and is_number(offset))
        or not (is_number(most_count) and is_number(most_bytes))
        or not 0 <= number(queue_id) <= _QUEUE_ID_MAX
        or not 0 < number(most_count) <= COUNT_MOST
        or number(most_bytes) <= 0
    ):
        return refused
    tables = carray(numbers_at(words), (WORD_COUNT,))
    queue = find_queue(tables, text_address(topic), text_bytes(topic), number(queue_id))
    if queue < 0:
        return refused
    first = first_offset(tables, queue)
    ordinal, below = number(offset) - first, messages_below(tables, queue, limit)
    if not 0 <= ordinal < below:
        return refused
    wanted = min(number(most_count), below - ordinal)
    of_stage = carray(numbers_at(stage), (STAGE_WORD_COUNT,))
    count = gather_rows(tables, of_stage, queue, ordinal, wanted, memory)
    count, bodies, extras = measure_rows(memory, count, number(most_bytes))
    if PLACES_BYTES + batch_bytes(count, bodies, extras) > room:
        return refused
    copy_rows(
        memory, count, tables[W_BASE_TIME], column_places(memory + PLACES_BYTES, count, bodies)
    )
    return count, bodies, extras, first, first + below


_ARGUMENTS: Final = (
    types.int64, types.int64, TEXT, INTEGER, INTEGER, INTEGER, INTEGER,
    types.int64, types.int64, types.int64,
)  # fmt: skip


def load() -> Any:
    """Return what calls the kernel, from numba's cache, or compiled in seconds."""
    return direct_call(_read, *_ARGUMENTS)
