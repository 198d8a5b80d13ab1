"""The two loads that the message log was designed for: scaled, and checked.

    .venv/bin/python -m benchmarks.log_loads million-queues --scale 0.05 [--store URL]

::

    million-queues   2 G messages of 58 B into 1 M queues, then a random message of every queue, then a fifth
                     of the queues whole; files are compacted, published and merged meanwhile
    strict-offsets   40 threads append 100 B to 17 KiB at `disk`, each message at the offset it expects; then
                     half of the queues are read from the tail and half from 0, while writing goes on

Every body says its queue and offset, and every one that is read is compared. Beside each figure stand what
the original asked, and what a bare file on the same disk does; beside the seconds those of CPU, which tell
how much of a shared machine was ours.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tierdex.app.cli.inputs.opening import parse_settings
from tierdex.clock import SystemClock
from tierdex.errors import InvalidRequestError
from tierdex.filesystem import LocalFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import numpy as np
    import pyarrow as pa

    from tierdex.log_service.message_log import MessageLog

LOADS: Final = ("million-queues", "strict-offsets")
_MIB: Final = 1 << 20
_TOPIC: Final = "load"
_HEAD: Final = 16  # of a body: its queue and its offset, 8 bytes each

_MESSAGES: Final = 2_000_000_000
_BODY_BYTES: Final = 58
_LIMIT_S: Final = 1800.0  # for writing, and once more for reading
_QUEUES: Final = 1_000_000
_QUEUE_MESSAGES: Final = 100  # at least, where the dose is too small for a million queues
_BATCH: Final = 65_536
# Of one call: places in one page share it, and those that lie near each other a request. Calls of a hundredth
# of the queues would fetch each file almost whole, a hundred times.
_PLACES: Final = 100_000
_WHOLE_QUEUES: Final = 10_000

_BYTES: Final = 64 << 30
_THREADS: Final = 40
_THREAD_QUEUES: Final = 25
_TOPICS: Final = 100
_LEAST: Final = 100
_MOST: Final = 17 << 10
_ASKED_MIB_S: Final = 275.0


NO_SETTINGS: Final[Mapping[str, Any]] = MappingProxyType({})


class Load(NamedTuple):
    """Where a load runs, and what part of it; `settings` of the log."""

    folder: Path
    scale: float
    store: str | None = None
    settings: Mapping[str, Any] = NO_SETTINGS

    def open(self) -> MessageLog:
        """Open the log, after another that compiled the kernels."""
        from tierdex.log_service.message_log import MessageLog

        with MessageLog.open(self.folder / "first", journal_bytes=16 * _MIB) as log:
            log.append(topic=_TOPIC, queue_id=0, body=b"", expect_offset=0)
            log.append_batch(topic=_TOPIC, queue_id=[0, 1], body=[b"", b""])
            log.read_many([(_TOPIC, 0, 0), (_TOPIC, 1, 0)])
        return MessageLog.open(self.folder / "log", store=self.store, **self.settings)


def run_load(name: str, load: Load) -> list[dict[str, Any]]:
    """Run a load in a folder; return its rows.

    Raises InvalidRequestError for a scale that is none, and RuntimeError for a message that is not the one
    that was put there.
    """
    loads = {"million-queues": _million_queues, "strict-offsets": _strict_offsets}
    if not 0 < load.scale <= 1:
        raise InvalidRequestError("above 0, at most 1", field="--scale")
    return loads[name](load)


# -- a million queues --------------------------------------------------------------------------------------


def _million_queues(load: Load) -> list[dict[str, Any]]:
    import numpy as np

    wanted = max(_BATCH, round(_MESSAGES * load.scale))
    queues = max(1, min(_QUEUES, wanted // _QUEUE_MESSAGES))
    per_queue = -(-wanted // queues)
    count = queues * per_queue
    disk = _disk_mib_s(load.folder, _MIB, count * _BODY_BYTES)
    limit_s = _LIMIT_S * load.scale
    chosen = np.random.default_rng(7)
    with load.open() as log:

        def put() -> None:
            for first in range(0, count, _BATCH):
                numbers = np.arange(first, min(first + _BATCH, count))
                # Neighbours in time are no neighbours among queues.
                queue_ids = (numbers * 982_451_653) % queues
                bodies = _bodies(queue_ids, numbers // queues)
                log.append_batch(topic=_TOPIC, queue_id=queue_ids, body=bodies, durability="os")
            log.flush("disk")

        rows = [_row("put", count, count * _BODY_BYTES, _seconds(put))]
        asked = _MESSAGES / _LIMIT_S
        rows[0] |= {
            "asked_per_second": round(asked),
            "limit_s": round(limit_s, 3),
            "disk_mib_s": disk,
        }
        rows[0]["of_asked"] = round(rows[0]["per_second"] / asked, 2)
        rows[0]["of_disk"] = round(rows[0]["mib_s"] / disk, 2)

        def check() -> None:
            order = chosen.permutation(queues)
            offsets = chosen.integers(0, per_queue, queues)
            for first in range(0, queues, _PLACES):
                some = order[first : first + _PLACES].tolist()
                places = [(_TOPIC, queue, int(offsets[queue])) for queue in some]
                for place, answer in zip(places, log.read_many(places, max_count=1), strict=True):
                    _compare(answer.batch.body(0), place[1], place[2])

        def read_whole() -> None:
            fifth = chosen.permutation(queues)[: max(1, queues // 5)].tolist()
            for first in range(0, len(fifth), _WHOLE_QUEUES):
                places = [(_TOPIC, queue, 0) for queue in fifth[first : first + _WHOLE_QUEUES]]
                answers = log.read_many(places, max_count=per_queue, max_bytes=1 << 30)
                for place, answer in zip(places, answers, strict=True):
                    _compare_all(answer.batch.bodies, place[1], per_queue)

        checked = _row("check one of every queue", queues, queues * _BODY_BYTES, _seconds(check))
        whole = max(1, queues // 5) * per_queue
        read = _row("read a fifth whole", whole, whole * _BODY_BYTES, _seconds(read_whole))
        for row in (checked, read):
            row["limit_s"] = round(limit_s, 3)  # of both together
        rows += [checked, read]
        states = sorted({file.state for file in log.files()})
        rows.append({"what": f"files at the end: {', '.join(states)}", "count": len(log.files())})
    return rows


def _bodies(queue_ids: np.ndarray, offsets: np.ndarray) -> pa.Array:
    """Return bodies of 58 bytes that say their queue and offset."""
    import numpy as np
    import pyarrow as pa

    data = np.full((len(queue_ids), _BODY_BYTES), 46, np.uint8)
    data[:, :8] = queue_ids.astype("<i8").view(np.uint8).reshape(-1, 8)
    data[:, 8:_HEAD] = offsets.astype("<i8").view(np.uint8).reshape(-1, 8)
    ends = np.arange(len(queue_ids) + 1, dtype=np.int32) * _BODY_BYTES
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(queue_ids), buffers)


def _compare(body: bytes, queue_id: int, offset: int) -> None:
    """Raise RuntimeError for another message than the one that was put there."""
    if body[:_HEAD] != queue_id.to_bytes(8, "little") + offset.to_bytes(8, "little"):
        raise RuntimeError(f"queue {queue_id}, offset {offset}: another message is there")


def _compare_all(bodies: np.ndarray, queue_id: int, count: int) -> None:
    """Raise RuntimeError unless these are all messages of a queue, in order."""
    import numpy as np

    if len(bodies) != count * _BODY_BYTES:
        raise RuntimeError(f"queue {queue_id}: {len(bodies)} bytes of {count} messages")
    heads = bodies.reshape(count, _BODY_BYTES)[:, :_HEAD].copy().view("<i8")
    if (heads[:, 0] != queue_id).any() or (heads[:, 1] != np.arange(count)).any():
        raise RuntimeError(f"queue {queue_id}: its messages are not those that were put there")


# -- strict offsets ----------------------------------------------------------------------------------------


class _Writer:
    """One thread's queues: what it appended, and the sizes, which a reader needs to compare."""

    def __init__(self, number: int, log: MessageLog, noise: bytes) -> None:
        self._log = log
        self._noise = noise
        self._random = random.Random(number)
        self._queues = [number * _THREAD_QUEUES + each for each in range(_THREAD_QUEUES)]
        self.next = dict.fromkeys(self._queues, 0)
        self.read_to = dict.fromkeys(self._queues, 0)

    def write(self, budget: int) -> tuple[int, int]:
        """Append about so many bytes of bodies; return (messages, bytes)."""
        count = written = 0
        while written < budget:
            written += self._append()
            count += 1
        return count, written

    def write_and_read(self, budget: int) -> tuple[int, int, int, int]:
        """Append, and read one queue after each message; return (messages, bytes) of both."""
        for queue in self._queues[::2]:
            self.read_to[queue] = self.next[queue]  # from the tail; the others from 0
        count = written = taken = taken_bytes = 0
        while written < budget:
            written += self._append()
            count += 1
            behind = [queue for queue in self._queues if self.read_to[queue] < self.next[queue]]
            found = self._read(self._random.choice(behind))
            taken, taken_bytes = taken + found[0], taken_bytes + found[1]
        return count, written, taken, taken_bytes

    def _append(self) -> int:
        queue = self._random.choice(self._queues)
        offset, size = self.next[queue], self._random.randint(_LEAST, _MOST)
        head = queue.to_bytes(8, "little") + offset.to_bytes(8, "little")
        body = head + self._noise[: size - _HEAD]
        self._log.append(
            topic=_topic_of(queue), queue_id=queue, body=body, expect_offset=offset,
            durability="disk",
        )  # fmt: skip
        self.next[queue] = offset + 1
        return size

    def _read(self, queue: int) -> tuple[int, int]:
        at = self.read_to[queue]
        answer = self._log.read(_topic_of(queue), queue, at, max_count=10)
        for message in answer.messages:
            _compare(message.body, queue, message.offset)
        if not len(answer):
            raise RuntimeError(f"queue {queue}: offset {at} is acknowledged, and not there")
        self.read_to[queue] = answer.next_offset
        return len(answer), len(answer.batch.bodies)


