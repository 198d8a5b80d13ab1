"""Seal: a rolled file becomes immutable and durable, then moves to `sealed/` by one rename.

::

    1 footer and block checksums written, file cut to its length, synced   durable; still unsealed
    2 rename into sealed/                                                  visible in its new state
    3 both folders synced                                                  durable there

A crash after 1 leaves an unsealed file that recovery seals again. After a failed sync the file is
*suspect*: the kernel may have dropped pages. It is re-read and only what verifies goes on; the rest,
never acknowledged at `disk`, is lost and said so. Depends on lifecycle and indexfile.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tierdex.indexfile.chained import ChainedFile
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.transition import move_by_rename, retire

if TYPE_CHECKING:
    from tierdex.compactor.parts import CompactorParts
    from tierdex.lifecycle.file_handle import FileHandle

logger = logging.getLogger(__name__)


def seal_file(parts: CompactorParts, handle: FileHandle) -> None:
    """Bring a rolled file to `sealed`; an empty one is removed. Raises OSError, CorruptFileError."""
    file: ChainedFile = handle.reader
    assert handle.path is not None
    if file.item_count == 0:
        parts.table.remove(handle)
        retire(parts.filesystem, [handle.path])
        return
    target = parts.paths.path_of(FileState.SEALED, handle.number)
    with parts.sync_lock:
        if file.suspect:
            proven = file.reread()
            logger.warning(
                "suspect file re-read",
                extra={"file_id": handle.file_id, "published": file.published, "proven": proven},
            )
        file.seal()
        move_by_rename(parts.filesystem, handle.path, target)
        # Opened anew: from here on every block is verified when it is first used, and the mapping
        # ends where the file does, so that no damage leads a reader beyond it (a SIGBUS).
        sealed = ChainedFile.open_sealed(parts.filesystem, target)
        parts.table.move(
            handle,
            FileState.SEALED,
            reader=sealed,
            path=target,
            sealed_at_ms=parts.clock.now_ms(),
            topics=frozenset(sealed.topics),
            fixed_item_count=sealed.item_count,
            fixed_min_time=sealed.min_time,
            fixed_max_time=sealed.max_time,
            fixed_bytes=sealed.bytes_used,
        )
