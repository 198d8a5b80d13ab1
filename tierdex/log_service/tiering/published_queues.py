"""Where published queues end: from the folder's note, and for newer files from the store.

The note (`published_note`) is enough for the folder that wrote it, and needs no store. It lacks files when it
is missing, damaged, or an older copy, when a crash came between a publication and its note, or when another
owner published since: these are asked for their queues, once, and the note is written anew. Where another
owner had the node since, the folder's own is void, and the one that the store carries is taken.

Depends on errors, lifecycle, logfile, carried_notes, trim_record, log_kind, published_note and tier.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tierdex.errors import CorruptFileError, FencedError, UnavailableError
from tierdex.lifecycle.manifests.file_row import LOG_KIND
from tierdex.log_service.notes.carried_notes import (
    PUBLISHED,
    fetch_notes,
    is_void,
    restore_notes,
    row_of_notes,
    void_again,
)
from tierdex.log_service.notes.published_note import NotedFile, PublishedNote
from tierdex.log_service.notes.trim_record import TrimRecord
from tierdex.log_service.tiering.log_kind import contents_of
from tierdex.logfile.queue_ends import NO_QUEUES

if TYPE_CHECKING:
    from collections.abc import Collection

    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.lifecycle.manifests.manifest import ManifestState
    from tierdex.lifecycle.paths import DataPaths
    from tierdex.log_service.files.tier import Tier
    from tierdex.seams import Seams

logger = logging.getLogger(__name__)

CRASHES_BITS: Final = 20  # a generation is (epoch of the takeover << so many) + crashes since then


def settle_note(
    seams: Seams, paths: DataPaths, tier: Tier, state: ManifestState | None
) -> PublishedNote:
    """Return the note, with every file that `state` lists; `state` is None without a store.

    A note that is made anew begins with the one carried in the store, if any, and with a generation above
    all that an owner of before can have given out: what was not published of it is given anew.

    Raises UnavailableError when neither note nor store tells, and what the store raises, OSError.
    """
    filesystem = seams.filesystem
    try:
        note = PublishedNote.read(filesystem, paths.root)
    except CorruptFileError as error:
        if state is None:
            raise UnavailableError(
                f"{error}, and the store cannot be reached: the next offsets of the queues are not known",
                retry_after_s=5.0,
            ) from error
        is_expected = is_void(
            filesystem, paths.root
        )  # a takeover or an adoption: nothing is damaged
        level = logging.INFO if is_expected else logging.WARNING
        logger.log(level, "note made anew", extra={"error": str(error)})
        void_again(filesystem, paths.root)
        note = _carried_note(seams, paths, tier, state)
        note = replace(note, generation=max(note.generation, state.epoch << CRASHES_BITS))
        is_anew = is_carried = True
    else:
        is_anew, is_carried = False, note is None
        if note is None:
            note = PublishedNote() if state is None else _carried_note(seams, paths, tier, state)
    if state is None:
        return note
    # A note that was carried is older than merges since, which may have left all messages of a queue out.
    lacking = _unnoted(note, state, with_merged=is_carried)
    left_out = NO_QUEUES
    for row in lacking:
        reader = tier.reader_of(row, state.node)
        file = NotedFile(row.number, reader.end_of_batches)
        uuids = {row.uuid, *(part.uuid for part in row.parts)}
        note = note.with_file(uuids, file, contents_of(reader, row.number))
        left_out = left_out.joined(reader.left_out())
    if len(left_out):  # of queues that nothing is left of: they begin where they end
        gone = TrimRecord(filesystem, paths.root, seams.clock)
        gone.keep(gone.current.joined(left_out, ()))
    if lacking or is_anew:
        note.write(filesystem, paths.root)  # durable before an offset is given behind it
    return note


def _carried_note(
    seams: Seams, paths: DataPaths, tier: Tier, state: ManifestState
) -> PublishedNote:
    """Return the note that the store carries, and restore the others that the folder lacks."""
    row = row_of_notes(state)
    if row is None:
        return PublishedNote()
    notes = fetch_notes(tier.store, row)
    restore_notes(seams.filesystem, paths.root, notes)
    found = notes.get(PUBLISHED)
    return PublishedNote() if found is None else PublishedNote.decode(found, row.object_key)


def refuse_unnoted(note: PublishedNote, local: Collection[bytes], state: ManifestState) -> None:
    """Raise FencedError when a node that is claimed late has log files that were not known here.

    `local` are files that lay here whole at the opening, or were gone: a crash may come between a
    publication and its note.
    """
    lacking = [row for row in _unnoted(note, state) if row.uuid not in local]
    if lacking:
        raise FencedError(
            f"node {state.node} has {len(lacking)} log files in the store that this folder did not know when "
            "it was opened without the store: offsets may have been given twice. Open it again while the "
            "store answers"
        )


def _unnoted(
    note: PublishedNote, state: ManifestState, *, with_merged: bool = False
) -> list[FileRow]:
    """Return the listed log files that the note lacks, oldest first.

    A merged file is lacking if one of its parts is; `with_merged`: also if it was merged since.
    """
    rows = (
        row
        for row in state.files_of(LOG_KIND).values()
        if row.uuid not in note.files
        if with_merged or not row.parts or not all(part.uuid in note.files for part in row.parts)
    )
    return sorted(rows, key=lambda row: row.number)