def _topic_of(queue: int) -> str:
    return f"topic-{queue % _TOPICS}"


def _strict_offsets(load: Load) -> list[dict[str, Any]]:
    budget = max(4 * _MIB, round(_BYTES * load.scale))
    group = _THREADS * (_LEAST + _MOST) // 2  # what all threads wait for together
    disk = _disk_mib_s(load.folder, group, budget)
    noise = random.Random(1).randbytes(_MOST)
    with load.open() as log, ThreadPoolExecutor(_THREADS) as threads:
        writers = [_Writer(number, log, noise) for number in range(_THREADS)]

        def all_of(work: Callable[[_Writer], Any]) -> Iterator[Any]:
            return threads.map(work, writers)

        each = budget // 2 // _THREADS
        found: list[Any] = []
        seconds = _seconds(lambda: found.extend(all_of(lambda w: w.write(each))))
        rows = [_row("write", sum(f[0] for f in found), sum(f[1] for f in found), seconds)]
        found.clear()
        seconds = _seconds(lambda: found.extend(all_of(lambda w: w.write_and_read(each))))
        messages, size, taken, taken_bytes = (sum(column) for column in zip(*found, strict=True))
        rows.append(_row("write while reading", messages, size, seconds))
        rows.append(_row("read, half from the tail, half from 0", taken, taken_bytes, seconds))
    for row in rows[:2]:
        row["asked_mib_s"] = _ASKED_MIB_S
        row["disk_mib_s"] = disk
        row["of_asked"] = round(row["mib_s"] / _ASKED_MIB_S, 2)
        row["of_disk"] = round(row["mib_s"] / disk, 2)  # the original: 275 of 320, 0.86
    return rows


