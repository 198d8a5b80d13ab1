"""Threads replaced by a seed: background work in any order, reads in the thread that asks.

In production every worker has a thread that calls its `step()`. Here a seeded choice calls it, so
that each seed gives one order, without a thread and without sleeping.

Depends on nothing.
"""

from __future__ import annotations

from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable

    from tierdex.clock import Clock


class Stepping(Protocol):
    """A background worker, as `tierdex.background` knows it."""

    name: str

    def step(self) -> float: ...


class InlineExecutor(Executor):
    """Runs each call at once, in the caller's thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 -- as an executor does: the future raises it
            future.set_exception(error)
        return future


class Stepped(NamedTuple):
    """One step that was taken: whose, and when it wants to run again (seconds)."""

    name: str
    again_in_s: float


class SeededScheduler:
    """Chooses which worker steps next. Not safe to share between threads.

    `keep_time` makes only workers that are due step, as threads would; else any may, at any moment.
    """

    def __init__(
        self, workers: Iterable[Stepping], clock: Clock, source: random.Random, *, keep_time: bool
    ) -> None:
        self._workers = list(workers)
        self._clock = clock
        self._source = source
        self._keep_time = keep_time
        self._due: dict[str, float] = {}

    def run_one(self) -> Stepped | None:
        """Step one worker; None when none is due. Raises what the step raises."""
        now = self._clock.monotonic()
        due = [
            worker
            for worker in self._workers
            if not self._keep_time or self._due.get(worker.name, now) <= now
        ]
        if not due:
            return None
        worker = self._source.choice(due)
        self._due[worker.name] = now + 5.0  # should the step raise, as its thread would wait
        pause = worker.step()
        self._due[worker.name] = now + pause
        return Stepped(worker.name, pause)
