"""What a query needs of a file, whatever its form or state.

A reader answers `search`: rows of the schema's item dtype and where they lie, newest arrival first. It
raises a typed error when it cannot read (never returns less instead), and charges requests to the meter
of this query and file. A meter belongs to one thread at a time.

Depends on fileparts, indexfile, requests and numpy.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from tierdex.fileparts.dictionary import Dictionaries
from tierdex.index_service.requests.lookups import NO_TOPIC
from tierdex.indexfile.layout import KIND_BIT, KIND_MESSAGE_ID, TAG_ANY_MESSAGE_ID, TAG_NONE
from tierdex.indexfile.lookup import Found, Search
from tierdex.indexfile.schema import MESSAGE_SCHEMA, TOPIC_DICTIONARY
from tierdex.indexfile.work_limit import NO_LIMIT, BudgetExceededError, WorkLimit

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tierdex.index_service.requests.lookups import Lookups
    from tierdex.indexfile.schema import Schema


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
        """Return what one more search of a file may cost. Raises BudgetExceededError: nothing."""
        with self._lock:
            left = WorkLimit(self._items, self._entries)
        if left.items <= 0 or left.rows <= 0:
            raise left.refuse()
        if self._parent is None:
            return left
        above = self._parent.work_limit()
        return WorkLimit(min(left.items, above.items), min(left.rows, above.rows))

    def close(self) -> None:
        """Send no further request: the answer is complete, or no caller waits for it."""
        with self._lock:
            self._closed = True

    def take_request(self) -> None:
        with self._lock:
            if self._closed:
                raise BudgetExceededError("the query has ended")
            if self._requests <= 0:
                raise BudgetExceededError(
                    "the query's request budget (query_max_requests) is used up: give a range of times, "
                    "merge old files into runs (`tierdex merge STORE`), or raise it"
                )
            self._requests -= 1
        if self._parent is not None:
            self._parent.take_request()

    def take(self, *, items: int = 0, entries: int = 0) -> None:
        """Count items that were looked at and entries that were found: `work_limit` bounds the next."""
        with self._lock:
            self._items -= items
            self._entries -= entries
        if self._parent is not None:
            self._parent.take(items=items, entries=entries)


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

    def charge(self, items: int, entries: int) -> None:
        """Count what a search looked at, and the entries that it found."""
        self.items += items
        self.budget.take(items=items, entries=entries)

    def charge_request(self, length: int) -> None:
        """Take leave for one page read, before it is sent."""
        self.budget.take_request()
        self.requests += 1
        self.bytes += length

    def take_over(self, other: FileMeter) -> None:
        """Take leave for the sidecar reads that `other` counted before."""
        for _ in range(other.sidecar_requests):
            self.charge_sidecar(0)
        self.bytes += other.bytes

    def charge_sidecar(self, length: int) -> None:
        """Take leave for one sidecar read, before it is sent; counted apart."""
        self.budget.take_request()
        self.sidecar_requests += 1
        self.bytes += length


class FileSearch(NamedTuple):
    """What one file is asked for: some lookups of a batch."""

    lookups: Lookups
    wanted: np.ndarray  # i8, numbers of the lookups; rising where `places` is None
    limits: np.ndarray  # i8, rows wanted of each
    places: np.ndarray | None  # i8, where each goes on in this file; None: at its newest item
    most_items: int  # that each may look at before it is cut

    @property
    def _is_all(self) -> bool:
        """Return whether all lookups are wanted, in their order."""
        count = self.lookups.count
        return len(self.wanted) == count and (count == 1 or self.places is None)

    def within(self, first: int, last: int) -> FileSearch:
        """Return the search for those lookups whose hash lies from `first` to `last`, both included."""
        hashes = self.lookups.hashes[self.wanted]
        inside = np.flatnonzero((hashes >= np.uint64(first)) & (hashes <= np.uint64(last)))
        return self._replace(
            wanted=self.wanted[inside],
            limits=self.limits[inside],
            places=None if self.places is None else self.places[inside],
        )

    def columns(self, which: Any, tags: np.ndarray) -> Search:
        """Return the lookups `wanted[which]` as columns; `tags` are what this file calls their topics."""
        lookups = self.lookups
        is_all = self._is_all and isinstance(which, slice)
        numbers = which if is_all else self.wanted[which]  # of all no column is copied
        return Search(
            lookups.hashes[numbers],
            tags[which],
            lookups.begin[numbers],
            lookups.end[numbers],
            self.limits[which],
            None if self.places is None else self.places[which],
            self.most_items,
        )

    def tags(self, dictionaries: Dictionaries) -> np.ndarray:
        """Return the tag (u4) that items of each wanted lookup have in a file with these dictionaries."""
        lookups, topic_index, kinds = self.lookups, self.lookups.topic_index, self.lookups.kinds
        if not self._is_all:
            topic_index, kinds = topic_index[self.wanted], kinds[self.wanted]
        known = dictionaries.indexes(TOPIC_DICTIONARY, lookups.topics)
        of_topics = [TAG_NONE if index < 0 else index for index in known]
        tags = np.array([*of_topics, TAG_NONE], np.uint32)  # NO_TOPIC is the last
        found: np.ndarray = tags[topic_index]
        if kinds.any():
            is_id = kinds == KIND_MESSAGE_ID
            found[is_id & (found != TAG_NONE)] |= KIND_BIT
            found[is_id & (topic_index == NO_TOPIC)] = TAG_ANY_MESSAGE_ID
        return found


class FileRows(NamedTuple):
    """What a file found: rows of lookup `wanted[i]` are `found.rows[offsets[i] : offsets[i + 1]]`.

    Lookups that the file cannot hold may be left out of `wanted`; its order is the reader's.
    """

    schema: Schema
    dictionaries: Dictionaries
    wanted: np.ndarray  # i8
    found: Found

    @classmethod
    def nothing(cls) -> FileRows:
        """Return what a file found that has none of the lookups."""
        none = Found.nothing(0, MESSAGE_SCHEMA.dtype)
        return cls(MESSAGE_SCHEMA, Dictionaries([TOPIC_DICTIONARY]), np.zeros(0, np.int64), none)


class QueryReader(Protocol):
    """A file that can be searched. Safe to share between threads."""

    is_local: bool
    hash_function: str | None  # set when a match is by hash only, and not by our 64-bit one

    def excludes(self, key_hash: int) -> bool:
        """Return whether memory alone tells that the file has no item of this hash; it may not know.

        Never raises for damage: the search does.
        """
        ...

    def search(
        self, wanted: FileSearch, meter: FileMeter, executor: Executor | None = None
    ) -> FileRows:
        """Return the newest matching rows of each lookup. `executor` reads ranges side by side; its own
        threads may ask, too.

        Requests are charged to `meter`. Raises CorruptFileError and what the store raises: a file that
        cannot be read never looks like one without matches.
        """
        ...
