"""`tierdex compact`: seal, compact, upload and publish all that is due.

Depends on the rest of app.cli.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tierdex.app.cli.inputs.opening import Target, opened_owner
from tierdex.app.cli.terminal import options
from tierdex.app.cli.terminal.exits import say
from tierdex.app.cli.terminal.options import Form
from tierdex.app.cli.terminal.output import write_fields
from tierdex.errors import InvalidRequestError


def compact(
    *,
    roll: Annotated[
        bool,
        typer.Option("--roll", help="Roll the unsealed file first, so that it is published too."),
    ] = False,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes",
            help="Delete the objects that no manifest lists, even if they are most of the node's objects.",
        ),
    ] = False,
    target: Target,
    output: options.Output = Form.TABLE,
    ownership: options.Ownership,
) -> None:
    """Compact, upload and publish every file that is due, of the index and of a message log in the folder."""
    if yes and target.url is not None:
        raise InvalidRequestError("needs the data folder: not with --url", field="--yes")
    settings = {"background": False, **target.settings}
    with opened_owner(target, settings, ownership) as (index, log):
        done = 0
        if log is not None:  # first: the index goes up after what it covers
            if roll:
                log.roll()
            done += log.run_compaction()
        if roll:
            index.roll()
        done += index.run_compaction(yes=True) if yes else index.run_compaction()
        status = index.compaction_status()
        if log is not None:
            status["log"] = log.compaction_status()
    write_fields(output, {"done": done, **compaction_fields(output, status)})
    if status.get("orphans_kept"):
        say(f"note: {status['orphans_kept']}")


def compaction_fields(output: Form, status: dict[str, Any]) -> dict[str, Any]:
    """Return a compaction status for people: what was done, waits, or failed. Programs get all of it."""
    if output is not Form.TABLE:
        return status
    told = {name: status[name] for name in ("backlog_files", "backlog_bytes")}
    told |= {name: value for name, value in status["totals"].items() if value}
    told |= {name: status[name] for name in ("last_error", "worker_error") if status.get(name)}
    if status.get("log") is not None:
        told["log"] = compaction_fields(output, status["log"])
    return told
