"""The message logs of a store, from its manifests: their files, for `files` and `cost`, and their notes.

Depends on errors, index_service, lifecycle, pipeline and the rest of app.cli.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierdex.app.cli.inputs.opening import opened_store
from tierdex.errors import NotFoundError
from tierdex.index_service.file_info import FileInfo

if TYPE_CHECKING:
    from tierdex.app.cli.inputs.opening import Target
    from tierdex.lifecycle.nodes.node_reading import NodeReading


def stored_manifests(target: Target) -> list[NodeReading]:
    """Return what the manifests say; nothing for a service, and while there is no node.

    Nodes whose manifest cannot be read are left to who names them. Raises what listing the nodes raises.
    """
    if target.url is not None:
        return []
    from tierdex.pipeline.jobs.snapshot import read_store

    try:
        return read_store(opened_store(target.store_place))
    except NotFoundError:
        return []


def stored_logs(readings: list[NodeReading], *, notes: bool = False) -> list[FileInfo]:
    """Return the published log files, newest first; a service shows its own among its files.

    With `notes` also what logs noted of themselves, as rows of that kind.
    """
    if not readings:
        return []
    from tierdex.pipeline.jobs.snapshot import log_files_of, notes_of

    files = [file for reading in readings for file in log_files_of(reading.state, 0)]
    if notes:
        files += [file for reading in readings for file in notes_of(reading.state)]
    files.sort(key=lambda file: (file.row.number, file.node), reverse=True)
    return [
        FileInfo(
            file.file_id, "uploaded", row.begin_ms, row.min_time, row.max_time, row.item_count, 0,
            row.bytes, file.node, row.sealed_at_ms, None, None, kind=row.kind,
        )
        for file in files
        for row in (file.row,)
    ]  # fmt: skip
