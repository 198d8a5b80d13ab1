"""The threads that read published files for queries, and what a query waits for.

A signal handler may raise between any two steps of the main thread, inside `concurrent.futures` and
`threading`, too: their conditions and semaphores, written in Python, then keep a lock for ever, and every
later query waits for its future. Here each step that another thread may wait for is one call into C,
which is done or not: a queue's put, a lock's release, a thread's start by `_thread`.

::

    submit ---> queue ---> a thread: claims the task, runs it, releases `done` ---> result

Depends on nothing.
"""

from __future__ import annotations

import _thread
import threading
from concurrent.futures import CancelledError, Executor
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")


def _nothing() -> None:
    """Be what a task calls once it ran."""


class Task(Generic[T]):
    """One call: the thread that claims it runs or cancels it. The part of `Future` that queries use."""

    __slots__ = ("_call", "_claim", "_done", "_error", "_value")

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._claim = threading.Lock()
        self._done = threading.Lock()
        self._done.acquire()
        self._value: T | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        if not self._claim.acquire(blocking=False):
            return
        try:
            try:
                self._value = self._call()
            finally:  # it may know the task, and both would stay, with the value, until the collector comes
                self._call = _nothing  # type: ignore[assignment]
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            self._error = error
        self._done.release()

    def cancel(self) -> bool:
        """Prevent that it runs; return whether it had not begun."""
        if not self._claim.acquire(blocking=False):
            return False
        self._error = CancelledError()
        self._done.release()
        return True

    def result(self, timeout: float | None = None) -> T:
        """Wait, and return what the call returned, or raise what it raised."""
        assert timeout is None
        with self._done:
            pass
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]


def side_by_side(executor: Executor | None, calls: Sequence[Callable[[], T]]) -> list[T]:
    """Return what the calls return, in order; raise what the first of those that fail raises.

    The caller helps: it runs what no thread has begun. So threads of `executor` may call this, too.
    """
    if executor is None or len(calls) < 2:
        return [call() for call in calls]
    tasks = [executor.submit(call) for call in calls[1:]]
    results = [calls[0]()]
    for task in tasks:
        if isinstance(task, Task):
            task.run()
        results.append(task.result())
    return results


Tasks = SimpleQueue[Task[Any] | None]  # None: there are no more


class ReadThreads(Executor):
    """At most `max_workers` threads, started as they are needed; they end with `shutdown`."""

    def __init__(self, max_workers: int) -> None:
        self._queue: Tasks = SimpleQueue()
        self._has_ended = False
        self._crew = _Crew(self._queue, max_workers)

    def submit(  # type: ignore[override]  # a Task is the part of a Future that is needed
        self, fn: Callable[..., T], /, *arguments: Any, **named: Any
    ) -> Task[T]:
        task = Task(lambda: fn(*arguments, **named))
        self._queue.put(task)
        if self._has_ended:
            task.cancel()
        elif not self._crew.count:
            _thread.start_new_thread(self._crew.begin, ())
        return task

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = True) -> None:
        """End the threads once their calls have; calls that have not begun are cancelled."""
        assert cancel_futures
        assert not wait
        self._has_ended = True
        try:
            while True:
                task = self._queue.get_nowait()
                if task is not None:
                    task.cancel()
        except Empty:
            self._queue.put(None)

    def __del__(self) -> None:
        self._queue.put(None)


class _Crew:
    """The threads of one queue. Each makes sure that another waits before it begins a call.

    So it is they who start threads, never one that a signal handler may interrupt.
    """

    def __init__(self, queue: Tasks, most: int) -> None:
        self._queue = queue
        self._most = most
        self._lock = threading.Lock()
        self.count = 0
        self._waiting = 0

    def begin(self) -> None:
        """Start the first thread, on one that no signal handler may interrupt."""
        with self._lock:
            if not self.count:
                self._join_in()

    def _join_in(self) -> None:
        self.count += 1
        self._waiting += 1
        threading.Thread(target=self._work, name="tierdex-read", daemon=True).start()

    def _work(self) -> None:
        while (task := self._queue.get()) is not None:
            with self._lock:
                self._waiting -= 1
                if not self._waiting and self.count < self._most:
                    self._join_in()
            task.run()
            del task  # or what it returned would stay until the next one
            with self._lock:
                self._waiting += 1
        self._queue.put(None)  # for the next thread
