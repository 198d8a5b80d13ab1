"""The notes of a log's folder, copied to the store for the next owner of the node.

::

    DATA/log/ GONE, FORGOTTEN, PUBLISHED, INDEXED  --an object, a row of kind `notes`-->  the next owner's

    expiry     in the commit that removes files: where their queues ended is not lost with the disk;
               of files that were never published: before the next one is
    forgetting at once: the next owner of the node hides the same
    hand-over  says whose `released` it is: all that this owner ever acknowledged is published

A row counts as released while the owner that it names has the node: the next claim ends that by itself.
The manifest may list files that were published since: `published_queues` asks those themselves.

Depends on errors, lifecycle, whole_file and the store.
"""

from __future__ import annotations

import json
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Final

import google_crc32c

from tierdex.errors import CorruptFileError, FloorError
from tierdex.lifecycle.manifests.changes import carry_notes
from tierdex.lifecycle.manifests.file_row import NOTES_KIND, FileRow
from tierdex.lifecycle.paths import StorePaths
from tierdex.lifecycle.topic_set import topic_set
from tierdex.whole_file import read_file, replace_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tierdex.compactor.components import CompactorComponents
    from tierdex.filesystem import FileSystem
    from tierdex.lifecycle.manifests.manifest import ManifestState
    from tierdex.storage_layer.base import Store

GONE: Final = "GONE"
PUBLISHED: Final = "PUBLISHED"
INDEXED: Final = "INDEXED"
FORGOTTEN: Final = "FORGOTTEN"
CLOSED: Final = "CLOSED"
_CARRIED: Final = (FORGOTTEN, GONE, INDEXED, PUBLISHED)
# No notes of published files: they do not verify.
_TAKING: Final = b"a takeover of the node was begun\n"
_ADOPTING: Final = b"an adoption of the folder was begun\n"
_FLOOR_ATTEMPTS: Final = 5
_READS: Final = 3  # of notes that do not verify


def is_released(state: ManifestState) -> bool:
    """Return whether the node's owner handed it over, and it was not claimed since."""
    row = row_of_notes(state)
    return row is not None and json.loads(row.schema)["released"] == state.owner.hex()


def row_of_notes(state: ManifestState) -> FileRow | None:
    """Return the row of the carried notes, None where none were carried yet."""
    return next(iter(state.files_of(NOTES_KIND).values()), None)


def last_gone(state: ManifestState) -> bytes | None:
    """Return the uuid of the last file that the carried notes know to be gone, None without one."""
    row = row_of_notes(state)
    told = "" if row is None else json.loads(row.schema).get("gone", "")
    return bytes.fromhex(told) or None


def fetch_notes(store: Store, row: FileRow) -> Mapping[str, bytes]:
    """Return the notes by name. Raises CorruptFileError, and what the store raises."""
    for _ in range(_READS):  # bytes may be altered on their way
        data = store.get(row.object_key, 0, row.bytes)
        if len(data) == row.bytes and google_crc32c.value(data) == row.tail_crc:
            break
    else:
        raise CorruptFileError(row.object_key, "is not the object that the manifest lists")
    line, _, rest = data.partition(b"\n")
    notes, begin = {}, 0
    for name, size in json.loads(line):
        notes[name] = rest[begin : begin + size]
        begin += size
    return notes


def restore_notes(filesystem: FileSystem, root: Path, notes: Mapping[str, bytes]) -> None:
    """Write the notes that a log's folder lacks, all but that of published files. Raises OSError."""
    for name in (FORGOTTEN, GONE, INDEXED):
        if name in notes and not filesystem.exists(root / name):
            replace_file(filesystem, root / name, notes[name])


def void_notes(filesystem: FileSystem, root: Path) -> None:
    """Make the folder's own notes void, durably: from here on the node's past is asked of the store only.

    They are of another ownership than the one that is about to be claimed. That of forgotten messages goes
    with the messages of the folder: it stays where these do (`void_forgotten`). Raises OSError.
    """
    _void(filesystem, root, _TAKING, (GONE, INDEXED, CLOSED))


