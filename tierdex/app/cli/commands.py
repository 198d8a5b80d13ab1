"""The commands by name.

Depends on the other modules of this folder.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from tierdex import __version__
from tierdex.app.cli import (
    adopt,
    bench,
    compact,
    cost,
    demo,
    expire,
    files,
    inspect,
    keys,
    load,
    nodes,
    probe,
    put,
    query,
    serve,
    spark,
    verify,
)
from tierdex.app.cli.exits import reporting

COMMANDS: dict[str, Callable[..., None]] = {
    "serve": serve.serve,
    "load": load.load,
    "put": put.put,
    "query": query.query,
    "files": files.files,
    "inspect": inspect.inspect,
    "verify": verify.verify,
    "compact": compact.compact,
    "expire": expire.expire,
    "adopt": adopt.adopt,
    "bench": bench.bench,
    "cost": cost.cost,
    "probe": probe.probe,
    "demo": demo.demo,
}


def make_cli() -> typer.Typer:
    """Return the command line application."""
    cli = typer.Typer(
        help="Finds any message of a log by its key or message ID, however old.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
    )
    cli.callback()(_with_version)
    for name, command in COMMANDS.items():
        cli.command(name)(reporting(command, is_brief=command is query.query))
    cli.add_typer(keys.make_cli(), name="keys")
    cli.add_typer(nodes.make_cli(), name="nodes")
    cli.add_typer(spark.make_cli(), name="spark")
    return cli


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"tierdex {__version__}")
        raise typer.Exit


def _with_version(
    version: Annotated[
        bool,
        typer.Option("--version", help="Say the version.", is_eager=True, callback=_say_version),
    ] = False,
) -> None:
    """Finds any message of a log by its key or message ID, however old."""
