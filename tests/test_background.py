"""A worker's thread runs its steps, outlives its errors, and ends when told to."""

from __future__ import annotations

import threading

from tests.patience import PATIENCE_S
from tierdex.background import WorkerThread
from tierdex.clock import SystemClock


class Worker:
    """Counts its steps; fails those in `failing`."""

    name = "test"

    def __init__(self, pause=60.0, failing=()):
        self.pause = pause
        self.failing = failing
        self.steps = 0
        self.stepped = threading.Semaphore(0)

    def step(self):
        self.steps += 1
        self.stepped.release()
        if self.steps in self.failing:
            raise RuntimeError(f"step {self.steps}")
        return self.pause


def test_wake_ends_the_pause_and_stop_ends_the_thread():
    worker = Worker()
    thread = WorkerThread(worker, SystemClock())
    thread.start()
    for _ in range(3):
        assert worker.stepped.acquire(timeout=PATIENCE_S)
        thread.wake()
    assert thread.stop(PATIENCE_S)
    assert worker.steps >= 3


def test_an_error_is_remembered_until_the_next_success():
    worker = Worker(failing=(1,))
    thread = WorkerThread(worker, SystemClock())
    thread.start()
    assert worker.stepped.acquire(timeout=PATIENCE_S)
    while thread.last_error is None:
        pass
    assert str(thread.last_error) == "step 1"
    thread.wake()
    assert worker.stepped.acquire(timeout=PATIENCE_S)
    while thread.last_error is not None:
        pass
    assert thread.stop(PATIENCE_S)


def test_a_thread_that_does_not_end_says_so():
    worker, hold = Worker(), threading.Event()
    worker.step = lambda: hold.wait(PATIENCE_S) and 0.0
    thread = WorkerThread(worker, SystemClock())
    thread.start()
    assert not thread.stop(0.01)
    hold.set()
    assert thread.stop(PATIENCE_S)


def test_a_thread_that_never_began_is_stopped():
    assert WorkerThread(Worker(), SystemClock()).stop(1)
