"""Counts requests to a store and their bytes, by verb: for the whole store and for single scopes.

The counter sits *below* the retries, so that every attempt is counted, and above the backend, so
that one call of the contract is one request (a listing counts one for each thousand objects, an
upload one). Scopes are objects that the caller passes on, not thread-locals: all threads of one
query share one `RequestCounts`::

    counts = RequestCounts()
    mine = store.scoped(counts)          # the same store; its requests are counted in `counts` too
    pool.map(mine.get, keys)

    with store.measure() as counts:      # all requests of this store during the scope
        ...

    files = store.for_purpose(LOOKUPS)   # the same store; `by_purpose` counts its requests under this name

Depends on base, clock and histogram.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from tierdex.clock import SystemClock
from tierdex.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typing_extensions import Buffer

    from tierdex.clock import Clock
    from tierdex.storage_layer.base import Names, Store, StoredObject, UploadSource

LIST_PAGE = 1000  # objects that one request of a listing returns at most
MANIFESTS = "manifests"  # purposes: manifests and hints, read, followed and written
LOOKUPS = "lookups"  # published files, read for queries
OTHER = "other"


class RequestCounts:
    """Requests by verb, failed requests, bytes each way. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.by_verb: Counter[str] = Counter()
        self.failures = 0
        self.bytes_read = 0
        self.bytes_written = 0

    def add(
        self, verb: str, *, read: int = 0, written: int = 0, failed: bool = False, requests: int = 1
    ) -> None:
        """Count `requests` of `verb` and the bytes that they moved."""
        with self._lock:
            self.by_verb[verb] += requests
            self.failures += failed
            self.bytes_read += read
            self.bytes_written += written

    @property
    def requests(self) -> int:
        """All requests of all verbs, failed ones included."""
        with self._lock:
            return self.by_verb.total()

    @property
    def gets(self) -> int:
        """Requests of the verb `get`."""
        return self.by_verb["get"]

    def __repr__(self) -> str:
        with self._lock:
            return (
                f"RequestCounts({dict(self.by_verb)}, failures={self.failures}, "
                f"bytes_read={self.bytes_read}, bytes_written={self.bytes_written})"
            )


class StoreTotals(NamedTuple):
    """What a store was asked since it was opened: times by verb, failures by verb and error."""

    times: dict[str, Histogram]
    failures: dict[tuple[str, str], int]
    bytes_read: int
    bytes_written: int


NOTHING_ASKED = StoreTotals({}, {}, 0, 0)


