"""`tierdex log bench`: a short measurement of a message log on this machine.

It needs nothing but the package. The comparisons with other logs are `make bench` of the repository.

Depends on bench, log_loads, opening, options, output, log_service and value_rules.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tierdex.app.cli import options
from tierdex.app.cli.bench import measured
from tierdex.app.cli.opening import parse_settings
from tierdex.app.cli.options import Form
from tierdex.app.cli.output import write_rows
from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from tierdex.value_rules import Durability

_BATCH = 10_000
_SINGLES = 200
_READ = 10
_TOPIC = "bench"
_LOAD_COLUMNS = (
    "what", "count", "seconds", "cpu_seconds", "limit_s", "per_second", "asked_per_second", "mib_s",
    "asked_mib_s", "disk_mib_s", "of_asked", "of_disk",
)  # fmt: skip


def bench(
    messages: Annotated[int, typer.Option(help="Messages to append in batches.")] = 1_000_000,
    size: Annotated[int, typer.Option(help="Bytes of a body.")] = 100,
    queues: Annotated[int, typer.Option(help="Number of queues.")] = 1000,
    folder: Annotated[
        Path | None, typer.Option(help="Folder on the disk to measure (default: a temporary one).")
    ] = None,
    load: Annotated[
        str | None,
        typer.Option(help="Run a seed load instead: million-queues or strict-offsets."),
    ] = None,
    scale: Annotated[float, typer.Option(help="Fraction of the load, above 0, at most 1.")] = 0.001,
    store: options.Store = None,
    output: options.Output = Form.TABLE,
    setting: options.Set = None,
) -> None:
    """Measure batches, single durable appends and reads, in a temporary folder.

    With --load: 2 G messages of 58 B in a million queues, or 40 threads that write at `disk` and read;
    scaled, beside what the original asked and what this disk can do. --store says where files are published.
    """
    if load is not None:
        from tierdex.app.cli.log_loads import Load, run_load

        with tempfile.TemporaryDirectory(dir=folder) as data:
            rows = run_load(load, Load(Path(data), scale, store, parse_settings(setting)))
        write_rows(output, rows, _LOAD_COLUMNS, whole={"measured": rows})
        return
    if messages < _BATCH or size < 1 or queues < 1:
        raise InvalidRequestError(
            f"at least {_BATCH} messages, 1 byte, 1 queue", field="--messages"
        )
    with tempfile.TemporaryDirectory(dir=folder) as data:
        rows = _measure(Path(data), messages, size, queues)
    write_rows(output, rows, ("what", "count", "seconds", "per_second"), whole={"measured": rows})


def _measure(data: Path, messages: int, size: int, queues: int) -> list[dict[str, Any]]:
    import numpy as np
    import pyarrow as pa

    from tierdex.log_service.message_log import MessageLog

    body = pa.array([b"x" * size] * _BATCH, pa.binary())
    queue_of = (np.arange(_BATCH) % queues).astype(np.int32)
    batches = messages // _BATCH

    with MessageLog.open(data) as log:

        def append(durability: Durability, count: int = batches) -> None:
            for _ in range(count):
                log.append_batch(topic=_TOPIC, queue_id=queue_of, body=body, durability=durability)

        def append_singly(count: int = _SINGLES) -> None:
            for _ in range(count):
                log.append(topic=_TOPIC, queue_id=0, body=b"x" * size)

        def read(count: int = _SINGLES) -> None:
            end = log.end_offset(_TOPIC, 0)
            for _ in range(count):
                log.read(_TOPIC, 0, max(0, end - _READ), max_count=_READ)

        def read_whole() -> int:
            return sum(len(log.read(_TOPIC, q, 0, max_count=1_000_000)) for q in range(queues))

        append("os", 1)  # compiles the kernels before the clock starts
        append_singly(1)
        read(1)
        rows = [
            measured("append_batch os", batches * _BATCH, lambda: append("os")),
            measured("append_batch disk", batches * _BATCH, lambda: append("disk")),
            measured("append disk, one at a time", _SINGLES, append_singly),
            measured(f"read {_READ} at the end", _SINGLES, read),
        ]
        whole = sum(log.end_offset(_TOPIC, queue) for queue in range(min(queues, _BATCH)))
        return [*rows, measured("read all", whole, read_whole)]
