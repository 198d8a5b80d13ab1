"""What a query needs of a file, whatever its form or state.

A reader yields *chunks*: rows of the schema's item dtype and where they lie, newest arrival first. It
raises a typed error when it cannot read (never yields less instead), and charges what it did to the
meter of this query and file. A meter belongs to one thread at a time.

Depends on indexfile.work_limit and numpy.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tierdex.indexfile.work_limit import NO_LIMIT, BudgetExceededError, WorkLimit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np

    from tierdex.index_service.requests.query import QueryRequest


__all__ = [
    "Budget",
    "BudgetExceededError",
    "Candidate",
    "Chunk",
    "FileMeter",
    "QueryReader",
]


class Budget:
    """What one query may still spend, shared by the threads that work for it.

    A query that belongs to a batch spends of the batch's budget too (`parent`), so that many of them
    cost no more than the batch may.
    """

    def __init__(
        self,
        *,
        requests: int,
        items: int,
        entries: int = NO_LIMIT.rows,
        parent: Budget | None = None,
    ) -> None:
        self._lock = threading.Lock()
        self._requests = requests
        self._items = items
        self._entries = entries
        self._parent = parent
        self._closed = False

    def work_limit(self) -> WorkLimit:
        """Return what one more call on a file may cost."""
        with self._lock:
            return WorkLimit(max(0, self._items), max(0, self._entries))

    def close(self) -> None:
        """Let no further request be sent: the answer is complete, or nobody waits for it."""
        with self._lock:
            self._closed = True

    def take_request(self) -> None:
        with self._lock:
            if self._closed:
                raise BudgetExceededError("the query has ended")
            if self._requests <= 0:
                raise BudgetExceededError(
                    "the query's request budget (query_max_requests) is used up"
                )
            self._requests -= 1
        if self._parent is not None:
            self._parent.take_request()

    def take_items(self, count: int) -> None:
        with self._lock:
            self._items -= count
            if self._items < 0:
                raise BudgetExceededError("the query's work budget (query_max_items) is used up")
        if self._parent is not None:
            self._parent.take_items(count)

    def take_entries(self, count: int) -> None:
        """Take leave for entries of the answer; only a batch's are bounded beyond `max_count`."""
        with self._lock:
            self._entries -= count
            if self._entries < 0:
                raise BudgetExceededError(
                    "the batch's entry budget (query_max_entries) is used up: ask for less at once"
                )


class FileMeter:
    """What one query spent on one file."""

    __slots__ = ("budget", "bytes", "filtered", "items", "requests", "sidecar_requests")

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.requests = 0
        self.bytes = 0
        self.sidecar_requests = 0
        self.items = 0
        self.filtered = False  # the filter said no: nothing else was read

    def charge_items(self, count: int) -> None:
        self.items += count
        self.budget.take_items(count)

    def charge_request(self, length: int) -> None:
        """Take leave for one page read, before it is sent."""
        self.budget.take_request()
        self.requests += 1
        self.bytes += length

    def charge_sidecar(self, length: int) -> None:
        """Take leave for one sidecar read, before it is sent; counted apart."""
        self.budget.take_request()
        self.sidecar_requests += 1
        self.bytes += length


class Candidate(NamedTuple):
    """One matching item, decoded as far as every form of a file agrees: its location and time."""

    location: tuple[Any, ...]  # topic, then the schema's fields in order
    timestamp: int


class Chunk(NamedTuple):
    """Some matching rows; `places[i]` is where a later query finds row i again, see `Cursor.place`."""

    rows: Any
    places: Sequence[int] | np.ndarray


class QueryReader(Protocol):
    """A file that can be asked. Safe to share between threads."""

    is_local: bool
    hash_function: str | None  # set when a match is by hash only, and not by our 64-bit one

    def chunks(
        self, request: QueryRequest, meter: FileMeter, place: int | None = None
    ) -> Iterator[Chunk]:
        """Yield the matching items' rows, newest arrival first; from `place` on, or shortly before.

        None: from the newest on. A place that this file cannot have yields nothing.
        """
        ...

    def location_names(self) -> tuple[str, ...]:
        """Return the schema's field names, in order."""
        ...

    def candidates(self, rows: Any) -> list[Candidate]:
        """Decode rows: dictionary indices become strings."""
        ...

    def fingerprints(self, rows: Any) -> np.ndarray:
        """Return what `repeats.fingerprints` (u8[n, 2]) gives for the rows' identities."""
        ...
