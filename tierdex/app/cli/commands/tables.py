"""`tierdex tables`: the lake's tables that topics follow, and how far each is indexed.

Depends on times and the rest of app.cli.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tierdex.app.cli.inputs.opening import Target, opened_for_reading, parse_settings
from tierdex.app.cli.terminal import options
from tierdex.app.cli.terminal.exits import Exit, say
from tierdex.app.cli.terminal.options import Form
from tierdex.app.cli.terminal.output import write_rows
from tierdex.times import format_time

COLUMNS = (
    "topic", "table", "version", "committed", "looked", "behind", "live_files", "live_rows",
    "deleted_rows", "dead_files", "snapshots",
)  # fmt: skip


def tables(
    topic: Annotated[str | None, typer.Argument(help="One topic (default: all).")] = None,
    data: options.Data = None,
    url: options.Url = None,
    api_key: options.ApiKey = None,
    output: options.Output = Form.TABLE,
    setting: options.Set = None,
) -> None:
    """List the lake's tables that topics follow: newest indexed snapshot, live and dead files and rows.

    Exit code 3 when there is none, 4 when a follower stands still.
    """
    with opened_for_reading(Target(data, None, url, api_key), parse_settings(setting)) as index:
        found = [each for each in index.tables() if topic in (None, each.topic)]
    rows = [
        {
            **each.to_dict(),
            "committed": _time(each.snapshot_time),
            "looked": _time(each.looked_at),
        }
        for each in found
    ]
    write_rows(output, rows, COLUMNS, whole={"tables": [each.to_dict() for each in found]})
    troubled = [each for each in found if each.trouble is not None]
    for each in troubled:
        say(f"{each.topic}: {each.table} stands still: {each.trouble}")
    if troubled:
        raise typer.Exit(Exit.INCOMPLETE)
    if not found:
        say("no topic follows a table")
        raise typer.Exit(Exit.NOT_FOUND)


def _time(time_ms: int | None) -> str | None:
    return None if time_ms is None else format_time(time_ms)
