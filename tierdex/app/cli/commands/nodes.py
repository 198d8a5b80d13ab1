"""`tierdex nodes`: the nodes of a store, how far each has published; `tierdex nodes retire NAME`.

Depends on lifecycle.nodes.retiring and the rest of app.cli.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tierdex.app.cli.inputs.opening import Folder, Target, opened_for_reading
from tierdex.app.cli.terminal import options
from tierdex.app.cli.terminal.exits import Exit, reporting, say, tell_unread
from tierdex.app.cli.terminal.options import Form, spread
from tierdex.app.cli.terminal.output import write_rows

COLUMNS = (
    "node", "standing", "heard_at", "published_through", "lag_s", "skew_s", "holds_unpublished",
    "files", "number", "url", "problem",
)  # fmt: skip
_SKEW_TOLD_S = 10


def make_cli() -> typer.Typer:
    """Return the command group; without a command it lists."""
    cli = typer.Typer(help="List the nodes of a store; give up what a lost node never published.")
    cli.callback(invoke_without_command=True)(reporting(spread(nodes)))
    cli.command("retire")(reporting(spread(retire)))
    return cli


def nodes(
    *,
    context: typer.Context,
    target: Target,
    output: options.Output = Form.TABLE,
) -> None:
    """List the nodes: live, late, silent, closed, retired, shared or unknown, and how far each has published.

    Liveness comes from the last heartbeat of a node (heard_at), which a live node writes every live_interval.

    Exit code 4 when a node of the store cannot be read.
    """
    if context.invoked_subcommand is not None:
        return
    with opened_for_reading(target, target.settings) as index:
        found = index.nodes()
        skew_s = index.clock_skew()
    rows = [node._asdict() for node in found if node.node]
    write_rows(output, rows, COLUMNS, whole={"nodes": rows})
    if skew_s is not None and abs(skew_s) >= _SKEW_TOLD_S:
        behind = "ahead of" if skew_s > 0 else "behind"
        say(
            f"the reader's clock is {abs(skew_s):.0f} s {behind} the store's; times are the store's"
        )
    if tell_unread(found):
        raise typer.Exit(Exit.INCOMPLETE)


def retire(
    *,
    node: Annotated[str, typer.Argument(help="The node whose data folder is lost.")],
    folder: Folder,
) -> None:
    """Give up a node's acknowledged entries that were never published.

    The node no longer holds back the `as_of` of answers. Its published files stay. Use it when the node's
    data folder is lost; otherwise start its owner again, or publish the folder with
    `tierdex adopt`.
    """
    from tierdex.lifecycle.nodes.retiring import retire_node

    retire_node(folder.target.store_place, node, folder.target.settings)
    say(f"retired: the unpublished entries of node {node} are given up")
