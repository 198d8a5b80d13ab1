"""`python -m tools.call_chains`: the modules of tierdex that each operation of an index enters, in order.

For docs/architecture.md. Each operation runs once before it is traced, so that imports, kernels and
caches are loaded. Kernels call each other without Python: only the first of them is seen.
"""

from __future__ import annotations

import os
import sys
import tempfile
from itertools import count, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import tierdex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PACKAGE = f"{Path(tierdex.__file__).parent}{os.sep}"
_KEYS = 100


def modules_of(operation: Callable[[], object]) -> list[str]:
    """Return the module of each Python call of an operation, in order."""
    entered: list[str] = []

    def note(frame: Any, event: str, _argument: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(_PACKAGE):
            entered.append(path[len(_PACKAGE) :].removesuffix(".py").replace(os.sep, "."))

    operation()
    sys.setprofile(note)
    try:
        operation()
    finally:
        sys.setprofile(None)
    return entered


def operations(index: tierdex.Index) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the name and the call of each operation; the last ones need those before them."""
    numbers = count(1)
    place: dict[str, Any] = {"topic": "t", "queue_id": 0, "size": 1}

    def put(*keys: str) -> None:
        index.put(**place, keys=[*keys], offset=next(numbers), timestamp=1, durability="os")

    def put_batch() -> None:
        offsets = np.arange(_KEYS) + 1000 * next(numbers)
        index.put_batch(**place, keys=keys, offset=offsets, timestamp=offsets)

    def publish() -> None:
        put_batch()
        index.roll()
        index.run_compaction()

    keys = [f"key-{number}" for number in range(_KEYS)]
    lookups = pa.table({"topic": ["t"] * _KEYS, "key": keys})
    yield "put of one key", lambda: put("a")
    yield "put of two keys", lambda: put("a", "b")
    yield f"put_batch of {_KEYS}", put_batch
    yield "query, local key", lambda: index.query("t", key=keys[0])
    yield "query, explained", lambda: index.query("t", key=keys[0], explain=True)
    yield "query_batch", lambda: index.query_batch(lookups.to_pylist())
    yield "query_batch_arrow", lambda: index.query_batch_arrow(lookups)
    yield "put_batch, roll, run_compaction", publish
    yield "query, published key", lambda: index.query("t", key=keys[0])


def main() -> None:
    """Print each operation's modules, and how often it enters one."""
    with (
        tempfile.TemporaryDirectory() as folder,
        tierdex.Index.open(folder, background=False) as index,
    ):
        for name, operation in operations(index):
            entered = modules_of(operation)
            distinct = list(dict.fromkeys(entered))
            entries = sum(1 for _ in groupby(entered))
            print(f"{name}: {len(distinct)} modules, {entries} entries into one")
            print(f"    {' -> '.join(distinct)}")


if __name__ == "__main__":
    main()
