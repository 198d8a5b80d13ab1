"""Thousands of small lives in one process: memory, descriptors, mappings and disk stay flat."""

from __future__ import annotations

import gc
import os
from pathlib import Path

from tierdex import Index
from tierdex.clock import ManualClock
from tierdex.ids import SeededIds

SETTINGS = {
    "slot_count": 64, "item_capacity": 500, "background": False, "disk_reserve_bytes": 0,
    "merge_min_files": 3, "merge_below_items": 400, "grace_time": 10.0, "checkpoint_every": 8,
    "sidecar_cache_bytes": 200_000,
}  # fmt: skip


class Usage:
    """What the process and its folder hold now."""

    def __init__(self, folder):
        gc.collect()
        self.descriptors = len(os.listdir("/proc/self/fd"))
        self.mappings = Path("/proc/self/maps").read_text().count("\n")
        self.resident = int(Path("/proc/self/statm").read_text().split()[1]) * 4096
        files = [path for path in Path(folder).rglob("*") if path.is_file()]
        # Manifest numbers are overwritten by tombstones, never deleted: they are counted apart.
        data = [path for path in files if "/manifest/" not in str(path)]
        self.disk_files, self.disk_bytes = len(data), sum(path.stat().st_size for path in data)

    def __repr__(self):
        return repr(vars(self))


def soak(folder, cycles, warm_up=30):
    """Run whole lives; return the usage after the warm-up and at the end. Raises AssertionError."""
    clock, first, index = ManualClock(), None, None
    for cycle in range(cycles + warm_up):
        if cycle % 10 == 0:
            if index is not None:
                index.close()
            index = Index.open(folder, clock=clock, ids=SeededIds(cycle), **SETTINGS)
        index.put_batch(
            topic="t", keys=[f"K{n % 9}" for n in range(60)], queue_id=0, size=1,
            offset=[cycle * 100 + n for n in range(60)], timestamp=cycle,
        )  # fmt: skip
        index.flush("disk")
        index.roll()
        index.run_compaction()
        assert index.query("t", key="K1").entries[0].offset // 100 == cycle
        clock.advance(100)
        index.expire(before=clock.now_ms() - 1_500_000)
        if cycle + 1 == warm_up:
            first = Usage(folder)
    last = Usage(folder)
    index.close()
    assert last.descriptors <= first.descriptors + 8, (first, last)
    assert last.mappings <= first.mappings + 40, (first, last)
    assert last.resident <= first.resident + (48 << 20), (first, last)
    assert last.disk_files <= first.disk_files + 40, (first, last)
    assert last.disk_bytes <= first.disk_bytes + (2 << 20), (first, last)
    return first, last
