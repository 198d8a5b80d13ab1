"""Counts the entries of one lookup by time: the search of a query, without entries and without pages.

A count reads every page that holds the key, where a query stops when its page is full. So it is bounded as
one query is (`query_max_requests`, `query_max_items`), and stops at `max_count` entries: newest files first.

Depends on executor, answer, requests and numpy.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tierdex.index_service.answer import Histogram
from tierdex.index_service.requests.lookups import Lookups

if TYPE_CHECKING:
    from tierdex.index_service.peers.peer_round import PeerRound
    from tierdex.index_service.query.executor import LookupExecutor
    from tierdex.index_service.requests.query import QueryRequest

_BITS = (1 << 64) - 1


def count_by_time(
    executor: LookupExecutor,
    request: QueryRequest,
    *,
    buckets: int,
    max_count: int,
    fail: bool,
    peer_round: PeerRound,
) -> Histogram:
    """Count the newest `max_count` entries of a request, whose own `max_count` is of no account.

    Raises IncompleteAnswerError when `fail` and a file is missing.
    """
    lookups = Lookups.of([replace(request, max_count=max_count)])
    result = executor.run(lookups, peer_round=peer_round)
    if fail:
        result.refuse_incomplete()
    missing = [*result.everywhere, *(row.missing for row in result.matches.missing)]
    found = [file.rows["timestamp"] for file in result.matches.files]
    times = np.concatenate(found) if found else np.empty(0, np.int64)
    return replace(
        in_buckets(times, buckets),
        more=len(times) >= max_count,
        complete=not missing,
        missing=missing,
        as_of=result.as_of,
    )


def in_buckets(times: np.ndarray, buckets: int) -> Histogram:
    """Count times (i8, any int64) in at most `buckets` buckets of one width from the first to the last."""
    if not len(times):
        return Histogram()
    begin, end = int(times.min()), int(times.max())
    width = -(-(end - begin + 1) // buckets)
    # Modulo 2^64: two times may be further apart than an int64 holds.
    since = times.astype(np.uint64) - np.uint64(begin & _BITS)
    places = (since // np.uint64(width)).astype(np.int64)
    counts = np.bincount(places, minlength=(end - begin) // width + 1)
    return Histogram(begin=begin, end=end, width_ms=width, counts=counts.tolist())
