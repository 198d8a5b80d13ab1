"""A store whose process dies around a call, and loops over every call of a scenario.

Every call on a seam is a failpoint. Production code names none of them, and a new call is covered
as soon as it is made::

    for point in every_call(count_calls(scenario)):
        disk, store = fresh(); point.arm(disk, store)
        with pytest.raises(SimulatedCrash): scenario(disk, store)

Depends on simulated_disk and storage_layer.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tests.simulation.simulated_disk import SimulatedCrash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typing_extensions import Buffer

    from tierdex.storage_layer.base import Names, Store, StoredObject, UploadSource


T = TypeVar("T")


class CrashPoint(NamedTuple):
    """The nth call from now on, and the side of it on which the process dies."""

    nth: int
    after: bool

    def __str__(self) -> str:
        return f"{'after' if self.after else 'before'} call {self.nth}"


def every_call(count: int) -> Iterator[CrashPoint]:
    """Yield the points before and after each of `count` calls."""
    for nth in range(1, count + 1):
        yield CrashPoint(nth, after=False)
        yield CrashPoint(nth, after=True)


class CrashingStore:
    """A store in front of `inner` whose caller dies before or after the nth call.

    A crash raises SimulatedCrash, now and at every later call, and calls `on_crash`, so that the disk
    can die with it (`disk.crash_at(1)`). Safe to share between threads.
    """

    def __init__(self, inner: Store, on_crash: Callable[[], None] = lambda: None) -> None:
        self._inner = inner
        self._on_crash = on_crash
        self._lock = threading.Lock()
        self._point: CrashPoint | None = None
        self.calls = 0
        self.is_dead = False

    def crash_at(self, point: CrashPoint) -> None:
        """Count from now on."""
        self.calls, self._point, self.is_dead = 0, point, False

    def revive(self) -> None:
        """The next process calls."""
        self._point, self.is_dead = None, False

    @property
    def url(self) -> str:
        return self._inner.url

    def get(self, key: str, position: int | None = None, length: int | None = None) -> bytes:
        return self._around(lambda: self._inner.get(key, position, length))

    def put(self, key: str, data: Buffer) -> None:
        self._around(lambda: self._inner.put(key, data))

    def put_if_absent(self, key: str, data: Buffer) -> None:
        self._around(lambda: self._inner.put_if_absent(key, data))

    def upload(self, key: str, source: UploadSource, length: int) -> None:
        self._around(lambda: self._inner.upload(key, source, length))

    def delete(self, key: str) -> None:
        self._around(lambda: self._inner.delete(key))

    def list(self, prefix: str, start_after: str = "") -> Iterator[StoredObject]:
        return self._around(lambda: self._inner.list(prefix, start_after))

    def list_folders(self, prefix: str) -> Names:
        return self._around(lambda: self._inner.list_folders(prefix))

    def head(self, key: str) -> StoredObject:
        return self._around(lambda: self._inner.head(key))

    def time_ms(self) -> int | None:
        return self._inner.time_ms()

    def close(self) -> None:
        self._inner.close()

    def _around(self, call: Callable[[], T]) -> T:
        with self._lock:
            self.calls += 1
            reached = self._point is not None and self.calls == self._point.nth
            if self.is_dead or (reached and self._point is not None and not self._point.after):
                self._die()
        try:
            return call()
        finally:
            if reached:  # the process dies before it learns the store's answer
                self._die()

    def _die(self) -> None:
        self.is_dead = True
        self._on_crash()
        raise SimulatedCrash(f"at store call {self.calls}")
