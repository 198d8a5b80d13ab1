"""`tierdex inspect FILE`: what one index file, of ours or RocketMQ's, or one log file holds.

The magic number tells the format. A file of no known format is refused as a damaged index file.

Depends on indexfile, logfile, rocketmq, options and output.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

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


def describe_index_file(path: Path) -> dict[str, Any]:
    """Return what a file holds, as values of JSON. Raises OSError, CorruptFileError."""
    from tierdex.filesystem import LocalFileSystem
    from tierdex.indexfile.dump import describe_file
    from tierdex.logfile.header import is_log_file
    from tierdex.rocketmq.file import RocketmqIndexFile, is_rocketmq_file

    filesystem = LocalFileSystem()
    if is_log_file(filesystem, path):
        from tierdex.logfile.dump import describe_log_file  # loads the kernels of log files

        return describe_log_file(filesystem, path)
    if not is_rocketmq_file(filesystem, path):
        return describe_file(filesystem, path)
    with closing(RocketmqIndexFile.open(filesystem, path)) as file:
        return file.describe()
