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

    from tierdex.compactor.components import CompactorComponents
    from tierdex.indexfile.compacted.file import CompactedFile
    from tierdex.lifecycle.file_handle import FileHandle
    from tierdex.lifecycle.manifest import ManifestState

logger = logging.getLogger(__name__)

_FLOOR_ATTEMPTS = 5


def publish_file(components: CompactorComponents, handle: FileHandle) -> None:
    """Bring a compacted file to `uploaded`. Raises what the store raises, FencedError, FloorError."""
    node = components.claim.get()
    state = node.refresh()
    if not state.knows(handle.uuid):
        if handle.path is not None and not components.filesystem.exists(handle.path):
            _write_again(components, handle)  # or no attempt would ever find it
        if any(row.number == handle.number for row in state.files.values()):
            handle = _renumber(components, handle)
        _upload_and_commit(components, handle)
    drop_local_copy(components, handle)


def _write_again(components: CompactorComponents, handle: FileHandle) -> None:
    """Give a file that somebody removed its name again: its bytes are still mapped."""
    reader: CompactedFile = handle.reader
    assert handle.path is not None

    def write(path: Path) -> None:
        with closing(
            components.filesystem.open(path, writable=True, create=True, exclusive=True)
        ) as file:
            file.write_at(0, reader.mapped_bytes().data)

    swap_in(
        components.filesystem,
        target=handle.path,
        old=[],
        write=write,
        verify=lambda path: check_file(components.filesystem, path),
    )
    logger.warning("written again: its name was gone", extra={"path": str(handle.path)})


def _renumber(components: CompactorComponents, handle: FileHandle) -> FileHandle:
    """Give the file a number above every one known, and let the published one be shown."""
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


def _upload_and_commit(components: CompactorComponents, handle: FileHandle) -> None:
    node = components.claim.get()
    reader: CompactedFile = handle.reader
    for attempt in range(_FLOOR_ATTEMPTS):
        key = StorePaths(handle.node).file_object(node.state.number, handle.uuid)
        upload_object(components, handle, key)
        row = make_row(handle, key, reader, tells=_may_tell(components, handle))
        table = table_if_it_pays(components, row, reader) if row.tells else None
        try:
            node.publish([row], table=table)
            return
        except FloorError:
            # garbage collection passed us while we uploaded: the object may be gone at any moment
            if attempt + 1 == _FLOOR_ATTEMPTS:
                raise
            node.refresh()


def _may_tell(components: CompactorComponents, handle: FileHandle) -> bool:
    """Say whether everything before the file's end offsets is published once the file is.

    Not while an older file that was never published lies in quarantine: what it held is at no
    level, and whoever replays must not begin behind it. Later files tell more once it is gone.
    """
    published = components.claim.get().state.lists_number
    older = (number for number in components.quarantined_numbers() if number < handle.number)
    return all(map(published, older))


def upload_object(components: CompactorComponents, handle: FileHandle, key: str) -> None:
    """Write the file's bytes as one object; invisible until a commit lists it."""
    assert handle.path is not None
    file = components.filesystem.open(handle.path)
    try:
        components.store.upload(key, file, handle.bytes)
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


def drop_local_copy(components: CompactorComponents, handle: FileHandle) -> None:
    """Let the published file take over, after the newest manifest was seen to list it."""
    state = components.claim.get().refresh()
    assert handle.path is not None
    row = state.files.get(handle.uuid)
    if row is None:
        _drop_superseded(components, handle, state)
        return
    if row.item_count < handle.item_count:
        # An old copy of a folder, gone on with while the store could not be asked.
        reason = f"published already, with {row.item_count} items: the folder was an old copy"
        raise CorruptFileError(handle.path, reason)
    reader: CompactedFile = handle.reader
    components.keep_sidecar(row, reader.sidecar_bytes().data)
    components.note_number(handle.number)
    # The name goes first, and durably: a file left behind by an error would be published a second
    # time once retention has made the manifest forget it. Queries read on through the open file.
    retire(components.filesystem, [handle.path])
    components.table.move(
        handle, FileState.UPLOADED, reader=components.reader_of_row(row), row=row, path=None
    )


def _drop_superseded(
    components: CompactorComponents, handle: FileHandle, state: ManifestState
) -> None:
    """The file was published and has left the list since (merged, expired): nothing to keep here."""
    if not state.knows(handle.uuid):
        raise ConflictError(f"{handle.file_id} is not in the manifest after its own commit")
    assert handle.path is not None
    retire(components.filesystem, [handle.path])
    # In one step with showing what holds its entries now: no query may see neither.
    components.show_manifest([handle])
