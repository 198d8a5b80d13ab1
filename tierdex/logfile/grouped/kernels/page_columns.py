"""Open pages -> columns of all their messages, one page after the other.

    measure_pages  messages, and bytes of bodies and extras
    copy_pages     queue, time, body and extra of each message
    list_runs      queue, messages, bytes of bodies and times of each run

The pages are opened by `page_read`, which has checked that no read of their messages leaves the payload.
Depends on page_read, compile and intrinsics.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.intrinsics import copy_bytes
from tierdex.logfile.grouped.kernels.page_read import (
    P_BODY_BYTES,
    P_COUNT,
    P_EXTRA_BYTES,
    P_RUNS,
    bodies_of,
    body_size,
    extra_size,
    message_time,
    run_at,
    totals,
)

# A run of messages of one queue: its page, its queue less the page's first, messages, bytes of their bodies,
# least and greatest time.
R_PAGE, R_QUEUE, R_COUNT, R_BODIES, R_LEAST, R_GREATEST = range(6)
RUN_WORDS: Final = 6


@kernel
def measure_pages(pages: Any, totals: Any) -> None:
    """Write (messages, bytes of bodies, bytes of extras) of each open page to its row of `totals`."""
    for page in range(pages.shape[0]):
        p = pages[page]
        totals[page, 0], totals[page, 1] = p[P_COUNT], bodies_of(p, 0, p[P_COUNT])
        totals[page, 2] = p[P_BODY_BYTES] - p[P_EXTRA_BYTES]


@kernel
def copy_pages(
    pages: Any, first_queues: Any, queues: Any, times: Any,
    body_ends: Any, bodies: int, extra_ends: Any, extras: int,
) -> None:  # fmt: skip
    """Write the columns of all messages; `body_ends` and `extra_ends` have one element more, of 0, in front.

    `bodies` and `extras` are addresses. A queue is its index in the file: `first_queues` has the page's.
    """
    at, body_end, extra_end = np.int64(0), np.int64(0), np.int64(0)
    body_ends[0], extra_ends[0] = 0, 0
    for page in range(pages.shape[0]):
        p = pages[page]
        begin = at
        for run in range(p[P_RUNS]):
            queue, count = run_at(p, run)
            for _ in range(count):
                queues[at] = first_queues[page] + queue
                at += 1
        first_body, first_extra = body_end, extra_end
        for i in range(p[P_COUNT]):
            times[begin + i] = message_time(p, i)
            body_end += body_size(p, i)
            extra_end += extra_size(p, i)
            body_ends[begin + i + 1], extra_ends[begin + i + 1] = body_end, extra_end
        copy_bytes(bodies + first_body, p[P_BODY_BYTES], body_end - first_body)
        copy_bytes(extras + first_extra, p[P_EXTRA_BYTES], extra_end - first_extra)


@kernel
def list_runs(pages: Any, runs: Any) -> None:
    """Write a row (R_*) for each run of the open pages, in order."""
    row = 0
    for page in range(pages.shape[0]):
        p, first = pages[page], np.int64(0)
        for run in range(p[P_RUNS]):
            queue, count = run_at(p, run)
            bodies, least, greatest = totals(p, first, count)
            runs[row, R_PAGE], runs[row, R_QUEUE], runs[row, R_COUNT] = page, queue, count
            runs[row, R_BODIES], runs[row, R_LEAST], runs[row, R_GREATEST] = bodies, least, greatest
            first += count
            row += 1
