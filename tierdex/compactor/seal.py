"""Seals a rolled file: it becomes immutable and durable, then moves to `sealed/` by one rename.

::

    1 footer and block checksums written, file cut to its length, synced   durable; still unsealed
    2 rename into sealed/                                                  visible in its new state
    3 both folders synced                                                  durable there

A crash after 1 leaves an unsealed file that recovery seals again.

After a failed sync the file is *suspect*: the content of the device is unknown, and another sync
would prove nothing, since the kernel may have marked the pages clean. The file is written again from
memory, which still holds it, into another file::

    1 sealed copy written under a temporary name, synced, verified whole
    2 rename into sealed/, both folders synced          visible and durable in its new state
    3 the suspect file unlinked                         a crash before leaves both: the later wins

A file whose name was removed is sealed in the same way: no rename could succeed, and memory still
holds it. If memory has lost it too, the file is read again from the device, and the batches that
verify remain. The others, never acknowledged at `disk`, are lost, and the next flush reports them.

Depends on lifecycle and indexfile.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tierdex.errors import CorruptFileError
from tierdex.indexfile.chained.file import ChainedFile
from tierdex.indexfile.check import check_file
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.folders.transition import install, move_by_rename, retire, verify_temporary
from tierdex.lifecycle.topic_set import topic_set
from tierdex.whole_file import temporary_beside

if TYPE_CHECKING:
    from pathlib import Path

    from tierdex.compactor.components import CompactorComponents
    from tierdex.lifecycle.table.file_handle import FileHandle

logger = logging.getLogger(__name__)


def seal_file(components: CompactorComponents, handle: FileHandle) -> None:
    """Bring a rolled file to `sealed`; an empty one is removed. Raises OSError, CorruptFileError."""
    file: ChainedFile = handle.reader
    assert handle.path is not None
    if file.item_count == 0:
        retire(components.filesystem, [handle.path])
        components.table.remove(handle)
        return
    target = components.paths.path_of(FileState.SEALED, handle.number)
    with components.sync_lock:
        if file.suspect or _has_no_name(components, handle.path, target):
            _seal_suspect(components, handle, target)
        else:
            file.seal()
            move_by_rename(components.filesystem, handle.path, target)
        # Opened anew: from here on every block is verified at its first use, and the mapping ends
        # with the file, so that no damage leads a reader beyond it (a SIGBUS).
        sealed = ChainedFile.open_sealed(components.filesystem, target)
        components.table.move(
            handle,
            FileState.SEALED,
            reader=sealed,
            path=target,
            sealed_at_ms=components.clock.now_ms(),
            topics=topic_set(sealed.topics),
            fixed_item_count=sealed.item_count,
            fixed_min_time=sealed.min_time,
            fixed_max_time=sealed.max_time,
            fixed_bytes=sealed.bytes_used,
        )


def _has_no_name(components: CompactorComponents, *paths: Path) -> bool:
    """Return whether the file has neither name: an earlier attempt may have renamed it."""
    return not any(map(components.filesystem.exists, paths))


def _seal_suspect(components: CompactorComponents, handle: FileHandle, target: Path) -> None:
    file: ChainedFile = handle.reader
    assert handle.path is not None
    temporary = temporary_beside(target)
    components.filesystem.unlink(temporary)  # of an earlier attempt
    try:
        file.copy_sealed(components.filesystem, temporary)
        verify_temporary(
            components.filesystem, temporary, lambda path: check_file(components.filesystem, path)
        )
    except CorruptFileError as error:
        components.filesystem.unlink(temporary)
        _reread(components, handle, error)
        file.copy_sealed(components.filesystem, temporary)
    install(components.filesystem, temporary, target, [handle.path])
    retire(components.filesystem, [handle.path])


def _reread(components: CompactorComponents, handle: FileHandle, error: CorruptFileError) -> None:
    """Continue with the batches that the device still has; the next flush reports the lost ones."""
    file: ChainedFile = handle.reader
    published, items = file.published, file.item_count
    proven = file.reread()
    extra = {"file_id": handle.file_id, "published": published, "proven": proven}
    logger.error("suspect file re-read", extra=extra)
    if proven < published:
        lost = items - file.item_count
        components.on_loss(
            f"{lost} items of {handle.file_id} were lost after a failed sync ({error})"
        )
