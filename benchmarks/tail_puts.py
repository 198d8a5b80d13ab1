"""How long the slowest puts take while a thread of the same process compacts. A part of "One way"."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.measure import Row
from benchmarks.standstill import Standstills
from tierdex import Index

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.bench import Bench

WHEN = 1_700_000_000_000
_PACE_S = 0.0002  # between puts


def run(bench: Bench, target: int) -> None:
    """Add the row."""
    with bench.folder() as folder:
        bench.add(beside_compaction(folder / "data", bench.size(2_000_000), target))


def beside_compaction(folder: Path, items: int, target: int) -> Row:
    """Time single puts at `os`, paced, as long as a thread compacts a file of so many items."""
    spans: list[tuple[float, float]] = []
    with (
        Standstills() as standstills,
        Index.open(folder, background=False, slot_count=items // 4, item_capacity=items) as index,
    ):
        offsets = np.arange(items)
        keys = pa.array(offsets).cast(pa.string())
        place: dict[str, Any] = {"topic": "t", "queue_id": 0, "size": 100, "timestamp": WHEN}
        index.put_batch(**place, keys=keys, offset=offsets)
        index.roll()
        for offset in range(1000):  # the next file is opened, and its topic known
            index.put(**place, key="k", offset=offset)
        compaction = threading.Thread(target=index.run_compaction)
        compaction.start()
        load = os.getloadavg()[0]
        while compaction.is_alive():
            begin = time.perf_counter()
            index.put(**place, key="k", offset=len(spans))
            spans.append((begin, time.perf_counter()))
            time.sleep(_PACE_S)
        compaction.join()
    took = [(end - begin) * 1e3 for begin, end in spans if not standstills.overlap(begin, end)]
    last = float(np.percentile(took, 99.9))
    note = f"of {len(took)} puts; p50 {np.median(took):.3f} ms, most {max(took):.1f} ms; load {load:.1f}"
    return Row(
        target, "put: p99.9 beside compaction", "ms", last, "1 ms", 1.0, last, 1.0, note=note
    )
