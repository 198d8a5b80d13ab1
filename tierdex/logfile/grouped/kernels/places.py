"""Places that are read together, in a grouped file: which queues it has, which pages, rows of these.

    find_grouped    where each place's queue is
    plan_pages      first and last page of what was chosen of each
    measure_rows, store_rows   the chosen messages of open pages as a journal's rows, some pages at a time
    leave_incomplete           places of which a page was lacking

`opened` has a row (P_*) an open page, in order of their numbers in `numbers`; 0 in P_COUNT: not to be
read. Depends on directory, page_read, page_write, blocks, places, topics and layout.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tierdex.fileparts.kernels.compile import kernel
from tierdex.logfile import layout
from tierdex.logfile.grouped.kernels.directory import (
    COUNT,
    F_PAGE_COUNT,
    FIRST_OFFSET,
    entry_of,
    find_page,
    find_queue,
    queue_value,
)
from tierdex.logfile.grouped.kernels.page_read import (
    P_BODY_BYTES,
    P_COUNT,
    P_EXTRA_BYTES,
    bodies_of,
    body_size,
    extra_size,
    extras_of,
    find_run,
    message_flags,
    message_time,
)
from tierdex.logfile.grouped.kernels.page_write import store_row
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

_ROW_MOST = layout.ROW_BYTES + layout.LONG_TIME_BYTES + layout.EXTRA_LENGTH_BYTES + 3


@kernel
def find_grouped(words: Any, blocks: Any, topics: Any, asked: Any, found: Any) -> None:
    """Find each place's queue; `topics` (TopicsAt) says which are whose."""
    name, first, count = np.int64(0), np.int64(0), np.int64(0)
    for i in range(asked.shape[0]):
        if asked[i, A_NAME] != name:
            name = asked[i, A_NAME]
            first, count = topic_queues(topics, name, asked[i, A_NAME_BYTES])
        found[i, F_QUEUE] = ABSENT
        if count == 0:
            continue
        queue, damaged = find_queue(words, blocks, first, count, asked[i, A_QUEUE_ID])
        begin, held = np.int64(0), np.int64(0)
        if damaged == SOUND and queue >= 0:
            begin, damaged = queue_value(words, blocks, queue, FIRST_OFFSET)
        if damaged == SOUND and queue >= 0:
            held, damaged = queue_value(words, blocks, queue, COUNT)
        found[i, F_QUEUE] = queue if damaged == SOUND else UNSURE
        found[i, F_FIRST], found[i, F_END] = begin, begin + held


@kernel
def plan_pages(
    words: Any, blocks: Any, walk: Any, chosen: Any, pages: Any, most_pages: int
) -> None:
    """Write the first and the last page (i8) of each place; a place of more than that many is passed by."""
    for i in range(chosen.shape[0]):
        wanted = chosen[i, C_COUNT]
        if wanted == 0:
            continue
        queue, ordinal = chosen[i, C_QUEUE], chosen[i, C_ORDINAL]
        first, damaged = find_page(words, blocks, queue, ordinal)
        last = first - 1
        for page in range(first, min(first + most_pages, words[F_PAGE_COUNT])):
            last = page
            _, next_queue, next_ordinal, damaged_next = entry_of(words, blocks, page + 1)
            damaged = max(damaged, damaged_next)
            if next_queue > queue or (next_queue == queue and next_ordinal >= ordinal + wanted):
                break
        else:
            last = first + most_pages
        pages[i, 0], pages[i, 1] = first, last
        if damaged != SOUND or last == first + most_pages:
            chosen[i, C_COUNT] = 0
            pass_by(walk, i)


@kernel
def _in_page(words: Any, blocks: Any, p: Any, page: int, queue: int, ordinal: int, end: int) -> Any:
    """Return (place in the page, ordinal, how many) of what it has of a queue's [ordinal, end)."""
    none = np.int64(0), np.int64(0), np.int64(0)
    _, first_queue, first_ordinal, damaged = entry_of(words, blocks, page)
    above = queue - first_queue
    if damaged != SOUND or above < 0 or p[P_COUNT] == 0:
        return none
    begin = first_ordinal if above == 0 else np.int64(0)
    first, count = find_run(p, above)
    low, high = max(begin, ordinal), min(begin + count, end)
    if low >= high:
        return none
    return first + low - begin, low, high - low


@kernel
def measure_rows(
    words: Any, blocks: Any, chosen: Any, pages: Any, mine: Any, numbers: Any, opened: Any
) -> Any:
    """Return the bytes that `store_rows` takes at most, for the places `mine` (i8)."""
    total = np.int64(0)
    for m in range(mine.shape[0]):
        i = mine[m]
        ordinal = chosen[i, C_ORDINAL]
        at = np.searchsorted(numbers, pages[i, 0])
        while at < numbers.shape[0] and numbers[at] <= pages[i, 1]:
            first, _, count = _in_page(
                words, blocks, opened[at], numbers[at], chosen[i, C_QUEUE], ordinal,
                ordinal + chosen[i, C_COUNT],
            )  # fmt: skip
            p = opened[at]
            total += bodies_of(p, first, first + count) + extras_of(p, first, first + count)
            total += count * _ROW_MOST
            at += 1
    return total


@kernel
def store_rows(
    words: Any, blocks: Any, chosen: Any, pages: Any, mine: Any, numbers: Any, opened: Any,
    starts: Any, memory: int, rows: Any,
) -> None:  # fmt: skip
    """Write what open pages have of the places `mine` as rows at `memory`, which is measured.

    The addresses go to `rows`, where those of each place begin at `starts` (i8).
    """
    for m in range(mine.shape[0]):
        i = mine[m]
        ordinal = chosen[i, C_ORDINAL]
        at = np.searchsorted(numbers, pages[i, 0])
        while at < numbers.shape[0] and numbers[at] <= pages[i, 1]:
            p = opened[at]
            first, found, count = _in_page(
                words, blocks, p, numbers[at], chosen[i, C_QUEUE], ordinal,
                ordinal + chosen[i, C_COUNT],
            )  # fmt: skip
            row = starts[i] + found - ordinal
            body_at = p[P_BODY_BYTES] + bodies_of(p, 0, first)
            extra_at = p[P_EXTRA_BYTES] + extras_of(p, 0, first)
            for j in range(first, first + count):
                body, extra = body_size(p, j), extra_size(p, j)
                rows[row] = memory
                row += 1
                memory += store_row(
                    memory, message_time(p, j), message_flags(p, j), body_at, body, extra_at, extra
                )
                body_at += body
                extra_at += extra
            at += 1


@kernel
def leave_incomplete(walk: Any, chosen: Any, rows: Any) -> Any:
    """Pass the places by of which a row is lacking (0), and close the gaps; return how many rows are left."""
    at, kept = np.int64(0), np.int64(0)
    for i in range(chosen.shape[0]):
        count, begin = chosen[i, C_COUNT], kept
        for _ in range(count):
            rows[kept] = rows[at]
            if rows[at] == 0 and chosen[i, C_COUNT] > 0:
                chosen[i, C_COUNT] = 0
                pass_by(walk, i)
            at += 1
            kept += 1
        if chosen[i, C_COUNT] == 0:
            kept = begin
    return kept
