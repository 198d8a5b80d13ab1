"""`python -m benchmarks.log_files [--mib N]`: the format of log files beside bare system calls and passes.

Each figure is a ratio to a floor of the same run, over the same file system, in short rounds that
alternate (issue 12's L1, L2, a lone append, L6, L8, at the level of the file: queues are resolved before,
no threads). Journals are recycled: their blocks were written before. One process, a minute.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from benchmarks.measure import seconds, take_turns
from tierdex.fileparts.kernels.checksum import crc32c
from tierdex.filesystem import LocalFileSystem
from tierdex.logfile.columns import BinaryColumn, MessageColumns, QueueColumns
from tierdex.logfile.grouped.file import GroupedFile
from tierdex.logfile.grouped.merge import write_grouped
from tierdex.logfile.grouped.sources import JournalSource
from tierdex.logfile.journal.file import Journal, SealedJournal
from tierdex.logfile.journal.scan import BatchScan
from tierdex.logfile.journal.tables import Tables
from tierdex.logfile.layout import Codec

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer


FILES = LocalFileSystem()
PIECE = 1 << 20
SHAPES = {
    58: ("58 B", 4, 8),
    1024: ("1 KiB", 3, 3),
    8500: ("8.5 KB", 3, 3),
}  # limits: few, many queues
ROUNDS = 9


class Bench:
    """A folder, journals that are recycled from one file, and a bare file of the same blocks."""

    def __init__(self, folder: Path, mib: int) -> None:
        self.folder = folder
        self.capacity = 2 * mib << 20
        self.bytes = mib << 20
        self.path = folder / "journal"
        self.bare = os.open(folder / "bare", os.O_RDWR | os.O_CREAT)
        zeros = bytes(PIECE)
        for position in range(0, self.capacity, PIECE):
            os.pwrite(self.bare, zeros, position)
        os.fsync(self.bare)
        self.number = 0
        with self.path.open("wb") as file:
            for _ in range(0, self.capacity, PIECE):
                file.write(zeros)
            file.flush()
            os.fsync(file.fileno())

    def journal(self) -> Journal:
        self.number += 1
        return Journal.recycle(
            FILES,
            self.path,
            uuid=self.number.to_bytes(16, "little"),
            capacity=self.capacity,
            created_ms=0,
        )

    def write_bare(self, data: memoryview, position: int = 0) -> None:
        for begin in range(0, len(data), PIECE):
            os.pwrite(self.bare, data[begin : begin + PIECE], position + begin)


def queues_of(journal: Journal, count: int) -> np.ndarray:
    """Define `count` queues of a hundred topics; return their numbers."""
    names = BinaryColumn.from_values([b"topic-%02d" % i for i in range(100)], field="topic")
    numbers = []
    for begin in range(0, count, 10_000):
        ids = np.arange(begin, min(count, begin + 10_000))
        columns = QueueColumns(names, (ids % 100).astype(np.uint32), (ids // 100).astype(np.int32))
        numbers.append(journal.define(columns, np.zeros(len(ids), np.int64)))
        journal.flush()
    return np.concatenate(numbers)


def messages(size: int, total: int, numbers: np.ndarray, seed: int = 1) -> MessageColumns:
    count = max(1, total // size)
    random = np.random.default_rng(seed)
    lines = b'{"order": %012d, "state": "shipped", "amount": 1234.50, "note": "' + b"abc " * 2200
    body = np.frombuffer(lines[:size].ljust(size, b"."), np.uint8)
    data = np.tile(body, count)
    data[::size] = random.integers(48, 58, count)
    return MessageColumns(
        queues=numbers[random.integers(0, len(numbers), count)],
        bodies=BinaryColumn(np.arange(count + 1, dtype=np.int64) * size, data),
        times=np.arange(count) + 1_700_000_000_000,
    )


def show(
    name: str, ours: list[float], floor: list[float], unit: float, suffix: str, limit: str
) -> None:
    ratios = [a / b for a, b in zip(ours, floor, strict=True)]
    print(
        f"{name:46} ours {statistics.median(ours) / unit:9.1f} {suffix:8} "
        f"floor {statistics.median(floor) / unit:9.1f}  ratio {statistics.median(ratios):6.2f}  {limit}",
        flush=True,
    )


def compare(name: str, ours: Callable[[int], float], floor: Callable[[int], float], unit: float,
            suffix: str, limit: str, rounds: int = ROUNDS) -> None:  # fmt: skip
    ours(0), floor(0)
    timings = take_turns({"ours": ours, "floor": floor}, rounds).rounds
    show(name, timings["ours"], timings["floor"], unit, suffix, limit)


def appends(bench: Bench, size: int, queue_count: int) -> None:
    """L1: append of many messages at `os`, beside a pwrite of the same bytes."""
    name, few, many = SHAPES[size]
    total = bench.bytes if queue_count > 1000 and size < 100 else bench.bytes // 4
    count = max(1, total // size)
    written = memoryview(np.full(count * (size + 12), 7, np.uint8).data)
    journals: list[Journal] = []

    def ours(number: int) -> float:
        while journals:
            journals.pop().close()
        journal = bench.journal()
        journals.append(journal)
        columns = messages(size, total, queues_of(journal, queue_count), number)
        return seconds(lambda: journal.append(columns))

    limit = few if queue_count == 1000 else many
    compare(
        f"L1 append_batch {name}, {queue_count:,} queues", ours,
        lambda _: seconds(lambda: bench.write_bare(written)), 1e-9 * count, "ns/msg", f"<= {limit}",
    )  # fmt: skip
    journals.pop().close()


def durable(bench: Bench) -> None:
    """L2 and L3's lone append: a commit is a write and a sync, as the floor's is."""
    journal = bench.journal()
    numbers = queues_of(journal, 100)
    journal.sync()
    large, one = messages(1024, PIECE, numbers), messages(58, 58, numbers)
    floor = memoryview(np.full(PIECE + 12 * 1024, 7, np.uint8).data)
    place = [0]

    def commit(columns: MessageColumns) -> None:
        journal.append(columns)
        journal.sync()

    def bare(length: int) -> None:
        os.pwrite(bench.bare, floor[:length], place[0])
        os.fdatasync(bench.bare)
        place[0] = (place[0] + length) % (bench.bytes // 2)

    compare("L2 commit of 1 MiB", lambda _: seconds(lambda: commit(large)),
            lambda _: seconds(lambda: bare(len(floor))), 1e-6, "us", "<= 1.25 (>= 0.8 of MB/s)")  # fmt: skip
    compare("L3 lone append at disk", lambda _: seconds(lambda: [commit(one) for _ in range(20)]) / 20,
            lambda _: seconds(lambda: [bare(150) for _ in range(20)]) / 20, 1e-6, "us", "<= 1.5")  # fmt: skip
    journal.close()


def life(bench: Bench, queue_count: int, limit: str) -> None:
    """Restart, seal, compaction and reads of one journal."""
    journal = bench.journal()
    columns = messages(58, bench.bytes, queues_of(journal, queue_count))
    journal.append(columns)
    journal.sync()
    count, data = columns.count, np.fromfile(bench.path, np.uint8, journal.published)

    def scan(_: int) -> float:
        again, read_at = BatchScan(journal.header), journal._file.read_at
        return seconds(
            lambda: again.take_file(read_at, Tables(), journal.path, journal.header.capacity)
        )

    def pass_over(_: int) -> float:
        return seconds(lambda: crc32c(data.ctypes.data, len(data), np.uint32(0)))

    compare(
        f"L8 recovery scan, {queue_count:,} queues",
        scan,
        pass_over,
        1e-9 * count,
        "ns/msg",
        limit,
        5,
    )
    tail_reads(journal)
    cpu = time.process_time()
    journal.seal()
    cpu = time.process_time() - cpu
    memory = journal.tables.memory_bytes / count
    journal.close()
    print(
        f"   seal: {cpu / count * 1e9:.1f} ns CPU a message; index in memory: {memory:.1f} B a message"
    )
    sealed = SealedJournal.open(FILES, bench.path)
    for codec in (Codec.PLAIN, Codec.LZ4):
        header = sealed.header.grouped(page_bytes=16 << 10, codec=codec)
        with (bench.folder / "grouped").open("wb") as out:
            cpu = time.process_time()

            def write(data: Buffer, out: BinaryIO = out) -> None:
                out.write(data)

            summary = write_grouped([JournalSource(sealed)], write, header=header)
            cpu = time.process_time() - cpu
        print(f"   compaction, {codec.name.lower()}: {cpu / count * 1e9:.1f} ns CPU a message, "
              f"{summary.bytes / sealed.bytes:.2f} of the journal's bytes")  # fmt: skip
    file = GroupedFile.open_local(FILES, bench.folder / "grouped")
    page_reads(file, sealed)
    file.close()
    sealed.close()


def tail_reads(journal: Journal) -> None:
    extent = journal.extent(b"topic-07", 3)
    assert extent is not None
    first = max(extent.first_offset, extent.next_offset - 10)

    def read() -> None:
        for _ in range(1000):
            journal.read(b"topic-07", 3, first, max_count=10, max_bytes=1 << 20)

    print(f"   10 messages at the tail: {min(seconds(read) for _ in range(5)) * 1e3:.2f} us")


def page_reads(file: GroupedFile, sealed: SealedJournal) -> None:
    extent = sealed.extent(b"topic-07", 3)
    assert extent is not None

    def read(log: GroupedFile | SealedJournal) -> None:
        for _ in range(300):
            log.read(b"topic-07", 3, extent.first_offset, max_count=10, max_bytes=1 << 20)

    for name, log in (("sealed", sealed), ("grouped, page from the page cache", file)):
        best = min(seconds(lambda log=log: read(log)) for _ in range(5)) / 300 * 1e6
        print(f"   10 messages of a {name}: {best:.2f} us")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=256, help="bodies of the largest journal")
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tierdex-bench-", dir=arguments.folder) as root:
        bench = Bench(Path(root), arguments.mib)
        for queue_count in (1_000, 1_000_000):
            for size in SHAPES:
                appends(bench, size, queue_count)
        durable(bench)
        life(bench, 1_000, "<= 3")
        life(bench, 1_000_000, "<= 10")
    return 0


if __name__ == "__main__":
    sys.exit(main())
