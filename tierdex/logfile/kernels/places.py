"""Places that are read together, file after file: what is asked, known, chosen and copied.

    asked    a row a place: its topic's name, queue and offset
    found    a row a place and file: where the queue is in the file, and which offsets it has there
    walk     a row a place, over the files: bounds of the queue, where to read on, what the limits leave, then
             where the columns of all its messages lie
    chosen   a row a place, for one file: messages wanted of it, then taken

All are i8. `begin_walk` takes what all files found; then, oldest file first: `choose`, the rows of all
(a file's own kernel), `measure`. Then `lay_out`, and file by file `copy`. What is out of the ordinary,
damage or a gap, makes a place OTHER: it is answered alone, by a path that can tell. Rows come by address,
one place after the other.

Depends on intrinsics, rows and the kernel decorator.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.intrinsics import load_i64, prefetch
from tierdex.logfile.kernels.rows import batch_bytes, column_places, copy_rows_behind, open_row

A_NAME, A_NAME_BYTES, A_QUEUE_ID, A_OFFSET = range(4)
ASKED_WORDS: Final = 4
F_QUEUE, F_FIRST, F_END = range(3)
FOUND_WORDS: Final = 3
W_FROM, W_BEGIN, W_END, W_NEXT, W_LEFT, W_LEFT_BYTES, W_IS_OTHER = range(7)
# Of all files: messages, bytes of bodies and extras, where their columns begin; what `copy` wrote of them.
W_COUNT, W_BODIES, W_EXTRAS, W_MEMORY, W_COPIED, W_COPIED_BODIES, W_COPIED_EXTRAS = range(7, 14)
W_LAST_FILE: Final = 14  # that has a message of it
WALK_WORDS: Final = 15
C_QUEUE, C_ORDINAL, C_COUNT, C_BODIES, C_EXTRAS = range(5)
CHOSEN_WORDS: Final = 5

ABSENT: Final = -1  # F_QUEUE of a queue that the file has not
UNSURE: Final = -2  # and of one that it cannot tell, for damage
_AHEAD: Final = 16  # rows
_LINE: Final = 64  # bytes of a line of the cache


@kernel
def begin_walk(
    asked: Any, found: Any, floors: Any, walk: Any, most_count: int, most_bytes: int
) -> None:
    """Begin with what all files found, oldest first. A queue that no file has is OTHER, too.

    `floors` (i8): everything of a place's queue below that offset is gone.
    """
    for i in range(asked.shape[0]):
        begin, end, is_known, is_sure = np.int64(-1), floors[i], False, True
        for file in range(found.shape[0]):
            if found[file, i, F_QUEUE] == UNSURE:
                is_sure = False
            elif found[file, i, F_QUEUE] >= 0 and found[file, i, F_END] > found[file, i, F_FIRST]:
                if begin < 0 and found[file, i, F_END] > floors[i]:
                    begin = max(found[file, i, F_FIRST], floors[i])
                end, is_known = max(end, found[file, i, F_END]), True
        if begin < 0:
            begin = end
        first = max(asked[i, A_OFFSET], begin)
        walk[i, W_FROM], walk[i, W_BEGIN], walk[i, W_END], walk[i, W_NEXT] = (
            first,
            begin,
            end,
            first,
        )
        walk[i, W_IS_OTHER] = 0 if is_known and is_sure else 1
        walk[i, W_LEFT] = most_count if is_known and is_sure and first < end else 0
        walk[i, W_LEFT_BYTES] = most_bytes
        for word in range(W_COUNT, WALK_WORDS):
            walk[i, word] = 0


@kernel
def choose(found: Any, walk: Any, chosen: Any) -> Any:
    """Choose what to take of one file; return how many messages that are, at most."""
    total = np.int64(0)
    for i in range(walk.shape[0]):
        chosen[i, C_COUNT] = 0
        first, end = found[i, F_FIRST], found[i, F_END]
        if walk[i, W_LEFT] <= 0 or found[i, F_QUEUE] < 0 or end <= max(first, walk[i, W_NEXT]):
            continue
        if first > walk[i, W_NEXT]:
            pass_by(walk, i)
            continue
        chosen[i, C_QUEUE], chosen[i, C_ORDINAL] = found[i, F_QUEUE], walk[i, W_NEXT] - first
        chosen[i, C_COUNT] = min(walk[i, W_LEFT], end - walk[i, W_NEXT])
        total += chosen[i, C_COUNT]
    return total


@kernel
def pass_by(walk: Any, i: int) -> None:
    """Leave a place to the path that can tell what is wrong with it."""
    walk[i, W_IS_OTHER], walk[i, W_LEFT] = 1, 0


@kernel
def measure(chosen: Any, walk: Any, counts: Any, rows: int, file: int) -> None:
    """Cut each place to the limits, and move on, in the file of this number.

    `counts` (i8) gets how many rows there were of each place. The first message of an answer is always
    in it.
    """
    found = np.int64(0)
    for i in range(chosen.shape[0]):
        counts[i] = chosen[i, C_COUNT]
        found += counts[i]
    row = np.int64(0)
    for i in range(chosen.shape[0]):
        if counts[i] == 0:
            continue
        taken, bodies, extras = np.int64(0), np.int64(0), np.int64(0)
        left = walk[i, W_LEFT_BYTES]
        for j in range(counts[i]):
            if row + j + _AHEAD < found:
                ahead = load_i64(rows + 8 * (row + j + _AHEAD))
                prefetch(ahead)
                prefetch(ahead + _LINE)
            _, _, _, body, _, extra = open_row(load_i64(rows + 8 * (row + j)), 0)
            if j > 0 and bodies + extras + body + extra > left:
                break
            taken, bodies, extras = taken + 1, bodies + body, extras + extra
        if bodies > left and walk[i, W_NEXT] > walk[i, W_FROM]:
            taken, bodies, extras = np.int64(0), np.int64(0), np.int64(0)
        row += counts[i]
        chosen[i, C_COUNT], chosen[i, C_BODIES], chosen[i, C_EXTRAS] = taken, bodies, extras
        if taken > 0:
            walk[i, W_LAST_FILE] = file
        walk[i, W_COUNT] += taken
        walk[i, W_BODIES] += bodies
        walk[i, W_EXTRAS] += extras
        walk[i, W_NEXT] += taken
        walk[i, W_LEFT_BYTES] = left - bodies
        is_full = taken < counts[i] or bodies >= left
        walk[i, W_LEFT] = 0 if is_full else walk[i, W_LEFT] - taken


@kernel
def lay_out(walk: Any) -> Any:
    """Set the positions of the columns of each place; return the bytes of all."""
    total = np.int64(0)
    for i in range(walk.shape[0]):
        walk[i, W_MEMORY] = total
        # The columns of the next one begin at a whole word.
        size = batch_bytes(walk[i, W_COUNT], walk[i, W_BODIES], walk[i, W_EXTRAS])
        total += (size + 7) & ~np.int64(7)
    return total


@kernel
def copy(chosen: Any, counts: Any, walk: Any, rows: int, base: int, memory: int) -> None:
    """Write what one file has of each place behind what older ones had.

    `counts` are those that `measure` gave, `base` the rows' time.
    """
    row = np.int64(0)
    for i in range(chosen.shape[0]):
        if chosen[i, C_COUNT] > 0:
            place = memory + walk[i, W_MEMORY]
            columns = column_places(place, walk[i, W_COUNT], walk[i, W_BODIES])
            copy_rows_behind(
                rows + 8 * row,
                chosen[i, C_COUNT],
                base,
                columns,
                walk[i, W_COPIED],
                walk[i, W_COPIED_BODIES],
                walk[i, W_COPIED_EXTRAS],
            )
            walk[i, W_COPIED] += chosen[i, C_COUNT]
            walk[i, W_COPIED_BODIES] += chosen[i, C_BODIES]
            walk[i, W_COPIED_EXTRAS] += chosen[i, C_EXTRAS]
        row += counts[i]
