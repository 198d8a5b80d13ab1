"""Where published queues end: from the folder's note, and what it lacks from the store.

The note (`published_note`) is enough for the folder that wrote it, and needs no store. It lacks files when it
is missing, damaged, or an older copy, when a crash came between a publication and its note, or when another
owner published since: these are asked for their queues, once, and the note is written anew.

Depends on errors, lifecycle, log_kind, published_note and tier.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tierdex.errors import CorruptFileError, FencedError, UnavailableError
from tierdex.lifecycle.manifest import LOG_KIND
from tierdex.log_service.log_kind import contents_of
from tierdex.log_service.published_note import NotedFile, PublishedNote

if TYPE_CHECKING:
    from tierdex.lifecycle.manifest import FileRow, ManifestState
    from tierdex.lifecycle.paths import DataPaths
    from tierdex.log_service.tier import Tier
    from tierdex.seams import Seams

logger = logging.getLogger(__name__)


def settle_note(
    seams: Seams, paths: DataPaths, tier: Tier, state: ManifestState | None
) -> PublishedNote:
    """Return the note, with every file that `state` lists; `state` is None without a store.

    Raises UnavailableError when neither note nor store tells, and what the store raises, OSError.
    """
    try:
        note = PublishedNote.read(seams.filesystem, paths.root) or PublishedNote()
    except CorruptFileError as error:
        if state is None:
            raise UnavailableError(
                f"{error}, and the store cannot be reached: where queues go on is not known",
                retry_after_s=5.0,
            ) from error
        logger.warning("note made anew", extra={"error": str(error)})
        note = PublishedNote()
    lacking = [] if state is None else list(_unnoted(note, state))
    for row in lacking:
        assert state is not None
        reader = tier.reader_of(row, state.node)
        file = NotedFile(row.number, reader.end_of_batches)
        uuids = {row.uuid, *(part.uuid for part in row.parts)}
        note = note.with_file(uuids, file, contents_of(reader, row.number))
    if lacking:
        note.write(seams.filesystem, paths.root)  # durable before an offset is given behind it
    return note


def refuse_unnoted(note: PublishedNote, state: ManifestState) -> None:
    """Raise FencedError when a node that is claimed late has log files that nobody knew here."""
    lacking = list(_unnoted(note, state))
    if lacking:
        raise FencedError(
            f"node {state.node} has {len(lacking)} log files in the store that this folder did not know when "
            "it was opened without the store: offsets may have been given twice. Open it again while the "
            "store answers"
        )


def _unnoted(note: PublishedNote, state: ManifestState) -> list[FileRow]:
    """Return the listed log files that the note lacks, oldest first."""
    rows = (
        row
        for row in state.files_of(LOG_KIND).values()
        if row.uuid not in note.files and not any(p.uuid in note.files for p in row.parts)
    )
    return sorted(rows, key=lambda row: row.number)
