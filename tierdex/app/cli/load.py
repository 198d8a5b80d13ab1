"""`tierdex load FILE`: CSV, JSON lines or Parquet into the index.

Depends on app.load and the other modules of this folder.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tierdex.app.cli import options
from tierdex.app.cli.opening import DEFAULT_DATA, Target, opened_for_writing, parse_settings
from tierdex.app.cli.options import Form, Level
from tierdex.app.cli.output import write_fields
from tierdex.app.cli.progress_bar import progress_bar
from tierdex.value_rules import check_durability


class Kind(StrEnum):
    """Kinds of files."""

    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"


def load(
    file: Annotated[Path, typer.Argument(help="CSV, JSON lines or Parquet.")],
    topic: Annotated[str, typer.Option("--topic", "-t", help="Name, or {template} of columns.")],
    key: Annotated[
        list[str] | None,
        typer.Option("--key", "-k", help="Column or {template}; repeatable."),
    ] = None,
    message_id: Annotated[
        str | None, typer.Option("--message-id", "-i", help="Column or {template}.")
    ] = None,
    timestamp: Annotated[
        str | None, typer.Option(help="Column or {template} (default: the file's own time).")
    ] = None,
    timezone: Annotated[str | None, typer.Option(help="Zone of times that do not say it.")] = None,
    queue: Annotated[str | None, typer.Option(help="Number, column or {template}.")] = None,
    kind: Annotated[
        Kind | None, typer.Option(help="csv, jsonl or parquet (default: by the name).")
    ] = None,
    delimiter: Annotated[str | None, typer.Option(help="Delimiter of a CSV.")] = None,
    durability: Annotated[Level, typer.Option(help="Level to reach.")] = Level.DISK,
    data: options.Data = None,
    store: options.Store = None,
    url: options.Url = None,
    api_key: options.ApiKey = None,
    output: options.Output = Form.TABLE,
    setting: options.Set = None,
    take_over: options.TakeOver = False,
    accept_rollback: options.AcceptRollback = False,
) -> None:
    """Load a file: each row becomes an entry that points back at its bytes."""
    from tierdex.app.load.loader import Loader, LoadOptions
    from tierdex.app.load.register import LoadRegister
    from tierdex.filesystem import LocalFileSystem

    what = LoadOptions(
        topic=topic,
        keys=tuple(key or ()),
        message_id=message_id,
        timestamp=timestamp,
        timezone=timezone,
        queue=queue,
        kind=None if kind is None else kind.value,
        delimiter=delimiter,
    )
    register = LoadRegister(LocalFileSystem(), data or DEFAULT_DATA) if url is None else None
    with (
        opened_for_writing(
            Target(data, store, url, api_key),
            parse_settings(setting),
            takeover=take_over,
            accept_rollback=accept_rollback,
        ) as index,
        progress_bar(file.name) as progress,
    ):
        loader = Loader(index, register=register)
        report = loader.load(file, what, progress, durability=check_durability(durability.value))
    write_fields(
        output,
        {
            "rows": report.rows,
            "entries": report.entries,
            "message_ids": report.message_ids,
            "skipped": report.skipped,
        },
    )
