"""`tierdex log`'s commands.

Depends on exits, options and the other modules of this folder.
"""

from __future__ import annotations

import typer

from tierdex.app.cli.commands.log.messages import append, get, read, tail
from tierdex.app.cli.commands.log.ownership import hand_over, take_over
from tierdex.app.cli.commands.log.queues import offsets, queues, timers
from tierdex.app.cli.terminal.exits import reporting
from tierdex.app.cli.terminal.options import spread


def make_cli() -> typer.Typer:
    """Return the command group."""
    cli = typer.Typer(
        help="Append to a message log; read, follow and list its queues.", no_args_is_help=True
    )
    for command in (append, read, tail, get, queues, offsets, timers):
        cli.command(command.__name__)(reporting(spread(command)))
    cli.command("hand-over")(reporting(spread(hand_over)))
    cli.command("take-over")(reporting(spread(take_over)))
    return cli
