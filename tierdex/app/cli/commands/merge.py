"""`tierdex merge`: the old files of all nodes of a store become runs, in one process.

Depends on pipeline and the rest of app.cli.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from tierdex.app.cli.inputs.opening import opened_store
from tierdex.app.cli.terminal import options
from tierdex.app.cli.terminal.options import Form
from tierdex.app.cli.terminal.output import write_fields

_HOUR_MS = 3_600_000


def merge(
    store: Annotated[
        str, typer.Argument(help="Store: a folder, or a file://, s3://, gs://, az:// URL.")
    ],
    node: Annotated[str, typer.Option(help="Shared node that lists the runs.")] = "runs",
    older_than_hours: Annotated[
        float, typer.Option(min=0, help="Merge only files that were sealed this long ago.")
    ] = 24,
    piece_items: Annotated[
        int, typer.Option(min=1, help="Approximate number of items of a merged file.")
    ] = 20_000_000,
    min_files: Annotated[int, typer.Option(min=2, help="Minimum number of files of a run.")] = 8,
    output: options.Output = Form.TABLE,
) -> None:
    """Merge old files of all nodes into runs, so that a lookup reads one object per day.

    Safe beside writers, readers and other merges, and when killed at any moment.
    """
    from tierdex.pipeline.merging.merge_job import merge_runs

    report = merge_runs(
        lambda: opened_store(store),
        node=node,
        older_than_ms=round(older_than_hours * _HOUR_MS),
        piece_items=piece_items,
        min_files=min_files,
    )
    write_fields(output, asdict(report))
