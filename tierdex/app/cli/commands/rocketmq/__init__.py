"""`tierdex rocketmq`'s commands: what a broker's folder holds, without the broker.

Depends on following, errors, filesystem and the rest of app.cli.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tierdex.app.cli.commands.load import asked_to_stop
from tierdex.app.cli.inputs.opening import Target, opened_for_writing
from tierdex.app.cli.terminal import options
from tierdex.app.cli.terminal.exits import Exit, reporting, say
from tierdex.app.cli.terminal.options import Form, spread
from tierdex.app.cli.terminal.output import write_fields
from tierdex.app.cli.terminal.progress_bar import progress_bar
from tierdex.errors import InvalidRequestError


def make_cli() -> typer.Typer:
    """Return the command group."""
    cli = typer.Typer(help="Index the files of a RocketMQ broker.", no_args_is_help=True)
    cli.callback()(lambda: None)  # a group, also while it has one command
    cli.command("import")(reporting(spread(import_store)))
    return cli


def import_store(
    *,
    folder: Annotated[
        Path, typer.Argument(help="The broker's store folder (storePathRootDir), or a copy of it.")
    ],
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", "-t", help="Topic to import; repeatable (default: all users' topics)."
        ),
    ] = None,
    begin: Annotated[
        int,
        typer.Option(min=0, help="Byte of the commit log to begin at: `end` of an import before."),
    ] = 0,
    broker: Annotated[
        int, typer.Option(min=0, max=32767, help="Number of the broker among those of `follow`.")
    ] = 0,
    target: Target,
    output: options.Output = Form.TABLE,
    ownership: options.Ownership,
) -> None:
    """Index every message of a broker's commit log by its KEYS and its UNIQ_KEY.

    The files are read only; the broker may run, or be no more. Exit code 130: interrupted.
    """
    from tierdex.filesystem import LocalFileSystem
    from tierdex.following.rocketmq_store import CommitLog, ImportPlan, import_commit_log

    if target.url is not None:
        raise InvalidRequestError("an import needs the data folder: not with --url", field="--url")
    log = CommitLog(LocalFileSystem(), folder)
    plan = ImportPlan(tuple(topic or ()), begin, broker)
    with (
        opened_for_writing(target, target.settings, ownership) as index,
        progress_bar(folder.name) as progress,
        asked_to_stop() as stop,
    ):
        done = import_commit_log(index, log, plan, progress, stop)
        is_stopped = stop()
    write_fields(output, asdict(done))
    if is_stopped:
        say(f"interrupted: --begin {done.end} goes on from there")
        raise typer.Exit(Exit.INTERRUPTED)
