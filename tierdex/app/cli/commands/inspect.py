"""`tierdex inspect FILE`: what one index file or log file holds.

Depends on index_file, options and output.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tierdex.app.cli.inputs.index_file import describe_index_file
from tierdex.app.cli.terminal import options
from tierdex.app.cli.terminal.options import Form
from tierdex.app.cli.terminal.output import write_fields
from tierdex.errors import InvalidRequestError, NotFoundError


def inspect(
    file: Annotated[
        Path,
        typer.Argument(help="An index file or log file of any form, or a RocketMQ index file."),
    ],
    output: options.Output = Form.TABLE,
) -> None:
    """Describe one file: header, fill, chains or runs, dictionaries, batches, queues, pages."""
    if file.is_dir():
        raise InvalidRequestError(f"{file} is a folder: name one file of it", field="FILE")
    if not file.is_file():
        raise NotFoundError(f"there is no file {file}")
    write_fields(output, describe_index_file(file))
