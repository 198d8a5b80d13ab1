"""`tierdex expire`: drop files sealed before a time.

Depends on documents and the rest of app.cli.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tierdex.app.cli.inputs.opening import Target, opened_owner
from tierdex.app.cli.terminal import options
from tierdex.app.cli.terminal.exits import Exit, tell_unread
from tierdex.app.cli.terminal.options import Form, asked_time
from tierdex.app.cli.terminal.output import write_rows
from tierdex.app.documents import FILE_FIELDS, file_document, log_file_document


def expire(
    *,
    before: Annotated[
        str,
        typer.Option(help="Expire files sealed before this time: RFC 3339, a day, `7d` ago, ms."),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the files.")] = False,
    target: Target,
    output: options.Output = Form.TABLE,
    ownership: options.Ownership,
) -> None:
    """Expire this node's published files, and files of its message log, that were sealed before a time.

    The messages of an expired file are gone, and their queues begin behind them. Exit code 4: a node
    cannot be read.
    """
    asked: dict[str, Any] = {
        "before": asked_time(before, "--before"),
        "dry_run": dry_run,
    }
    settings = {"background": False, **target.settings}
    with opened_owner(target, settings, ownership) as (index, log):
        expired = [] if log is None else log.expire(**asked)
        rows = [log_file_document(f) for f in expired]
        rows += [file_document(f) for f in index.expire(**asked)]
        nodes = index.nodes()
    write_rows(output, rows, FILE_FIELDS, whole={"files": rows, "dry_run": dry_run})
    if tell_unread(nodes):
        raise typer.Exit(Exit.INCOMPLETE)
