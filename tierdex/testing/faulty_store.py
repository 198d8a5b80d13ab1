"""A store that fails on demand: by a schedule ("the third put"), by seeded chance, or in an outage.

Faults occur at the seam, so the layers above see the behaviour of a bad network or server::

    store = FaultyStore(MemoryStore(), ids=SeededIds(7), clock=ManualClock())
    store.fail("put", nth=3, fault=Fault.FAIL_AFTER)      # it took effect, and the caller cannot know
    store.chances = {Fault.TIMEOUT_BEFORE: 0.05}          # every verb, by the seed
    with store.outage(): ...                              # nothing gets through

The same seed, schedule and order of calls give the same faults; `history` lists them. Three faults
break the contract of a store on purpose, since some servers do: SHORT_BODY and ALTERED_BODY (the
checksums above must detect them) and TAKEN_BY_OURSELVES (412 on our own success, from behind a
proxy that repeats requests: an id inside the object must tell).

Depends on storage_layer and the ground.
"""

from __future__ import annotations

import contextlib
import threading
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tierdex.clock import Bell
from tierdex.errors import (
    AlreadyExistsError,
    StoreRefusedError,
    StoreTimeoutError,
    StoreUnavailableError,
)
from tierdex.ids import SeededIds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from typing_extensions import Buffer

    from tierdex.clock import Clock
    from tierdex.ids import IdSource
    from tierdex.storage_layer.base import Names, Store, StoredObject, UploadSource

T = TypeVar("T")


class Fault(Enum):
    """The faults of a call. *After* means that the call took effect."""

    FAIL_BEFORE = "fail-before"
    FAIL_AFTER = "fail-after"
    TIMEOUT_BEFORE = "timeout-before"
    TIMEOUT_AFTER = "timeout-after"
    REFUSED = "refused"  # 403, for a while
    BUSY = "busy"  # 409: another conditional write is under way, nothing applied
    CRAWL = "crawl"  # takes `crawl_s` on the clock, then succeeds
    SHORT_BODY = "short-body"
    ALTERED_BODY = "altered-body"
    TAKEN_BY_OURSELVES = "taken-by-ourselves"  # 412 although this very call took effect


# Faults that only these verbs can have; on other verbs the chance of them does nothing.
ONLY_FOR = {
    Fault.SHORT_BODY: ("get",),
    Fault.ALTERED_BODY: ("get",),
    Fault.BUSY: ("put_if_absent",),
    Fault.TAKEN_BY_OURSELVES: ("put_if_absent",),
}


class Struck(NamedTuple):
    """One fault that happened: which verb, on which key or prefix, and what."""

    verb: str
    key: str
    fault: Fault


