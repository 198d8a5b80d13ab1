"""`tierdex bench`: a short measurement of put and lookup on this machine.

It needs nothing but the package. The comparisons with other stores are `make bench` of the
repository.

Depends on options, output and index_service.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tierdex.app.cli.terminal import options
from tierdex.app.cli.terminal.options import Form
from tierdex.app.cli.terminal.output import write_rows
from tierdex.clock import SystemClock
from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOKUPS = 1000


def bench(
    entries: Annotated[int, typer.Option(help="Entries to put.")] = 1_000_000,
    folder: Annotated[
        Path | None, typer.Option(help="Folder on the disk to measure (default: a temporary one).")
    ] = None,
    output: options.Output = Form.TABLE,
) -> None:
    """Measure put_batch, query_batch and single queries, in a temporary folder."""
    if entries < _LOOKUPS:
        raise InvalidRequestError(f"at least {_LOOKUPS}", field="--entries")
    with tempfile.TemporaryDirectory(dir=folder) as data:
        rows = _measure(Path(data), entries)
    write_rows(output, rows, ("what", "count", "seconds", "per_second"), whole={"measured": rows})


def _measure(data: Path, entries: int) -> list[dict[str, Any]]:
    import numpy as np
    import pyarrow as pa

    from tierdex.index_service.index import Index

    keys = pa.array([f"ORDER-{number:012}" for number in range(entries)])
    numbers = np.arange(entries, dtype=np.int64)
    asked = keys.take(numbers[:: max(1, entries // _LOOKUPS)][:_LOOKUPS])
    lookups = pa.table({"topic": pa.repeat("bench", len(asked)), "key": asked})

    def put(index: Any, count: int) -> None:
        index.put_batch(
            topic="bench", keys=keys[:count], queue_id=0, offset=numbers[:count], size=100,
            timestamp=numbers[:count],
        )  # fmt: skip

    def query(index: Any) -> None:
        for key in asked.to_pylist():
            index.query("bench", key=key)

    settings: dict[str, Any] = {"background": False, "item_capacity": max(entries * 2, 1024)}
    with Index.open(data, **settings) as index:
        put(index, _LOOKUPS)  # compiles the kernels before the clock starts
        index.query_batch_arrow(lookups, on_error="partial")
        query(index)
        return [
            measured("put_batch", entries, lambda: put(index, entries)),
            measured("query_batch", _LOOKUPS, lambda: index.query_batch_arrow(lookups, on_error="partial")),
            measured("query", _LOOKUPS, lambda: query(index)),
        ]  # fmt: skip


def measured(what: str, count: int, work: Callable[[], object]) -> dict[str, Any]:
    """Do the work once; return what it took as a row."""
    clock = SystemClock()
    started = clock.monotonic()
    work()
    seconds = max(clock.monotonic() - started, 1e-9)
    return {
        "what": what, "count": count, "seconds": round(seconds, 4),
        "per_second": round(count / seconds),
    }  # fmt: skip