def void_adopted(filesystem: FileSystem, root: Path) -> None:
    """Make void what the folder's notes say of the node that it was, durably. Raises OSError.

    The messages that stay are read as before, also around those that expired here unpublished: no store
    knows where queues begin and end because of these, so the note of what is gone stays.
    """
    _void(filesystem, root, _ADOPTING, (INDEXED, CLOSED))


def _void(filesystem: FileSystem, root: Path, mark: bytes, names: Sequence[str]) -> None:
    replace_file(filesystem, root / PUBLISHED, mark)
    for name in names:
        filesystem.unlink(root / name)
    filesystem.sync_folder(root)


def is_void(filesystem: FileSystem, root: Path) -> bool:
    """Return whether a claim made the notes of a folder void: nothing is damaged. Raises OSError."""
    return _mark(filesystem, root) in (_TAKING, _ADOPTING)


def _mark(filesystem: FileSystem, root: Path) -> bytes:
    with closing(filesystem.open(root / PUBLISHED)) as file:
        return bytes(file.read_at(0, max(len(_TAKING), len(_ADOPTING))))


def void_again(filesystem: FileSystem, root: Path) -> None:
    """Remove what a crash left of notes that are void, and were not made anew yet. Raises OSError."""
    mark = _mark(filesystem, root)
    if mark == _TAKING:
        void_notes(filesystem, root)
    elif mark == _ADOPTING:
        void_adopted(filesystem, root)


def void_forgotten(filesystem: FileSystem, root: Path) -> None:
    """Remove the folder's note of what is forgotten, durably, before the others: the store's counts."""
    filesystem.unlink(root / FORGOTTEN)
    filesystem.sync_folder(root)


def carry(
    components: CompactorComponents, root: Path, *, is_released: bool, known: Sequence[bytes],
    gone: Sequence[bytes] = (),
) -> None:  # fmt: skip
    """Publish the folder's notes, and remove the files `gone` with the same commit.

    `known` are files that the notes know to be gone, oldest first. Raises OSError, FencedError, and what
    the store raises: then nothing was removed.
    """
    data = _pack(components.filesystem, root)
    node = components.claim.get()
    told = {
        "released": node.owner.hex() if is_released else "",
        "gone": known[-1].hex() if known else "",
    }
    for attempt in range(_FLOOR_ATTEMPTS):
        uuid = components.ids.uuid()
        key = StorePaths(components.settings.node).file_object(node.state.number, uuid)
        row = _make_row(components, uuid, key, data, told)
        components.store.put(key, data)
        try:
            node.commit(partial(carry_notes, row=row, gone=gone))
        except FloorError:  # garbage collection passed the name meanwhile
            if attempt + 1 == _FLOOR_ATTEMPTS:
                raise
            node.refresh()
        else:
            return


def _pack(filesystem: FileSystem, root: Path) -> bytes:
    notes = {}
    for name in _CARRIED:
        if filesystem.exists(root / name):
            notes[name] = read_file(filesystem, root / name)
    line = json.dumps([[name, len(data)] for name, data in notes.items()])
    return line.encode() + b"\n" + b"".join(notes.values())


def _make_row(
    components: CompactorComponents, uuid: bytes, key: str, data: bytes, told: Mapping[str, str]
) -> FileRow:
    now_ms = components.clock.now_ms()
    return FileRow(
        uuid=uuid,
        number=components.next_number(),
        object_key=key,
        bytes=len(data),
        item_count=0,
        slot_count=0,
        min_time=0,
        max_time=0,
        begin_ms=now_ms,
        sealed_at_ms=now_ms,
        sidecar_position=0,  # all of it
        tail_crc=google_crc32c.value(data),
        topics=topic_set(()),
        schema=json.dumps(told),
        kind=NOTES_KIND,
    )
