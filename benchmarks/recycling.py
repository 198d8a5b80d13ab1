"""Target 1, over many files: puts into new files, and into files made of the blocks of compacted ones.

Every other figure of puts is of one file, into memory that was touched before. A service fills file after
file: new ones get new blocks and new pages of the cache; recycled ones have both. The next file is made, and
blocks are reserved ahead, where a service's threads would: it is not in the clock's time, but in the CPU's.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.bench import compact_only, store_that_is_down, warm_memory
from benchmarks.data import Block
from benchmarks.embedded import NS
from benchmarks.measure import Row, Timings, seconds, take_turns

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.bench import Bench

ROLLS = 10
_FIRST = 2  # files before the first that counts: one is new in any case
_BLOCKS = 4  # a file
_BYTES_A_KEY = 256


class Lives(NamedTuple):
    """How a contestant's files get their blocks."""

    is_recycled: bool
    is_warm: bool = False  # memory is touched before each block


class Filling:
    """An index whose files are filled one after the other."""

    def __init__(self, bench: Bench, folder: Path, lives: Lives, blocks: list[Block]) -> None:
        self.lives = lives
        self.blocks = blocks
        self.cpu: list[float] = []  # ns a key, of each file that counts: puts, and making the next
        self.store = store_that_is_down()
        self.folder = folder
        count = sum(block.count for block in blocks)
        self.index = bench.open_index(
            folder, store=self.store, slot_count=count // 4, item_capacity=count
        )

    def fill(self, _round: int) -> float:
        """Fill a file; return the ns a key of its puts."""
        taken = cpu = 0.0
        for number, block in enumerate(self.blocks):
            if self.lives.is_warm:
                warm_memory(block.count * _BYTES_A_KEY)
            begin = time.process_time()
            taken += seconds(lambda block=block: self.index.put_batch(**block.entries))
            cpu += time.process_time() - begin
            if number == 0:  # it has rolled the file before
                self._compact()
            if number == len(self.blocks) // 2:
                writing = self.index.components.writing
                assert writing is not None
                begin = time.process_time()
                writing.writer.prepare_next()
                cpu += time.process_time() - begin
                self._second_name.unlink(missing_ok=True)
        count = sum(block.count for block in self.blocks)
        self.cpu.append(cpu / count * NS)
        return taken / count * NS

    def _compact(self) -> None:
        old, *others = sorted((self.folder / "unsealed").glob("0*"))
        if others:  # else it is the first file
            if not self.lives.is_recycled:  # a file that has a second name keeps its blocks
                self._second_name.hardlink_to(old)
            with self.store.outage():
                compact_only(self.index)

    @property
    def _second_name(self) -> Path:
        return self.folder.with_suffix(".name")

    def close(self) -> None:
        with self.store.outage():
            self.index.close()


def run(bench: Bench) -> None:
    blocks = [Block(number, bench.size(1_000_000)) for number in range(_BLOCKS)]
    for block in blocks:
        _ = block.keys, block.columns
    with bench.folder() as folder:
        fillings = {
            "ours": Filling(bench, folder / "recycled", Lives(is_recycled=True), blocks),
            "new files": Filling(bench, folder / "new", Lives(is_recycled=False), blocks),
            "warm": Filling(bench, folder / "warm", Lives(is_recycled=False, is_warm=True), blocks),
        }
        try:
            contestants = {name: filling.fill for name, filling in fillings.items()}
            take_turns(contestants, _FIRST)
            for filling in fillings.values():
                filling.cpu.clear()
            timings = take_turns(contestants, ROLLS)
        finally:
            for filling in fillings.values():
                filling.close()
    note = "CPU with all that prepares: " + ", ".join(
        f"{name} {Timings({name: filling.cpu}).median(name):.0f}"
        for name, filling in fillings.items()
    )
    name = "put_batch, ten files on, recycled"
    bench.add_ratio(1, name, "ns/key", timings, "warm", 1.25, note=note)
    new = timings.median("new files")
    bench.add(Row(1, "put_batch, ten files on, each new", "ns/key", new))
    bench.plots["recycling"] = {name: timings.median(name) for name in contestants}
