"""`tierdex watermark`: the end offset of a queue at each level, here or as another node has published it.

Depends on the rest of app.cli.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tierdex.app.cli.inputs.opening import Target, opened_for_reading
from tierdex.app.cli.terminal import options
from tierdex.app.cli.terminal.options import Form
from tierdex.app.cli.terminal.output import write_fields


def watermark(
    *,
    topic: Annotated[str, typer.Option("--topic", "-t", help="Topic of the queue.")],
    queue_id: Annotated[int, typer.Option("--queue-id", help="Queue of the topic.")] = 0,
    node: Annotated[
        str | None, typer.Option(help="Print how far this node of the store has published.")
    ] = None,
    target: Target,
    output: options.Output = Form.TABLE,
) -> None:
    """Print the end offset of a queue at each level: every entry below it has reached the level.

    A broker that lost its index replays from this offset.
    """
    with opened_for_reading(target, target.settings) as index:
        marks = index.watermark(topic, queue_id, node=node)
    write_fields(output, {"topic": topic, "queue_id": queue_id, **marks})