class MeteredStore:
    """A store whose requests are counted; `open_store` returns one.

    `decorate` puts the retries around the counter. A scoped view shares everything with its store
    but has one more counter; only the store itself is closed.
    """

    def __init__(
        self,
        inner: Store,
        *,
        decorate: Callable[[Store], Store] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.total = RequestCounts()
        self._times: dict[str, Histogram] = {}  # by verb
        self._failures: Counter[tuple[str, str]] = Counter()  # by verb and error
        self._monotonic = (clock or SystemClock()).monotonic
        self._inner = inner
        self._decorate = decorate or _as_it_is
        self._open_scopes: tuple[RequestCounts, ...] = ()
        self._own: tuple[RequestCounts, ...] = ()
        self._purposes: dict[str, RequestCounts] = {}
        self._root = self
        self._lock = threading.Lock()
        self._store = self._decorate(_CountingStore(inner, self))

    def scoped(self, counts: RequestCounts) -> MeteredStore:
        """Return a view of this store whose requests are counted in `counts` as well."""
        view = object.__new__(MeteredStore)
        view.total = self.total
        view._inner = self._inner
        view._times, view._failures = self._times, self._failures
        view._monotonic = self._monotonic
        view._decorate = self._decorate
        view._open_scopes = ()
        view._own = (*self._own, counts)
        view._root = self._root
        view._purposes = self._purposes
        view._lock = self._lock
        view._store = self._decorate(_CountingStore(self._inner, view))
        return view

    def for_purpose(self, purpose: str) -> MeteredStore:
        """Return a view of this store whose requests are those of `purpose`."""
        with self._lock:
            counts = self._purposes.setdefault(purpose, RequestCounts())
        return self.scoped(counts)

    def by_purpose(self) -> dict[str, dict[str, int]]:
        """Return the requests so far by purpose and verb; `other` are those without one."""
        with self._lock:
            purposes = dict(self._purposes)
        # The total last: it is counted first, so that nothing below is more than its share.
        found = {purpose: Counter(counts.by_verb) for purpose, counts in purposes.items()}
        other = Counter(self.total.by_verb)
        for counted in found.values():
            other.subtract(counted)
        return {purpose: dict(counted) for purpose, counted in (found | {OTHER: +other}).items()}

    def totals(self) -> StoreTotals:
        """Return what the store was asked since it was opened.

        A listing counts as one, with what its reader did between its pages.
        """
        with self._lock:
            times = {verb: found.copy() for verb, found in self._times.items()}
            failures = dict(self._failures)
        return StoreTotals(times, failures, self.total.bytes_read, self.total.bytes_written)

    @contextlib.contextmanager
    def timed(self, verb: str) -> Iterator[None]:
        """Take the time of one request, and count it and its failure."""
        began = self._monotonic()
        try:
            yield
        except Exception as error:
            with self._lock:
                self._failures[verb, type(error).__name__] += 1
            self.count(verb, failed=True)
            raise
        finally:
            seconds = self._monotonic() - began
            with self._lock:
                self._times.setdefault(verb, Histogram()).observe(seconds)

    @contextlib.contextmanager
    def measure(self) -> Iterator[RequestCounts]:
        """Count all requests of this store and its views, on any thread, during the scope."""
        counts = RequestCounts()
        root = self._root
        with self._lock:
            root._open_scopes = (*root._open_scopes, counts)
        try:
            yield counts
        finally:
            with self._lock:
                root._open_scopes = tuple(c for c in root._open_scopes if c is not counts)

    @property
    def url(self) -> str:
        return self._inner.url

    def get(self, key: str, position: int | None = None, length: int | None = None) -> bytes:
        return self._store.get(key, position, length)

    def put(self, key: str, data: Buffer) -> None:
        self._store.put(key, data)

    def put_if_absent(self, key: str, data: Buffer) -> None:
        self._store.put_if_absent(key, data)

    def upload(self, key: str, source: UploadSource, length: int) -> None:
        self._store.upload(key, source, length)

    def delete(self, key: str) -> None:
        self._store.delete(key)

    def list(self, prefix: str, start_after: str = "") -> Iterator[StoredObject]:
        return self._store.list(prefix, start_after)

    def list_folders(self, prefix: str) -> Names:
        return self._store.list_folders(prefix)

    def head(self, key: str) -> StoredObject:
        return self._store.head(key)

    def time_ms(self) -> int | None:
        return self._store.time_ms()

    def close(self) -> None:
        self._store.close()

    def count(
        self, verb: str, *, read: int = 0, written: int = 0, failed: bool = False, requests: int = 1
    ) -> None:
        """Count a request in the total, in this view's counters and in every open scope."""
        for counts in (self.total, *self._own, *self._root._open_scopes):
            counts.add(verb, read=read, written=written, failed=failed, requests=requests)


class _CountingStore:
    """Passes every call on to `inner` and counts it in `meter`."""

    def __init__(self, inner: Store, meter: MeteredStore) -> None:
        self._inner = inner
        self._meter = meter

    @property
    def url(self) -> str:
        return self._inner.url

    def get(self, key: str, position: int | None = None, length: int | None = None) -> bytes:
        if length == 0:  # answered without a request
            return self._inner.get(key, position, length)
        with self._meter.timed("get"):
            data = self._inner.get(key, position, length)
        self._meter.count("get", read=len(data))
        return data

    def put(self, key: str, data: Buffer) -> None:
        with self._meter.timed("put"):
            self._inner.put(key, data)
        self._meter.count("put", written=memoryview(data).nbytes)

    def put_if_absent(self, key: str, data: Buffer) -> None:
        with self._meter.timed("put_if_absent"):
            self._inner.put_if_absent(key, data)
        self._meter.count("put_if_absent", written=memoryview(data).nbytes)

    def upload(self, key: str, source: UploadSource, length: int) -> None:
        with self._meter.timed("upload"):
            self._inner.upload(key, source, length)
        self._meter.count("upload", written=length)

    def delete(self, key: str) -> None:
        with self._meter.timed("delete"):
            self._inner.delete(key)
        self._meter.count("delete")

    def list(self, prefix: str, start_after: str = "") -> Iterator[StoredObject]:
        listed = 0
        with self._meter.timed("list"):
            for entry in self._inner.list(prefix, start_after):
                if listed % LIST_PAGE == 0:  # the first of a page: its request was sent
                    self._meter.count("list")
                listed += 1
                yield entry
        if listed == 0:
            self._meter.count("list")

    def list_folders(self, prefix: str) -> Names:
        with self._meter.timed("list_folders"):
            folders = self._inner.list_folders(prefix)
        self._meter.count("list_folders")
        return folders

    def head(self, key: str) -> StoredObject:
        with self._meter.timed("head"):
            found = self._inner.head(key)
        self._meter.count("head")
        return found

    def time_ms(self) -> int | None:
        with self._meter.timed("time"):
            found = self._inner.time_ms()
        self._meter.count("time")
        return found

    def close(self) -> None:
        self._inner.close()


def _as_it_is(store: Store) -> Store:
    return store
