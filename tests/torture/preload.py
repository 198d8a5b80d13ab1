"""What every forked process has at hand: modules and compiled kernels, loaded once by the fork server.

A forked process must not inherit a thread, so nothing here starts one.
"""

from __future__ import annotations

import importlib
from pathlib import Path

from tests.simulation.scheduler import InlineExecutor
from tests.simulation.simulated_disk import SimulatedFileSystem
from tierdex import Index
from tierdex.storage_layer.memory import MemoryStore

_MODULES = (
    "tests.crash.real_process",
    "tests.torture.fleet",
    "tests.torture.log_life",
    "tests.torture.stopped_logs",
    "tests.torture.stopped_owners",
    "tests.torture.writers",
    "tierdex.app.cli.commands.serve",
    "tierdex.app.http.server",
    "tierdex.index_service.batch.batch_queries",
    "tierdex.index_service.peers.answering",
    "tierdex.index_service.peers.asking",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
)


def load_everything():
    for name in _MODULES:
        importlib.import_module(name)
    _use_every_kernel()


def _use_every_kernel():
    with Index.open(
        Path("/data"), store=MemoryStore(), filesystem=SimulatedFileSystem(),
        executor=InlineExecutor(), background=False, slot_count=8, item_capacity=100,
        disk_reserve_bytes=0, merge_min_files=2,
    ) as index:  # fmt: skip
        for number in range(3):
            index.put(topic="t", keys=["K"], queue_id=0, offset=number, size=1, timestamp=1)
            index.put_batch(
                topic="t", keys=["K", "L"], queue_id=0, offset=[7, 8], size=1, timestamp=1
            )
            index.flush("disk")
            index.roll()
            index.run_compaction()
        index.query("t", key="K")
        index.query_batch([{"topic": "t", "key": "K"}, {"topic": "t", "key": "L"}])
        for info in index.files():
            index.verify_file(info.file_id)
