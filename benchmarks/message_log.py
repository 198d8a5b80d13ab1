"""The message log beside its floors: bare writes, syncs, copies and passes over the same bytes.

Each row is one shape of load (L1 to L8 of issue 12), against the least that the machine asks for it, in short
rounds that alternate. Journals are recycled, as in a log that compacts: blocks and pages were written before;
one row shows what a new file costs. `python -m benchmarks --only message_log`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pyarrow as pa

from benchmarks.measure import ROUNDS, Row, seconds, take_turns
from tierdex import Index, MessageLog
from tierdex.fileparts.kernels.checksum import crc32c
from tierdex.filesystem import LocalFileSystem
from tierdex.lifecycle.file_state import FileState
from tierdex.logfile.grouped.pages import make_codec
from tierdex.logfile.journal.file import Journal
from tierdex.logfile.layout import PAGE_HEADER, PAGE_HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from benchmarks.bench import Bench

TARGET = 14
PIECE = 1 << 20
SMALL = b"y" * 150
LONE, TOGETHER, READS = 40, 10, 500
WRITERS, TOPICS = 40, 100  # of L4
SHAPES = ((58, 1_000, 4), (58, 1_000_000, 8), (1024, 1_000, 3), (8500, 1_000, 3))


def run(bench: Bench) -> None:
    for size, queues, limit in SHAPES:
        batches(bench, size, queues, limit)
    cold_batches(bench)
    with bench.folder() as folder:
        durable(bench, folder)
    with bench.folder() as folder:
        reads(bench, folder)
    for queues, limit in ((1_000, 3), (1_000_000, 10)):
        with bench.folder() as folder:
            restart(bench, folder, queues, limit)


class Floor:
    """A file whose blocks were written before, to write into."""

    def __init__(self, path: Path, length: int) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT)
        self._length = length
        self._at = 0
        for position in range(0, length, PIECE):
            os.pwrite(self._file, bytes(PIECE), position)
        os.fsync(self._file)

    def write(self, data: bytes, *, sync: bool = False) -> None:
        if self._at + len(data) > self._length:
            self._at = 0
        os.pwrite(self._file, data, self._at)
        if sync:
            os.fdatasync(self._file)
        self._at += len(data)

    def close(self) -> None:
        os.close(self._file)


@contextlib.contextmanager
def opened(folder: Path, **settings: Any) -> Iterator[MessageLog]:
    """Open a log without an index, whose journals roll when this module says so."""
    with MessageLog.open(
        folder / "log", index=False, roll_after=86_400, disk_reserve_bytes=0, **settings
    ) as log:
        # Nothing is compacted beside the measured call.
        writing = log._components.writing
        assert writing is not None
        writing.kind.may_compact = lambda handle: False  # type: ignore[method-assign]
        yield log


def recycle(log: MessageLog) -> None:
    """Let the next journal take over the blocks of the one that is open; what it held goes."""
    components = log._components
    writing = components.writing
    assert writing is not None
    old = writing.active.handle
    assert old is not None
    log.roll()
    wait_until_sealed(log)
    handle = components.table.get(*old.key)
    assert handle is not None
    assert handle.path is not None
    components.table.remove(handle)
    writing.next_journal.reuse(handle.path)


def wait_until_sealed(log: MessageLog) -> None:
    while any(
        handle.state is FileState.UNSEALED and handle.reader.journal is not _active(log)
        for handle in log._components.table.version.files.local()
    ):
        time.sleep(0.1)  # the log's own thread is at it


def _active(log: MessageLog) -> Any:
    writing = log._components.writing
    assert writing is not None
    return writing.active.journal


# -- L1: many in one call -----------------------------------------------------------------------------------


def columns(size: int, queues: int, total: int) -> tuple[dict[str, Any], int]:
    count = max(queues, total // size)
    ids = np.random.default_rng(1).permutation(count) % queues
    body = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), count,
        [None, pa.py_buffer(np.arange(count + 1) * size), pa.py_buffer(b"x" * (count * size))],
    )  # fmt: skip
    return {"topic": "batch", "queue_id": ids.astype(np.int32), "body": body}, count


def batches(bench: Bench, size: int, queues: int, limit: float) -> None:
    given, count = columns(size, queues, bench.size(32 << 20))
    payload = b"x" * (count * size)
    name = f"L1 append_batch {size} B, {queues:,} queues, `os`"
    with bench.folder() as folder, opened(folder) as log:
        floor = Floor(folder / "floor", 2 * len(payload))
        for _ in range(12):
            log.append_batch(**given, durability="os")
        recycle(log)
        log.append_batch(**given, durability="os")  # the roll's entries
        timings = take_turns({
            "ours": lambda _: seconds(lambda: log.append_batch(**given, durability="os")) * 1e9 / count,
            "pwrite": lambda _: seconds(lambda: floor.write(payload)) * 1e9 / count,
        })  # fmt: skip
        bench.add_ratio(TARGET, name, "ns a message", timings, "pwrite", limit)
        floor.close()


def cold_batches(bench: Bench) -> None:
    """The same into blocks that are new to the machine."""
    given, count = columns(58, 1_000, bench.size(32 << 20))
    payload = b"x" * (count * 58)
    with bench.folder() as folder, opened(folder) as log:
        floor = os.open(folder / "floor", os.O_RDWR | os.O_CREAT)
        log.append_batch(**given, durability="os")

        def bare(number: int) -> None:
            os.pwrite(floor, payload, number * len(payload))

        timings = take_turns({
            "ours": lambda _: seconds(lambda: log.append_batch(**given, durability="os")) * 1e9 / count,
            "pwrite, a new file": lambda number: seconds(lambda: bare(number)) * 1e9 / count,
        })  # fmt: skip
        os.close(floor)
        bench.add_ratio(
            TARGET, "L1 append_batch 58 B, 1,000 queues, `os`, a new journal", "ns a message", timings,
            "pwrite, a new file", 4,
        )  # fmt: skip


# -- L2, L3, L4: durable -------------------------------------------------------------------------------------


def durable(bench: Bench, folder: Path) -> None:
    with opened(folder) as log:
        floor = Floor(folder / "floor", 64 * PIECE)
        given, _ = columns(1024, 100, PIECE)
        for _ in range(256):  # blocks for all that follows
            log.append_batch(**given, durability="os")
        recycle(log)
        log.append(topic="t", queue_id=0, body=SMALL)

        def bare(_: int) -> float:
            return (
                seconds(lambda: [floor.write(SMALL, sync=True) for _ in range(LONE)]) * 1e6 / LONE
            )

        timings = take_turns({
            "ours": lambda _: seconds(lambda: log.append_batch(**given)) * 1e3,
            "pwrite + fdatasync": lambda _: seconds(lambda: floor.write(bytes(PIECE), sync=True)) * 1e3,
        }, 15)  # fmt: skip
        bench.add_ratio(
            TARGET, "L2 commit of 1 MiB at `disk`", "ms", timings, "pwrite + fdatasync", 1.25
        )
        loads: list[tuple[str, Callable[[int], float], float, str]] = [
            ("a lone append", lambda _: lone(log), 1.5, "<="),
            *((f"{n} coroutines", lambda _, n=n: coroutines(log, n), least, ">=")
              for n, least in ((16, 4), (64, 15), (256, 25))),
            *((f"{n} threads", lambda _, n=n: threads(log, n), least, ">=")
              for n, least in ((16, 3.5), (64, 4))),
            ("1,000 in one call", lambda _: thousand(log), 150, ">="),
        ]  # fmt: skip
        for name, ours, limit, better in loads:
            timings = take_turns({"ours": ours, "pwrite + fdatasync": bare}, 5)
            bench.add_ratio(
                TARGET, f"L3 {name} at `disk`", "us a message", timings, "pwrite + fdatasync", limit,
                better,
            )  # fmt: skip
        mixed(bench, log, floor)
        floor.close()


def lone(log: MessageLog) -> float:
    def append() -> None:
        for _ in range(LONE):
            log.append(topic="t", queue_id=0, body=SMALL)

    return seconds(append) * 1e6 / LONE


def coroutines(log: MessageLog, count: int) -> float:
    """Return us a message of coroutines that each wait for `disk`: one future a commit."""
    futures: dict[Any, asyncio.Future[Any]] = {}

    async def append(loop: asyncio.AbstractEventLoop) -> None:
        for _ in range(TOGETHER):
            pending = log.append_nowait(topic="t", queue_id=0, body=SMALL)
            future = futures.get(pending.commit)
            if future is None:
                future = futures[pending.commit] = loop.create_future()
                pending.commit.add_callback(
                    pending.level,
                    lambda commit, f=future: loop.call_soon_threadsafe(
                        lambda: f.done() or f.set_result(commit)
                    ),
                )
            (await future).raise_error(pending.level)

    async def all_of_them() -> None:
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(append(loop) for _ in range(count)))

    return seconds(lambda: asyncio.run(all_of_them())) * 1e6 / (count * TOGETHER)


def together(count: int, work: Callable[[int], None]) -> float:
    """Return the seconds that threads take to do their work, once all of them run."""
    start = threading.Barrier(count + 1)

    def one(number: int) -> None:
        start.wait()
        work(number)

    workers = [threading.Thread(target=one, args=(number,)) for number in range(count)]
    for worker in workers:
        worker.start()

    def everyone() -> None:
        start.wait()
        for worker in workers:
            worker.join()

    return seconds(everyone)


def threads(log: MessageLog, count: int) -> float:
    def append(_: int) -> None:
        for _ in range(TOGETHER):
            log.append(topic="t", queue_id=0, body=SMALL)

    return together(count, append) * 1e6 / (count * TOGETHER)


def thousand(log: MessageLog) -> float:
    bodies = pa.array([SMALL] * 1000, pa.binary())

    def append() -> None:
        for _ in range(TOGETHER):
            log.append_batch(topic="t", queue_id=0, body=bodies)

    return seconds(append) * 1e6 / (1000 * TOGETHER)


def mixed(bench: Bench, log: MessageLog, floor: Floor) -> None:
    """L4: 40 threads, 100 topics, bodies of 100 B to 17 KiB, each durable before it is acknowledged.

    Then each thread reads, too, after each append: half of them what is new, half from the begin.
    """
    writing = log._components.writing
    assert writing is not None
    sizes = np.random.default_rng(4).integers(100, 17 << 10, (WRITERS, TOGETHER))
    bodies = [[bytes(size) for size in row] for row in sizes.tolist()]
    mean = int(sizes.mean())
    group, taken, read_on = [PIECE], [0] * WRITERS, [0] * WRITERS

    def topic(number: int, place: int) -> str:
        return f"topic {(number + 7 * place) % TOPICS}"

    def append(number: int) -> None:
        for place, body in enumerate(bodies[number]):
            log.append(topic=topic(number, place), queue_id=number, body=body)

    def append_and_read(number: int) -> None:
        for place, body in enumerate(bodies[number]):
            name = topic(number, place)
            offset = log.append(topic=name, queue_id=number, body=body)
            if number % 2:
                name, offset = topic(number, 0), read_on[number]
            answer = log.read(name, number, offset, max_count=2)
            taken[number] += answer.batch.content_bytes
            read_on[number] = answer.next_offset if len(answer) else 0

    def ours(work: Callable[[int], None]) -> float:
        journal = writing.active.journal
        assert journal is not None
        before = journal.end
        spent = together(WRITERS, work)
        after = journal.end
        written = after.position - before.position
        group[0] = max(1, written // max(1, after.number - before.number))
        return spent * 1e6 / (written / PIECE)

    def bare(_: int) -> float:
        data = bytes(group[0])
        return (
            seconds(lambda: [floor.write(data, sync=True) for _ in range(TOGETHER)]) * 1e6
            / (TOGETHER * len(data) / PIECE)
        )  # fmt: skip

    together(WRITERS, append)  # the queues are defined
    timings = take_turns({
        "ours": lambda _: ours(append), "pwrite + fdatasync of a mean group": bare,
    })  # fmt: skip
    bench.add_ratio(
        TARGET, "L4 40 threads, 100 topics, 100 B to 17 KiB, `disk`", "us a MiB", timings,
        "pwrite + fdatasync of a mean group", 0.8, ">=", note=f"a mean group {group[0] >> 10} KiB",
    )  # fmt: skip
    gates = Gates(floor, mean)
    timings = take_turns({
        "ours": lambda _: ours(append),
        "threads that only wait": lambda _: (
            together(WRITERS, gates.append) * 1e6 / (sizes.sum() / PIECE)
        ),
    })  # fmt: skip
    gates.close()
    bench.add_ratio(
        TARGET, "L4 beside threads that share the same writes and do nothing else", "us a MiB", timings,
        "threads that only wait", 0, "",
    )  # fmt: skip
    io = psutil.Process().io_counters
    reads = io().read_bytes
    timings = take_turns({
        "ours": lambda _: ours(append_and_read), "without reads": lambda _: ours(append),
    })  # fmt: skip
    bench.add_ratio(
        TARGET, "L4 half the threads read what is new, half from 0, after each append", "us a MiB",
        timings, "without reads", 1.5,
        note=f"{sum(taken) / (ROUNDS * sizes.sum()):.2f} bytes read a byte appended",
    )  # fmt: skip
    bench.add(Row(
        TARGET, "L4 bytes read from the disk meanwhile", "bytes", float(io().read_bytes - reads),
        ratio=float(io().read_bytes - reads), limit=0,
    ))  # fmt: skip


class Gates:
    """What 40 threads cost Python that wait for a shared write and its sync: a gate a commit, a thread
    that writes and opens it, nothing staged and nothing checked."""

    def __init__(self, floor: Floor, mean: int) -> None:
        self._floor = floor
        self._data = bytes(mean * WRITERS)
        self._mean = mean
        self._lock = threading.Lock()
        self._call = threading.Semaphore(0)
        self._is_open = True
        self._begin()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _begin(self) -> None:
        self._gate, self._waiting = threading.Lock(), 0
        self._gate.acquire()

    def append(self, _: int) -> None:
        for _ in range(TOGETHER):
            with self._lock:
                gate = self._gate
                self._waiting += 1
                is_first = self._waiting == 1
            if is_first:
                self._call.release()
            gate.acquire()
            gate.release()  # the next one's turn

    def _run(self) -> None:
        while True:
            self._call.acquire()
            if not self._is_open:
                return
            with self._lock:
                gate, count = self._gate, self._waiting
                self._begin()
            self._floor.write(self._data[: count * self._mean], sync=True)
            gate.release()

    def close(self) -> None:
        self._is_open = False
        self._call.release()
        self._thread.join()


# -- L6: reads -----------------------------------------------------------------------------------------------


def reads(bench: Bench, folder: Path) -> None:
    with opened(folder) as log, Index.open(folder / "index", node="n") as index:
        for number in range(10_000):
            index.put(
                topic="t", keys=[f"k{number}"], queue_id=0, offset=number, size=5, timestamp=number
            )
        given, _ = columns(58, 1_000, 58 * 100_000)
        log.append_batch(**given)

        def tail(_: int) -> float:
            return seconds(
                lambda: [log.read("batch", n, 90, max_count=10) for n in range(READS)]
            ) * 1e6 / READS  # fmt: skip

        def lookup(_: int) -> float:
            return seconds(
                lambda: [index.query("t", key=f"k{n}") for n in range(READS)]
            ) * 1e6 / READS  # fmt: skip

        bench.add_ratio(
            TARGET, "L6 read of the last 10", "us", take_turns({"ours": tail, "a key lookup": lookup}),
            "a key lookup", 2,
        )  # fmt: skip
        many_reads(bench, log, "a growing journal")
        log.roll()
        wait_until_sealed(log)
        many_reads(bench, log, "a sealed journal")
        many_reads_of_pages(bench, log)


def many_reads(bench: Bench, log: MessageLog, where: str) -> None:
    places = [("batch", number, 90) for number in range(1_000)]
    bodies = np.zeros(10_000 * 58, np.uint8)
    log.read_many(places, max_count=10)
    timings = take_turns({
        "ours": lambda _: seconds(lambda: log.read_many(places, max_count=10)) * 1e6,
        "copy of the bodies": lambda _: seconds(bodies.copy) * 1e6,
    })  # fmt: skip
    bench.add_ratio(
        TARGET,
        f"L6 read_many, 10 of 1,000 queues each, {where}",
        "us",
        timings,
        "copy of the bodies",
        3,
    )


def many_reads_of_pages(bench: Bench, log: MessageLog) -> None:
    """The same from a compacted file, beside its pages read and decompressed."""
    writing = log._components.writing
    assert writing is not None
    del writing.kind.may_compact  # type: ignore[method-assign, unused-ignore]  # as `opened` found it
    log.run_compaction()
    (handle,) = log._components.table.version.files.local()
    file = handle.reader.file
    spans = [file.span(page) for page in range(file.page_count)]

    def bare() -> None:
        for span in spans:
            data = np.frombuffer(file.read_span(span), np.uint8)
            head = data[:PAGE_HEADER_BYTES].view(PAGE_HEADER)[0]
            if head["codec"]:
                make_codec(int(head["codec"])).decompress(
                    data[PAGE_HEADER_BYTES:], decompressed_size=int(head["raw_bytes"])
                )

    places = [("batch", number, 90) for number in range(1_000)]
    log.read_many(places, max_count=10)
    timings = take_turns({
        "ours": lambda _: seconds(lambda: log.read_many(places, max_count=10)) * 1e6,
        "pread and decompression": lambda _: seconds(bare) * 1e6,
    })  # fmt: skip
    bench.add_ratio(
        TARGET, "L6 read_many, 10 of 1,000 queues each, a grouped file", "us", timings,
        "pread and decompression", 1.5,
    )  # fmt: skip


# -- L8: restart ---------------------------------------------------------------------------------------------


def restart(bench: Bench, folder: Path, queues: int, limit: float) -> None:
    """An unsealed journal is verified and indexed, beside a pass of reads and checksums over it."""
    with opened(folder) as log:
        given, count = columns(58, queues, bench.size(64 << 20))
        for _ in range(4):
            log.append_batch(**given)
        count *= 4
        writing = log._components.writing
        assert writing is not None
        assert writing.active.journal is not None
        path, end = writing.active.journal.path, writing.active.journal.published

        def scan() -> None:
            Journal.open_for_reading(LocalFileSystem(), path).close()

        def pass_over() -> None:
            with path.open("rb", buffering=0) as file:
                for position in range(0, end, 4 * PIECE):
                    data = np.frombuffer(file.read(min(4 * PIECE, end - position)), np.uint8)
                    crc32c(data.ctypes.data, len(data), np.uint32(0))

        timings = take_turns({
            "ours": lambda _: seconds(scan) * 1e9 / count,
            "reads and CRC": lambda _: seconds(pass_over) * 1e9 / count,
        }, 5)  # fmt: skip
        bench.add_ratio(
            TARGET, f"L8 an unsealed journal opened, {queues:,} queues", "ns a message", timings,
            "reads and CRC", limit,
        )  # fmt: skip
