"""Upload and publish one compacted file, then drop the local copy.

::

    1 upload the object     under a name with the manifest number just read; nobody sees it
    2 commit its row        durable and visible to everyone: this is the publication
    3 keep the sidecar      a cache, cut from the local file: no request for it later
    4 read the manifest     the newest one, from the store: is the file really listed, are we owner?
    5 unlink the local file, sync its folder
    6 move the handle       queries read the published file from here on

A crash after 1 leaves an orphan for garbage collection, and the file is uploaded again; after 2 the
uuid in the manifest tells that it was published: it goes on with 3. A file is known by its uuid, so
none is ever listed twice.

A number is another matter: a folder that began while the store was away, with the clock set back,
may have given a number that the node used before. Such a file gets a new one before it is published.
Depends on lifecycle, indexfile and queue_table.
"""

from __future__ import annotations

import logging
from contextlib import closing
from typing import TYPE_CHECKING

from tierdex.compactor.queue_table import table_if_it_pays
from tierdex.errors import ConflictError, CorruptFileError, FloorError
from tierdex.indexfile.check import check_file
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.manifest import FileRow
from tierdex.lifecycle.paths import StorePaths
from tierdex.lifecycle.topic_set import listed_topics
from tierdex.lifecycle.transition import move_by_rename, retire, swap_in

if TYPE_CHECKING:
    from pathlib import Path

    from tierdex.compactor.parts import CompactorParts
    from tierdex.indexfile.compacted.file import CompactedFile
    from tierdex.lifecycle.file_handle import FileHandle
    from tierdex.lifecycle.manifest import ManifestState

logger = logging.getLogger(__name__)

_FLOOR_ATTEMPTS = 5


def publish_file(parts: CompactorParts, handle: FileHandle) -> None:
    """Bring a compacted file to `uploaded`. Raises what the store raises, FencedError, FloorError."""
    node = parts.claim.get()
    state = node.refresh()
    if not state.knows(handle.uuid):
        if handle.path is not None and not parts.filesystem.exists(handle.path):
            _write_again(parts, handle)  # or no attempt would ever find it
        if any(row.number == handle.number for row in state.files.values()):
            handle = _renumber(parts, handle)
        _upload_and_commit(parts, handle)
    drop_local_copy(parts, handle)


def _write_again(parts: CompactorParts, handle: FileHandle) -> None:
    """Give a file that somebody removed its name again: its bytes are still mapped."""
    reader: CompactedFile = handle.reader
    assert handle.path is not None

    def write(path: Path) -> None:
        with closing(
            parts.filesystem.open(path, writable=True, create=True, exclusive=True)
        ) as file:
            file.write_at(0, reader.mapped_bytes().data)

    swap_in(
        parts.filesystem,
        target=handle.path,
        old=[],
        write=write,
        verify=lambda path: check_file(parts.filesystem, path),
    )
    logger.warning("written again: its name was gone", extra={"path": str(handle.path)})


def _renumber(parts: CompactorParts, handle: FileHandle) -> FileHandle:
    """Give the file a number above every one known, and let the published one be shown."""
    assert handle.path is not None
    number = parts.next_number()
    target = parts.paths.path_of(handle.state, number)
    move_by_rename(parts.filesystem, handle.path, target)
    renumbered = handle.successor(number=number, path=target)
    parts.table.replace([handle], [renumbered])
    parts.show_manifest()
    extra = {"file_id": renumbered.file_id, "before": handle.file_id}
    logger.warning("number was taken already", extra=extra)
    return renumbered


def _upload_and_commit(parts: CompactorParts, handle: FileHandle) -> None:
    node = parts.claim.get()
    reader: CompactedFile = handle.reader
    for attempt in range(_FLOOR_ATTEMPTS):
        key = StorePaths(handle.node).file_object(node.state.number, handle.uuid)
        upload_object(parts, handle, key)
        row = make_row(handle, key, reader, tells=_may_tell(parts, handle))
        table = table_if_it_pays(parts, row, reader) if row.tells else None
        try:
            node.publish([row], table=table)
            return
        except FloorError:
            # garbage collection passed us while we uploaded: the object may be gone at any moment
            if attempt + 1 == _FLOOR_ATTEMPTS:
                raise
            node.refresh()


def _may_tell(parts: CompactorParts, handle: FileHandle) -> bool:
    """Say whether everything before the file's end offsets is published once the file is.

    Not while an older file that was never published lies in quarantine: what it held is at no
    level, and whoever replays must not begin behind it. Later files tell more once it is gone.
    """
    published = parts.claim.get().state.lists_number
    older = (number for number in parts.quarantined_numbers() if number < handle.number)
    return all(map(published, older))


def upload_object(parts: CompactorParts, handle: FileHandle, key: str) -> None:
    """Write the file's bytes as one object; invisible until a commit lists it."""
    assert handle.path is not None
    file = parts.filesystem.open(handle.path)
    try:
        parts.store.upload(key, file, handle.bytes)
    finally:
        file.close()


def make_row(handle: FileHandle, key: str, reader: CompactedFile, *, tells: bool) -> FileRow:
    """Return the manifest row of a compacted file."""
    return FileRow(
        uuid=handle.uuid,
        number=handle.number,
        object_key=key,
        bytes=handle.bytes,
        item_count=handle.item_count,
        slot_count=handle.slot_count,
        min_time=handle.min_time,
        max_time=handle.max_time,
        begin_ms=handle.begin_ms,
        sealed_at_ms=handle.sealed_at_ms or 0,
        sidecar_position=reader.sidecar_position,
        tail_crc=reader.footer_crc,
        topics=listed_topics(reader.topics),
        schema=reader.schema.encode().decode(),
        tells=tells,
    )


def drop_local_copy(parts: CompactorParts, handle: FileHandle) -> None:
    """Let the published file take over, after the newest manifest was seen to list it."""
    state = parts.claim.get().refresh()
    assert handle.path is not None
    row = state.files.get(handle.uuid)
    if row is None:
        _drop_superseded(parts, handle, state)
        return
    if row.item_count < handle.item_count:
        # An old copy of a folder, gone on with while the store could not be asked.
        reason = f"published already, with {row.item_count} items: the folder was an old copy"
        raise CorruptFileError(handle.path, reason)
    reader: CompactedFile = handle.reader
    parts.keep_sidecar(row, reader.sidecar_bytes().data)
    parts.note_number(handle.number)
    # The name goes first, and durably: a file left behind by an error would be published a second
    # time once retention has made the manifest forget it. Queries read on through the open file.
    retire(parts.filesystem, [handle.path])
    parts.table.move(
        handle, FileState.UPLOADED, reader=parts.reader_of_row(row), row=row, path=None
    )


def _drop_superseded(parts: CompactorParts, handle: FileHandle, state: ManifestState) -> None:
    """The file was published and has left the list since (merged, expired): nothing to keep here."""
    if not state.knows(handle.uuid):
        raise ConflictError(f"{handle.file_id} is not in the manifest after its own commit")
    assert handle.path is not None
    retire(parts.filesystem, [handle.path])
    # In one step with showing what holds its entries now: no query may see neither.
    parts.show_manifest([handle])
