"""Unsealed files that follow lost batches: found by the predecessor that each of them notes, and removed.

A power cut may keep a newer file's batches and lose an older one's last. Nothing in the newer one was
acknowledged at `disk` then (a sync takes the older first, and the newer's own record of where the older
ended), and to keep it would leave a hole in the order in which everything was written.

Depends on fileparts, file_state and folder_listing.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from tierdex.errors import CorruptFileError
from tierdex.lifecycle.file_state import FileState

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tierdex.fileparts.predecessor import Predecessor
    from tierdex.filesystem import FileSystem
    from tierdex.lifecycle.folders.folder_listing import FolderListing, FoundFile
    from tierdex.lifecycle.paths import DataPaths

logger = logging.getLogger(__name__)


class BatchOrder(NamedTuple):
    """What an unsealed file says of its place in the order of batches."""

    uuid: bytes
    predecessor: Predecessor | None  # None: its own record is lost
    end: Predecessor | None  # of its batches; None: it is sealed, hence whole


def drop_behind_a_gap(
    filesystem: FileSystem,
    paths: DataPaths,
    listing: FolderListing,
    read_order: Callable[[Path], BatchOrder],
) -> FolderListing:
    """Remove what `find_behind_a_gap` finds; return the listing without it. Raises OSError."""
    unsealed = [file for file in listing.files if file.state is FileState.UNSEALED]
    behind = find_behind_a_gap(listing, read_order) if len(unsealed) > 1 else []
    for file in reversed(behind):
        # Newest first, each durably: a crash in between leaves nothing whose predecessor is gone.
        filesystem.unlink(file.path)
        filesystem.sync_folder(paths.folder(FileState.UNSEALED))
        logger.warning("removed, as it follows lost batches", extra={"path": str(file.path)})
    return replace(listing, files=tuple(file for file in listing.files if file not in behind))


def find_behind_a_gap(
    listing: FolderListing, read_order: Callable[[Path], BatchOrder]
) -> list[FoundFile]:
    """Return the unsealed files that hold what was written after something lost, oldest first.

    `read_order` scans one file; it raises CorruptFileError for one that does not open. Raises OSError.
    """
    unsealed = sorted(
        (file for file in listing.files if file.state is FileState.UNSEALED and file.identity),
        key=lambda file: file.number,
    )
    ends: dict[bytes, Predecessor | None] = {}  # of the older ones
    behind: list[FoundFile] = []
    for file in unsealed:
        try:
            order = read_order(file.path)
        except CorruptFileError:
            continue  # recovery meets it again and quarantines it
        if behind or _is_behind(order.predecessor, ends):
            behind.append(file)
        ends[order.uuid] = order.end
    return behind


def _is_behind(predecessor: Predecessor | None, ends: dict[bytes, Predecessor | None]) -> bool:
    if predecessor is None:
        return bool(ends)  # its own record is lost, so nothing of it was ever synced
    end = ends.get(predecessor.uuid)
    return end is not None and end != predecessor
