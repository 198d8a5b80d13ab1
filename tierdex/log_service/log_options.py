"""The settings of a message log, what follows from them, and the folder that its files lie in.

Depends on settings, seams, lifecycle and logfile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tierdex.errors import InvalidRequestError
from tierdex.logfile.journal.writer import STAGE_BYTES

if TYPE_CHECKING:
    from tierdex.lifecycle.file_number import NextNumber
    from tierdex.lifecycle.paths import DataPaths
    from tierdex.lifecycle.table.file_table import FileTable
    from tierdex.seams import Seams
    from tierdex.settings import Settings

_STAGE_ROOM = 64 << 10  # beside the largest message: its extra, its record, queue entries


class LogOptions(NamedTuple):
    """`stage_bytes` is the memory of each of the two stages."""

    settings: Settings
    stage_bytes: int

    @classmethod
    def of(cls, settings: Settings) -> LogOptions:
        """Return the options. Raises InvalidRequestError when a journal is too small for its stage."""
        stage_bytes = max(
            min(STAGE_BYTES, settings.journal_bytes // 4), settings.max_message_bytes + _STAGE_ROOM
        )
        if settings.journal_bytes < 2 * stage_bytes or settings.journal_bytes % 4096:
            raise InvalidRequestError(
                f"must be a multiple of 4096 and at least twice a stage ({2 * stage_bytes} bytes): "
                "raise it, or lower `max_message_bytes`",
                field="journal_bytes",
            )
        return cls(settings, stage_bytes)


class LogFolder(NamedTuple):
    """One node's log on this disk, of which this process is the owner."""

    options: LogOptions
    seams: Seams
    paths: DataPaths
    table: FileTable
    numbers: NextNumber
