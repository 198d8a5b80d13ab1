"""The data folder that puts go into, and what one needs to work in it.

Depends on settings, seams, file_number, file_table and paths.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import threading

    from tierdex.lifecycle.file_number import NextNumber
    from tierdex.lifecycle.paths import DataPaths
    from tierdex.lifecycle.table.file_table import FileTable
    from tierdex.seams import Seams
    from tierdex.settings import Settings


class PutFolder(NamedTuple):
    """One node's folder, of which this process is the owner."""

    settings: Settings
    seams: Seams
    paths: DataPaths
    table: FileTable
    numbers: NextNumber
    sync_lock: threading.Lock  # the compactor's too, which seals under it
