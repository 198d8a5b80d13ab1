"""`tierdex adopt`: publish a fenced folder's files under a new node.

Depends on compact, opening, options, output, index_service and log_service.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tierdex.app.cli.commands.compact import compaction_fields
from tierdex.app.cli.inputs.opening import holds_log, parse_settings
from tierdex.app.cli.terminal import options
from tierdex.app.cli.terminal.options import Form
from tierdex.app.cli.terminal.output import write_fields
from tierdex.errors import NotFoundError


def adopt(
    data: Annotated[Path, typer.Option(help="The data folder whose node was taken over.")],
    node: Annotated[str, typer.Option(help="Name of the new node.")],
    store: options.Store = None,
    output: options.Output = Form.TABLE,
    setting: options.Set = None,
) -> None:
    """Publish the files of a data folder whose node has another owner now, under a new node."""
    from tierdex.index_service.index import Index
    from tierdex.log_service.message_log import MessageLog

    if not data.is_dir():
        raise NotFoundError(f"there is no data folder {data}")
    settings = {**parse_settings(setting), "node": node, "background": False}
    if holds_log(data):
        with MessageLog.open(data, store=store, adopt=True, **settings) as log:
            adopted = log.unpublished_count()
            for rolls in (log.roll, log.index.roll):  # the index goes up after what it covers
                rolls()
                log.run_compaction()
            status = log.index.compaction_status()
        write_fields(
            output, {"node": node, "messages": adopted, **compaction_fields(output, status)}
        )
        return
    with Index.open(data, store=store, adopt=True, **settings) as index:
        index.roll()
        done = index.run_compaction()
        status = index.compaction_status()
    write_fields(output, {"node": node, "done": done, **compaction_fields(output, status)})
