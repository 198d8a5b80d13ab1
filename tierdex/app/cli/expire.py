"""`tierdex expire`: drop files sealed before a time.

Depends on documents, times and the other modules of this folder.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tierdex.app.cli import options
from tierdex.app.cli.exits import Exit, tell_unread
from tierdex.app.cli.opening import Target, opened_for_writing, parse_settings
from tierdex.app.cli.options import Form
from tierdex.app.cli.output import write_rows
from tierdex.app.documents import FILE_FIELDS, file_document
from tierdex.app.times import parse_time


def expire(
    before: Annotated[
        str, typer.Option(help="Files sealed before this go: milliseconds or RFC 3339.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only name them.")] = False,
    data: options.Data = None,
    store: options.Store = None,
    url: options.Url = None,
    api_key: options.ApiKey = None,
    output: options.Output = Form.TABLE,
    setting: options.Set = None,
    take_over: options.TakeOver = False,
    accept_rollback: options.AcceptRollback = False,
) -> None:
    """Drop this node's published files sealed before a time. Exit code 4: a node cannot be read."""
    time_ms = parse_time(before, field="--before")
    settings = {"background": False, **parse_settings(setting)}
    target = Target(data, store, url, api_key)
    with opened_for_writing(
        target, settings, takeover=take_over, accept_rollback=accept_rollback
    ) as index:
        rows = [file_document(f) for f in index.expire(before=time_ms, dry_run=dry_run)]
        nodes = index.nodes()
    write_rows(output, rows, FILE_FIELDS, whole={"files": rows, "dry_run": dry_run})
    if tell_unread(nodes):
        raise typer.Exit(Exit.INCOMPLETE)
