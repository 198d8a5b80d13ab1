"""The claims and records of a data folder's owner: see `lifecycle.nodes.ownership.OwnerRecord`.

They include the folder's past. Its files hold entries that were acknowledged before this opening
and are not published; the node's manifest tells the folder that had the node last since when. An
adopted folder has its past with another node. Without such a record the numbers of the files tell:
each is a time before everything in its file, by the clock of that time.

Depends on folder_notes, folder_owner, open_view, unpublished and lifecycle.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from tierdex.index_service.opening.folder_owner import FolderOwner
from tierdex.lifecycle.folders.folder_notes import read_folder_node
from tierdex.lifecycle.manifests.liveness import through_of
from tierdex.lifecycle.manifests.manifest import NodeOwner
from tierdex.lifecycle.nodes.node_reading import READING_ERRORS
from tierdex.lifecycle.nodes.owner_record import OwnerRecord
from tierdex.lifecycle.paths import LOCAL_STATES, parse_number, parse_quarantined_name

if TYPE_CHECKING:
    from tierdex.compactor.unpublished import UnpublishedFiles
    from tierdex.filesystem import FileSystem
    from tierdex.index_service.opening.folder_owner import Claiming
    from tierdex.index_service.opening.open_view import View
    from tierdex.lifecycle.paths import DataPaths
    from tierdex.lifecycle.store_time import StoreTime

logger = logging.getLogger(__name__)

_NUMBERS_AHEAD_MS: Final = (
    60_000  # of the clock, where it stepped back or files came in quick succession
)


def make_folder_record(
    paths: DataPaths, view: View, claiming: Claiming, time: StoreTime, unpublished: UnpublishedFiles
) -> OwnerRecord:
    """Return the voice of the folder's owner. Call it before the folder is recovered."""
    settings, filesystem = view.settings, view.seams.filesystem
    adopts: tuple[NodeOwner, ...] = ()
    recorded = read_folder_node(filesystem, paths.root)
    if claiming.adopt and recorded is not None and recorded != settings.node:
        tokens = FolderOwner(filesystem, paths.root, recorded).tokens
        adopts = tuple(NodeOwner(recorded, token) for token in tokens)
    return OwnerRecord(
        time,
        unpublished,
        interval_s=settings.live_interval,
        advertise_url=settings.advertise_url,
        adopts=adopts,
        adopted_through=_published_of(view, adopts),
        folder_from=_begin_of_folder(filesystem, paths),
    )


def _published_of(view: View, owners: tuple[NodeOwner, ...]) -> int | None:
    """Return the time up to which these owners of one node published everything; None: unknown."""
    if not owners:
        return None
    log = view.manifests.log_of(owners[0].node)
    try:
        state = log.refresh_live()
    except READING_ERRORS as error:
        logger.warning("adopted node not read", extra={"node": log.node, "error": str(error)})
        return None
    tokens = {each.owner for each in owners}
    known = [through for owner, through in state.outstanding.items() if owner in tokens]
    through = through_of(state, log.live)
    if through is not None and state.owner in tokens:
        known.append(through)
    return min(known, default=None)


def _begin_of_folder(filesystem: FileSystem, paths: DataPaths) -> int | None:
    """Return a time (ms) before everything in the folder's files; None: it has no files."""
    names = [name for state in LOCAL_STATES for name in filesystem.list_folder(paths.folder(state))]
    numbers = [parse_number(name) for name in names]
    numbers += map(parse_quarantined_name, filesystem.list_folder(paths.quarantine))
    known = [number - _NUMBERS_AHEAD_MS for number in numbers if number is not None]
    return max(0, min(known)) if known else None
