"""`python -m tools.compile_kernels`: compiles most kernels into numba's cache, by using each door once.

`make test` runs it beside the linters: in a fresh clone its processes would all compile the same kernels
otherwise, each for itself. What it leaves out is compiled by whoever calls it first, as ever.

Depends on what a user of the package imports.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import tierdex

_COUNT = 3000  # more than one page, chunk and block of the small files below
_SMALL: dict[str, Any] = {
    "slot_count": 1024, "item_capacity": 20_000, "disk_reserve_bytes": 0, "background": False,
}  # fmt: skip


def use_index(folder: Path) -> None:
    """Put, roll, compact, publish, merge; ask each form of file singly and in batches; verify, open again."""
    settings = {**_SMALL, "merge_min_files": 2, "node": "n"}
    for life in range(3):
        with tierdex.Index.open(folder / "data", **settings) as index:
            for durability in ("received", "os", "disk"):
                index.put(
                    topic="t", keys=["a", "b"], message_id="m", queue_id=0, offset=life, size=1,
                    timestamp=life, durability=durability,
                )  # fmt: skip
            _put_many(index, life * _COUNT)
            _ask(index)
            index.roll()
            _ask(index)
            index.run_compaction()
            _ask(index)
            for file in index.files():
                index.verify_file(file.file_id)
            _put_many(index, life)  # an unsealed file, for the opening that follows


def _put_many(index: tierdex.Index, first: int) -> None:
    numbers = np.arange(first, first + _COUNT)
    index.put_batch(
        topic=pa.array([f"t{n % 3}" for n in numbers.tolist()]),
        keys=pa.array([f"k{n % 500}" for n in numbers.tolist()]),
        message_id=pa.array([f"m{n}" for n in numbers.tolist()]),
        queue_id=numbers % 4, offset=numbers, size=1, timestamp=numbers,
    )  # fmt: skip
    index.put_batch(
        topic="t", keys=[f"k{n}" for n in numbers.tolist()], queue_id=0, offset=numbers, size=1,
        timestamp=numbers,
    )  # fmt: skip


def _ask(index: tierdex.Index) -> None:
    for asked in ({"key": "k1"}, {"message_id": "m1"}, {"key": "k1", "begin": 0, "end": 9}):
        index.query("t1", **asked, max_count=2, explain=True)
    lookups = pa.table(
        {"topic": [f"t{n % 3}" for n in range(_COUNT)], "key": [f"k{n}" for n in range(_COUNT)]}
    )
    index.query_batch_arrow(lookups)
    index.query_batch(lookups.slice(0, 50).to_pylist())


def use_log(folder: Path) -> None:
    """Append, read at each level, seal, group, read again, open again."""
    for _life in range(2):
        with tierdex.MessageLog.open(
            folder, journal_bytes=1 << 20, max_message_bytes=64 << 10, **_SMALL
        ) as log:
            for durability in ("received", "os", "disk"):
                log.append(topic="t", queue_id=0, body=b"body", keys=["a"], durability=durability)
            for _ in range(4):
                log.append_batch(
                    topic=pa.array([f"t{n % 3}" for n in range(_COUNT)]),
                    queue_id=[n % 4 for n in range(_COUNT)],
                    body=[b"%d " % n * 20 for n in range(_COUNT)],
                    keys=pa.array([f"k{n}" for n in range(_COUNT)]),
                )
            _read(log)
            log.roll()
            log.run_compaction()
            _read(log)


def _read(log: tierdex.MessageLog) -> None:
    log.read("t1", 1, 0)
    log.read_arrow("t1", 1, 5)
    log.read_many([("t1", 1, 0), ("t2", 2, 3)])
    log.get("t1", key="k1")
    log.offset_at("t1", 1, 0)


def main() -> None:
    """Use an index and a log in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        use_index(Path(folder, "index"))
        use_log(Path(folder, "log"))


if __name__ == "__main__":
    main()
