"""Uploads and publishes one compacted file of any kind, then gives up the local copy.

::

    0 prepare               what the kind must tell the store before     (`FileKind.prepare_publication`)
    1 upload the object     under a name with the manifest number just read; no reader sees it
    2 commit its row        durable and visible to every reader: this is the publication
    3 keep the sidecar      a cache, cut from the local file, which saves a later request
    4 read the manifest     the newest one, from the store: it must list the file, and us as owner
    5 unlink the local file, sync its folder     (`FileKind.drop_local_copy`)
    6 move the handle       queries read the published file from here on (`FileKind.note_shown`)

A crash after 1 leaves an orphan for garbage collection, and the file is uploaded again. After a
crash behind 2 the uuid in the manifest shows that the file is published, and the next attempt goes
on with 3. A file is known by its uuid, so none is ever listed twice.

An upload that fails is sent again, whole, by the store's own attempts and then by the next unit. The name
is fresh when the manifest has moved on; else it is the same, which is harmless: an object is there whole or
not at all, and what a late attempt still writes are the same bytes.

Its number may be taken: a folder that began while the store could not be reached, with the clock
set back, may have given a number that the node used before. Where a file of its own kind has it, such a file
gets a new number before it is published. One of another kind may share it: a log's files keep their numbers,
which are the order of their messages.

Depends on lifecycle.
"""

from __future__ import annotations

import logging
from contextlib import closing
from typing import TYPE_CHECKING

from tierdex.errors import ConflictError, CorruptFileError, FloorError
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.folders.transition import move_by_rename, swap_in
from tierdex.lifecycle.paths import StorePaths

if TYPE_CHECKING:
    from pathlib import Path

    from tierdex.compactor.components import CompactorComponents
    from tierdex.compactor.kind import FileKind, Publication
    from tierdex.lifecycle.manifests.manifest import ManifestState
    from tierdex.lifecycle.table.file_handle import FileHandle

logger = logging.getLogger(__name__)

_FLOOR_ATTEMPTS = 5


def publish_file(publication: Publication, handle: FileHandle) -> None:
    """Bring a compacted file to `uploaded`. Raises what the store raises, FencedError, FloorError."""
    components, kind = publication
    node = components.claim.get()
    state = node.refresh()
    if not state.knows(handle.uuid):
        if handle.path is not None and not components.filesystem.exists(handle.path):
            _write_again(components, kind, handle)  # else every attempt would fail
        if any(row.number == handle.number for row in state.files_of(kind.row_kind).values()):
            handle = _renumber(components, handle)
        kind.prepare_publication()
        _upload_and_commit(components, kind, handle)
    _show_published(components, kind, handle)


def _write_again(components: CompactorComponents, kind: FileKind, handle: FileHandle) -> None:
    """Write a file under its name again, after the name was removed: its bytes are still mapped."""
    assert handle.path is not None

    def write(path: Path) -> None:
        with closing(
            components.filesystem.open(path, writable=True, create=True, exclusive=True)
        ) as file:
            file.write_at(0, kind.contents(handle))

    swap_in(
        components.filesystem,
        target=handle.path,
        old=[],
        write=write,
        verify=kind.check,
    )
    logger.warning("written again: its name was gone", extra={"path": str(handle.path)})


def _renumber(components: CompactorComponents, handle: FileHandle) -> FileHandle:
    """Give the file a number above every known one, and show the published file of its old number."""
    assert handle.path is not None
    number = components.next_number()
    target = components.paths.path_of(handle.state, number)
    move_by_rename(components.filesystem, handle.path, target)
    renumbered = handle.successor(number=number, path=target)
    components.table.replace([handle], [renumbered])
    components.show_manifest()
    extra = {"file_id": renumbered.file_id, "before": handle.file_id}
    logger.warning("number was taken already", extra=extra)
    return renumbered


def _upload_and_commit(components: CompactorComponents, kind: FileKind, handle: FileHandle) -> None:
    node = components.claim.get()
    for attempt in range(_FLOOR_ATTEMPTS):
        key = StorePaths(handle.node).file_object(node.state.number, handle.uuid)
        upload_object(components, handle, key)
        row, table = kind.make_row(handle, key)
        try:
            node.publish([row], table=table)
            return
        except FloorError:
            # Garbage collection passed this number during the upload: it may delete the object any time.
            if attempt + 1 == _FLOOR_ATTEMPTS:
                raise
            node.refresh()


def upload_object(components: CompactorComponents, handle: FileHandle, key: str) -> None:
    """Upload the file's bytes as one object; no reader sees it until a commit lists it."""
    assert handle.path is not None
    file = components.filesystem.open(handle.path)
    try:
        components.store.upload(key, file, handle.bytes)
    finally:
        file.close()


def _show_published(components: CompactorComponents, kind: FileKind, handle: FileHandle) -> None:
    """Direct queries to the published file, once the newest manifest is seen to list it."""
    state = components.claim.get().refresh()
    assert handle.path is not None
    row = state.files.get(handle.uuid)
    if row is None:
        _drop_superseded(components, kind, handle, state)
        return
    if row.item_count < handle.item_count:
        # An old copy of a folder that took puts while the store could not be reached.
        reason = f"is published already with {row.item_count} items: the folder was an old copy"
        raise CorruptFileError(handle.path, reason)
    components.keep_sidecar(row, kind.sidecar(handle))
    # Unlinked durably before the move: a file left behind by an error would be published a second
    # time once retention has removed it from the manifest. Queries read on through the open file.
    kind.drop_local_copy(handle)
    components.table.move(
        handle, FileState.UPLOADED, reader=kind.reader_of(row), row=row, path=None
    )
    kind.note_shown()


def _drop_superseded(
    components: CompactorComponents, kind: FileKind, handle: FileHandle, state: ManifestState
) -> None:
    """Drop the local copy of a file that was published and left the list since (merged, expired)."""
    if not state.knows(handle.uuid):
        raise ConflictError(f"{handle.file_id} is not in the manifest after its own commit")
    kind.drop_local_copy(handle)
    # In one step with showing the file that holds its entries now: every query sees one of the two.
    components.show_manifest([handle])
    kind.note_shown()
