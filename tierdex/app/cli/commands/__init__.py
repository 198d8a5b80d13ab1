"""The commands by name. Each is a module of this folder, imported when it is called.

To import and build all of them takes as long as half of a `tierdex query`.

Depends on exits and options.
"""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

import typer

from tierdex import __version__
from tierdex.app.cli.terminal.exits import reporting
from tierdex.app.cli.terminal.options import spread

# In the order of `tierdex --help`. A command is the function of its module's name.
COMMANDS = (
    "serve", "load", "follow", "put", "query", "journey", "files", "inspect", "verify", "compact", "expire",
    "forget", "adopt", "merge", "watermark", "tables", "bench", "cost", "probe", "mcp",
)  # fmt: skip
# `make_cli` of the module makes the commands of a group.
GROUPS = ("keys", "log", "nodes", "rocketmq", "spark")


def make_cli(asked: str | None = None) -> typer.Typer:
    """Return the command line application: all commands, or only the command `asked` if it exists."""
    cli = typer.Typer(
        help="Finds any message of a log by its key or message ID, however old.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
    )
    cli.callback()(_with_version)
    every = (*COMMANDS, *GROUPS)
    for name in (asked,) if asked in every else every:
        module = import_module(f"{__name__}.{name}")
        if name in GROUPS:
            cli.add_typer(module.make_cli(), name=name)
        else:
            command = reporting(spread(getattr(module, name)), is_brief=name == "query")
            cli.command(name)(command)
    return cli


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"tierdex {__version__}")
        raise typer.Exit


def _with_version(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    """Finds any message of a log by its key or message ID, however old."""
