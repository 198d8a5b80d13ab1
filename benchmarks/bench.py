"""What every part of the benchmark shares: sizes, the folder, the rows that were measured."""

from __future__ import annotations

import contextlib
import mmap
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from benchmarks.measure import Row
from tierdex import Index
from tierdex.clock import SystemClock
from tierdex.errors import TierdexError
from tierdex.ids import SystemIds
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.faulty_store import FaultyStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.measure import Timings
    from tierdex.compactor.unit import Unit
    from tierdex.index_service.opening.components import Components
    from tierdex.lifecycle.table.file_handle import FileHandle


@dataclass
class Bench:
    """One run. `scale` is 1 for the full size, 0.1 for the quick one."""

    scale: float
    root: Path
    rows: list[Row] = field(default_factory=list)
    plots: dict[str, Any] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)

    @property
    def is_quick(self) -> bool:
        return self.scale < 1

    def size(self, full: int) -> int:
        """Return a count at this run's scale."""
        return max(1, int(full * self.scale))

    def add(self, row: Row) -> Row:
        self.rows.append(row)
        print(line_of(row), flush=True)
        return row

    def add_ratio(
        self,
        target: int,
        name: str,
        unit: str,
        timings: Timings,
        peer: str,
        limit: float,
        better: str = "<=",
        *,
        ours: str = "ours",
        note: str = "",
    ) -> Row:
        """Add a row: ours / peer for a limit from above, peer / ours for one from below.

        A peer that is absent here (a compiler, a store) leaves the figure without a target.
        """
        mine = timings.median(ours)
        row = Row(target, name, unit, mine, note=note)
        if peer in timings.rounds:
            row.peer_name, row.peer, row.limit, row.better = (
                peer,
                timings.median(peer),
                limit,
                better,
            )
            row.ratio = mine / row.peer if better == "<=" else row.peer / mine
        return self.add(row)

    def skip(self, what: str, why: str) -> None:
        self.skipped.append(f"{what}: {why}")
        print(f"     {what} is skipped: {why}", flush=True)

    @contextlib.contextmanager
    def folder(self) -> Iterator[Path]:
        folder = Path(tempfile.mkdtemp(dir=self.root))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def open_index(self, folder: Path, **settings: Any) -> BenchIndex:
        """Open an index of this run's file size; nothing runs in the background unless asked."""
        chosen = {
            "slot_count": self.size(5_000_000),
            "item_capacity": self.size(20_000_000),
            "background": False,
            **settings,
        }
        index = BenchIndex.open(folder, **chosen)
        assert isinstance(index, BenchIndex)
        return index


class BenchIndex(Index):
    """An index that shows its components: floors and single steps work on them."""

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self.components = components


def newest_file(index: Index) -> FileHandle:
    """Return the handle of an index's newest file: the floors work on its bytes."""
    assert isinstance(index, BenchIndex)
    with index.components.table.snapshot() as snapshot:
        return snapshot.files[0]


def next_local_unit(index: Index) -> Unit:
    """Return the compactor's next unit of local work: to seal a file, or to compact it."""
    from tierdex.compactor.kind import IndexKind  # an old tree of benchmarks.paired has none
    from tierdex.compactor.local_work import LocalWork

    assert isinstance(index, BenchIndex)
    assert index.components.writing is not None
    components = index.components.writing.compactor.components
    return next(iter(LocalWork(components, IndexKind(components)).units()))


def store_that_is_down() -> FaultyStore:
    """Return a store that nothing can be published to: compacted files stay local."""
    return FaultyStore(MemoryStore(), ids=SystemIds(), clock=SystemClock())


def compact_only(index: Index) -> None:
    """Run the compactor while the store is down: files end compacted and local."""
    with contextlib.suppress(TierdexError):  # the upload's
        index.run_compaction()


def line_of(row: Row) -> str:
    """Return a row as one line of the table."""
    verdict = {True: "met", False: "NOT MET", None: ""}[row.met]
    ours = "" if row.ours is None else f"{short(row.ours)} {row.unit}"
    peer = "" if row.peer is None else f"{row.peer_name} {short(row.peer)}"
    ratio = "" if row.ratio is None else short(row.ratio)
    limit = "" if row.limit is None else f"{row.better} {short(row.limit)}"
    return f"{row.target:2d}  {row.name:58.58s} {ours:>18s}  {peer:24s} {ratio:>8s} {limit:>9s}  {verdict}"


def short(value: float) -> str:
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def warm_memory(length: int) -> None:
    """Touch so much memory once, and give it back.

    A virtual machine gets its memory from the host at the first touch, which costs many times what a
    page fault does (measured: 8.7 us a 4 KiB page, 0.35 once it is there); whoever needs new pages
    would be measured by that. The kernel reports free memory back to the host within seconds, so this
    belongs right before what is measured, for every contestant alike.
    """
    length = min(length, psutil.virtual_memory().available // 2)
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS  # pages of the shared kind are small ones
    with mmap.mmap(-1, length, flags=private) as block:
        block.madvise(mmap.MADV_HUGEPAGE)
        pages = np.frombuffer(block, np.uint8)[:: mmap.PAGESIZE]
        pages[:] = 1
        del pages  # or the mapping could not be closed


class Stopwatch:
    """Says how long each part took, for whoever waits."""

    def __init__(self) -> None:
        self._begin = time.perf_counter()

    def elapsed(self) -> float:
        return time.perf_counter() - self._begin