# -- both --------------------------------------------------------------------------------------------------


def _disk_mib_s(folder: Path, step: int, size: int) -> float:
    """Return how fast this disk takes writes of `step` bytes, each synced, into blocks that are there."""
    filesystem, path = LocalFileSystem(), folder / "floor"
    data, size = random.Random(2).randbytes(step), max(8 * step, min(size, 256 * _MIB))
    steps = size // step
    file = filesystem.open(path, writable=True, create=True, exclusive=True)
    try:
        for number in range(steps):
            file.write_at(number * step, data)
        file.sync()

        def write() -> None:
            for number in range(steps):
                file.write_at(number * step, data)
                file.sync_data()

        return round(steps * step / _MIB / _seconds(write).wall, 1)
    finally:
        file.close()
        filesystem.unlink(path)


class _Times(NamedTuple):
    """How long a phase took; `cpu` is that of all threads, those that compact and publish as well."""

    wall: float
    cpu: float


def _seconds(work: Callable[[], object]) -> _Times:
    clock, cpu = SystemClock(), os.times()
    started = clock.monotonic()
    work()
    wall, now = clock.monotonic() - started, os.times()
    return _Times(max(1e-6, wall), now.user - cpu.user + now.system - cpu.system)


def _row(what: str, count: int, size: int, took: _Times) -> dict[str, Any]:
    return {
        "what": what,
        "count": count,
        "seconds": round(took.wall, 3),
        "cpu_seconds": round(took.cpu, 1),
        "per_second": round(count / took.wall),
        "mib_s": round(size / _MIB / took.wall, 1),
    }


def main() -> None:
    """Run a load as the command line says, in a folder that is gone afterwards; print its rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("load", choices=LOADS)
    parser.add_argument("--scale", type=float, default=0.001, help="above 0, at most 1")
    parser.add_argument("--folder", type=Path, help="on the disk to measure")
    parser.add_argument("--store", help="where files are published")
    parser.add_argument("--set", action="append", default=[], help="a setting of the log")
    given = parser.parse_args()
    settings = parse_settings(given.set)
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        rows = run_load(given.load, Load(Path(folder), given.scale, given.store, settings))
    for row in rows:
        print(json.dumps(row))


if __name__ == "__main__":
    main()
