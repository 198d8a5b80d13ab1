"""`tierdex log hand-over` and `take-over`: move a message log to another machine, or recover from a lost one.

Depends on options, opening, output, errors, settings, lifecycle, log_service and storage_layer.
"""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from tierdex.app.cli.inputs.opening import DEFAULT_DATA, Folder, holds_log
from tierdex.app.cli.terminal import options
from tierdex.app.cli.terminal.options import Form
from tierdex.app.cli.terminal.output import write_fields
from tierdex.errors import NotFoundError


def hand_over(
    *,
    place: Folder,
    timeout: Annotated[
        float, typer.Option(help="Seconds within which everything must be published.")
    ] = 600.0,
    output: options.Output = Form.TABLE,
) -> None:
    """Publish everything and release the log's node, for another folder to take over."""
    from tierdex.log_service.message_log import MessageLog

    folder, settings = place.data or DEFAULT_DATA, place.target.settings
    if not holds_log(folder):
        raise NotFoundError(f"{folder} holds no message log: is the path right?")
    with MessageLog.open(folder, store=place.store, **settings) as log:
        log.hand_over(timeout=timeout)
        node = log.node
    write_fields(output, {"node": node, "released": True})


def take_over(
    *,
    node: Annotated[str, typer.Option(help="The log's node.")],
    place: Folder,
    lossy: Annotated[
        bool,
        typer.Option(
            "--lossy",
            help="The log was not handed over and its disk is lost: give up the unpublished messages.",
        ),
    ] = False,
    output: options.Output = Form.TABLE,
) -> None:
    """Make a folder the owner of the node of a log that another folder owned before."""
    from tierdex.lifecycle.manifests.manifest_log import list_nodes
    from tierdex.log_service.message_log import MessageLog
    from tierdex.settings import load_settings
    from tierdex.storage_layer.open import open_store

    folder, store = place.data or DEFAULT_DATA, place.store
    settings = {**place.target.settings, "node": node}
    if not holds_log(folder):  # a mistyped name would begin a log of its own
        opened = open_store(store or folder / "store", settings=load_settings(**settings))
        if node not in list_nodes(opened):
            raise NotFoundError(f"the store has no node {node}: are store and node right?")
    takeover: bool | Literal["lossy"] = "lossy" if lossy else True
    with MessageLog.open(folder, store=store, takeover=takeover, **settings) as log:
        topics = len(log.topics())
    write_fields(output, {"node": node, "topics": topics})