class FaultyStore:
    """A store in front of `inner` with knobs. Safe to share between threads.

    With `chances` the seed decides a call's fate in the order in which calls arrive: deterministic as
    long as that order is.
    """

    def __init__(
        self,
        inner: Store,
        *,
        ids: IdSource | None = None,
        clock: Clock | None = None,
        chances: Mapping[Fault, float] | None = None,
        crawl_s: float = 30.0,
    ) -> None:
        self.inner = inner
        self._ids = ids or SeededIds(0)
        self._clock = clock
        self._lock = threading.Lock()
        self._calls: dict[str, int] = {}
        self._schedule: dict[tuple[str, int], Fault] = {}
        self._is_out = False
        self.chances: dict[Fault, float] = dict(chances or {})
        self.crawl_s = crawl_s
        self.history: list[Struck] = []

    def fail(self, verb: str, *, nth: int = 1, fault: Fault, count: int = 1) -> None:
        """Make the `nth` call of `verb` from now on, and the `count` - 1 behind it, meet `fault`."""
        with self._lock:
            first = self._calls.get(verb, 0) + nth
            for number in range(first, first + count):
                self._schedule[verb, number] = fault

    def cancel_faults(self) -> None:
        """Let no call meet what `fail` has scheduled and no call has met yet."""
        with self._lock:
            self._schedule.clear()

    def begin_outage(self) -> None:
        """From now on nothing gets through."""
        self._is_out = True

    def end_outage(self) -> None:
        """The store is well again, but for the schedule and the chances."""
        self._is_out = False

    @contextlib.contextmanager
    def outage(self) -> Iterator[None]:
        """Nothing gets through inside the scope."""
        self.begin_outage()
        try:
            yield
        finally:
            self.end_outage()

    def calls(self, verb: str) -> int:
        """Return how many calls of `verb` have arrived."""
        with self._lock:
            return self._calls.get(verb, 0)

    @property
    def url(self) -> str:
        return self.inner.url

    def get(self, key: str, position: int | None = None, length: int | None = None) -> bytes:
        fault = self._next_fault("get", key)
        data = self._call(fault, key, lambda: self.inner.get(key, position, length))
        if data and fault is Fault.SHORT_BODY:
            return data[: self._below(len(data))]
        if data and fault is Fault.ALTERED_BODY:
            damaged = bytearray(data)
            damaged[self._below(len(data))] ^= 1 << self._below(8)
            return bytes(damaged)
        return data

    def put(self, key: str, data: Buffer) -> None:
        self._call(self._next_fault("put", key), key, lambda: self.inner.put(key, data))

    def put_if_absent(self, key: str, data: Buffer) -> None:
        fault = self._next_fault("put_if_absent", key)
        self._call(fault, key, lambda: self.inner.put_if_absent(key, data))
        if fault is Fault.TAKEN_BY_OURSELVES:
            raise AlreadyExistsError(f"{key}: 412, for our own success")

    def upload(self, key: str, source: UploadSource, length: int) -> None:
        fault = self._next_fault("upload", key)
        self._call(fault, key, lambda: self.inner.upload(key, source, length))

    def delete(self, key: str) -> None:
        self._call(self._next_fault("delete", key), key, lambda: self.inner.delete(key))

    def list(self, prefix: str, start_after: str = "") -> Iterator[StoredObject]:
        fault = self._next_fault("list", prefix)
        if fault in (Fault.FAIL_AFTER, Fault.TIMEOUT_AFTER):
            return self._list_half(fault, prefix, start_after)
        return self._call(fault, prefix, lambda: self.inner.list(prefix, start_after))

    def list_folders(self, prefix: str) -> Names:
        fault = self._next_fault("list_folders", prefix)
        return self._call(fault, prefix, lambda: self.inner.list_folders(prefix))

    def head(self, key: str) -> StoredObject:
        return self._call(self._next_fault("head", key), key, lambda: self.inner.head(key))

    def time_ms(self) -> int | None:
        fault = Fault.FAIL_BEFORE if self._is_out else None  # no fault of its own
        return self._call(fault, "time", self.inner.time_ms)

    def close(self) -> None:
        self.inner.close()

    def _next_fault(self, verb: str, key: str) -> Fault | None:
        """Count the call and decide its fate: outage, else schedule, else chance."""
        with self._lock:
            number = self._calls[verb] = self._calls.get(verb, 0) + 1
            fault = self._schedule.pop((verb, number), None)
            if self._is_out:
                fault = Fault.FAIL_BEFORE
            elif fault is None:
                fault = self._fault_by_chance(verb)
            if fault is not None:
                self.history.append(Struck(verb, key, fault))
        return fault

    def _fault_by_chance(self, verb: str) -> Fault | None:
        if not self.chances:
            return None
        drawn = self._ids.random()
        for fault, chance in self.chances.items():
            if drawn < chance:
                return fault if verb in ONLY_FOR.get(fault, (verb,)) else None
            drawn -= chance
        return None

    def _call(self, fault: Fault | None, key: str, call: Callable[[], T]) -> T:
        if fault in (Fault.FAIL_BEFORE, Fault.BUSY):
            raise StoreUnavailableError(f"{key}: {fault.value}")
        if fault is Fault.TIMEOUT_BEFORE:
            raise StoreTimeoutError(f"{key}: {fault.value}")
        if fault is Fault.REFUSED:
            raise StoreRefusedError(f"{key}: {fault.value}")
        if fault is Fault.CRAWL and self._clock is not None:
            self._clock.wait(Bell(), self.crawl_s)
        result = call()
        if fault is Fault.FAIL_AFTER:
            raise StoreUnavailableError(f"{key}: {fault.value}")
        if fault is Fault.TIMEOUT_AFTER:
            raise StoreTimeoutError(f"{key}: {fault.value}")
        return result

    def _list_half(self, fault: Fault, prefix: str, start_after: str) -> Iterator[StoredObject]:
        """Yield some of the listing, then fail: the answer was cut on its way."""
        listed = [*self.inner.list(prefix, start_after)]
        yield from listed[: len(listed) // 2]
        self._call(fault, prefix, lambda: None)

    def _below(self, limit: int) -> int:
        return int(self._ids.random() * limit)
