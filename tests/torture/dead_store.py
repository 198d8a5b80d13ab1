"""A message log under full load whose store is dead for minutes: every call fails, or hangs and fails then.

::

    store    well .. dead ........................................ well ................
    log      appends, appends, appends; no one is refused, files wait on disk ... all goes up, in order

One thread appends, message n to queue n % QUEUES, so that what is published must be 0 .. m-1 for one m at
any time. A real folder, real threads, the machine's clock.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.patience import PATIENCE_S
from tests.torture.soak import anonymous_memory
from tierdex import MessageLog
from tierdex.errors import StoreTimeoutError, StoreUnavailableError, UnavailableError
from tierdex.storage_layer.local import LocalStore

TOPIC, QUEUES, BATCH = "t", 16, 128
BODY_BYTES = 1000
SETTINGS = {
    "node": "n", "journal_bytes": 64 << 20, "item_capacity": 500_000, "slot_count": 1 << 18,
    "disk_reserve_bytes": 0, "page_arena_bytes": 8 << 20, "read_ahead_bytes": 8 << 20,
    "compact_interval": 0.1, "backoff_max": 2.0, "refresh_interval": 1.0,
}  # fmt: skip
_HANG_S = 5.0
_SAMPLE = 997  # every so many messages is read back by its body


class DeadStore:
    """A store that passes every call on, or while it is dead fails each: at once, or after it has hung."""

    def __init__(self, inner, seed):
        self._inner, self._source = inner, random.Random(seed)
        self.is_dead, self.refused = False, 0
        self.revived = threading.Event()

    @property
    def url(self):
        return self._inner.url

    def __getattr__(self, name):
        call = getattr(self._inner, name)
        return call if name == "close" else lambda *given, **named: self._ask(call, *given, **named)

    def _ask(self, call, *given, **named):
        if not self.is_dead:
            return call(*given, **named)
        self.refused += 1
        if self._source.random() < 0.5:
            self.revived.wait(_HANG_S)
            raise StoreTimeoutError("the store hangs")
        raise StoreUnavailableError("the store is dead")


@dataclass
class Outage:
    """What was seen. Times in seconds, sizes in bytes."""

    appended: int = 0
    appended_bytes: int = 0
    refused_calls: int = 0
    longest_append: float = 0.0
    slow_appends: int = 0  # that took more than 1 s
    anonymous_before: int = 0
    anonymous_most: int = 0
    waiting_files: int = 0
    publishing: float = 0.0


def body_of(number, filler):
    return b"%012d" % number + filler[number % 512 : number % 512 + BODY_BYTES - 12]


def survive(folder, seconds, seed=0, bytes_a_second=None):
    """Append while the store is dead for so many seconds; return what was seen."""
    store = DeadStore(LocalStore(Path(folder) / "store"), seed)
    filler, seen = random.Random(seed).randbytes(BODY_BYTES + 512), Outage()
    with MessageLog.open(
        Path(folder) / "data", store=store, remote_timeout=PATIENCE_S, **SETTINGS
    ) as log:
        for _ in range(20):
            _append(log, seen, filler)
        log.flush("remote")
        seen.anonymous_before = anonymous_memory()
        store.is_dead = True
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            _append(log, seen, filler)  # raises when it is refused
            if seen.appended % (BATCH * 256) == 0:
                seen.anonymous_most = max(seen.anonymous_most, anonymous_memory())
            if bytes_a_second is not None:
                ahead = seen.appended_bytes / bytes_a_second - (time.monotonic() - began)
                time.sleep(max(0.0, min(ahead, 1.0)))
        seen.refused_calls = store.refused
        seen.waiting_files = len([info for info in log.files() if info.state != "uploaded"])
        assert log.end_offsets(TOPIC, 0)["remote"] == 20 * BATCH // QUEUES
        store.is_dead = False
        store.revived.set()
        _wait_until_published(log, store, seen)
        _check(log, seen, filler)
    return seen


def _append(log, seen, filler):
    numbers = range(seen.appended, seen.appended + BATCH)
    began = time.monotonic()
    receipt = log.append_batch(
        topic=TOPIC, queue_id=[number % QUEUES for number in numbers],
        body=[body_of(number, filler) for number in numbers], keys=[[f"K{n}"] for n in numbers],
    )  # fmt: skip
    took = time.monotonic() - began
    assert receipt.offsets.tolist() == [number // QUEUES for number in numbers]
    seen.longest_append = max(seen.longest_append, took)
    seen.slow_appends += took > 1.0
    seen.appended = numbers.stop
    seen.appended_bytes += BATCH * BODY_BYTES


def _wait_until_published(log, store, seen):
    """Wait for everything; at each look what is published is 0 .. m-1 for one m."""
    log.roll()
    began = time.monotonic()
    with MessageLog.open(store=store, node="n", read_only=True) as reader:
        before, changed = -1, began
        while before < seen.appended:
            reader.refresh()
            ends = [reader.end_offset(TOPIC, queue) for queue in range(QUEUES)]
            count = sum(ends)
            assert ends == [(count + QUEUES - 1 - queue) // QUEUES for queue in range(QUEUES)], ends
            assert count >= before, "something published is gone"
            if count > before:
                before, changed = count, time.monotonic()
            assert time.monotonic() - changed < PATIENCE_S, (
                f"{count} of {seen.appended} are published"
            )
            seen.anonymous_most = max(seen.anonymous_most, anonymous_memory())
            time.sleep(0.2)
    seen.publishing = time.monotonic() - began


def _check(log, seen, filler):
    """All of it is there, for its owner, and in its place; a key finds its message once that is indexed."""
    for queue in range(QUEUES):
        assert log.end_offset(TOPIC, queue) == len(range(queue, seen.appended, QUEUES))
        answer = log.read_arrow(TOPIC, queue, 0, max_count=100_000, max_bytes=1 << 26)
        assert np.array_equal(answer["offset"].to_numpy(), np.arange(answer.num_rows))
    for number in range(0, seen.appended, max(_SAMPLE, seen.appended // 2000)):
        (message,) = log.read(TOPIC, number % QUEUES, number // QUEUES, max_count=1).messages
        assert message.body == body_of(number, filler), number
    for number in range(0, seen.appended, seen.appended // 20):
        answer = log.get(TOPIC, key=f"K{number}")
        if answer.missing:
            raise UnavailableError(str(answer.missing))
        assert [message.offset for message in answer] == [number // QUEUES], number
