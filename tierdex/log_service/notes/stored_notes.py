"""The notes of a log in its store, for readers without its folder: mounted logs, jobs, verification.

Plans of jobs read them in a process that starts for the plan, so this loads no kernels.

Depends on errors, lifecycle, seams, carried_notes, trim_record and published_note.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tierdex.errors import CorruptFileError
from tierdex.log_service.notes.carried_notes import (
    FORGOTTEN,
    GONE,
    PUBLISHED,
    fetch_notes,
    row_of_notes,
)
from tierdex.log_service.notes.published_note import PublishedNote
from tierdex.log_service.notes.trim_record import TrimRecord
from tierdex.seams import Seams

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.lifecycle.manifests.manifest import ManifestState
    from tierdex.storage_layer.base import Store


class StoredNotes(TrimRecord):
    """What of a log is gone, and what is forgotten, as its carried notes say."""

    def __init__(self, seams: Seams) -> None:
        """Know nothing yet."""
        super().__init__(seams.filesystem, Path(), seams.clock)

    def read(self, notes: Mapping[str, bytes]) -> None:
        """Know what these notes say. Raises CorruptFileError."""
        self.take(notes.get(GONE), notes.get(FORGOTTEN))

    def refresh(self) -> None:
        """Leave it: no folder is read."""


def read_stored_notes(store: Store, state: ManifestState) -> StoredNotes:
    """Return a node's notes, empty where it carried none. Raises CorruptFileError, what the store raises."""
    row, stored = row_of_notes(state), StoredNotes(Seams.of())
    if row is not None:
        stored.read(fetch_notes(store, row))
    return stored


def check_notes(store: Store, row: FileRow) -> list[str]:
    """Return what is wrong with carried notes, in words. Raises what the store raises."""
    try:
        notes = fetch_notes(store, row)
        StoredNotes(Seams.of()).read(notes)
        if PUBLISHED in notes:
            PublishedNote.decode(notes[PUBLISHED], row.object_key)
    except CorruptFileError as error:
        return [str(error)]
    return []
