"""`inspect` and `verify` of one file, given by its path: an index file, of ours or RocketMQ's, or a log file.

The magic number tells the format. A file of no known format is refused as a damaged index file.

Depends on indexfile, logfile and rocketmq.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from tierdex.errors import CorruptFileError

if TYPE_CHECKING:
    from pathlib import Path


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


def check_index_file(path: Path) -> list[str]:
    """Return every broken rule of a file in words; empty means it is sound. Raises OSError."""
    from tierdex.filesystem import LocalFileSystem
    from tierdex.indexfile.check import check_file
    from tierdex.logfile.header import is_log_file
    from tierdex.rocketmq.file import RocketmqIndexFile, is_rocketmq_file

    filesystem = LocalFileSystem()
    if is_log_file(filesystem, path):
        from tierdex.logfile.check import check_log_file

        return check_log_file(filesystem, path)
    if not is_rocketmq_file(filesystem, path):
        return check_file(filesystem, path)
    try:
        with closing(RocketmqIndexFile.open(filesystem, path)) as file:
            return file.check()
    except CorruptFileError as error:
        return [error.reason]
