"""Opens the files of a data folder: identifies them, recovers them, makes their handles.

`lifecycle.folders.recovery` plans and executes the recovery and knows nothing of a file's content; it calls
this module. Sealed and compacted files are opened by their footers and never scanned; an unsealed
file is read batch by batch.

Depends on fileparts, indexfile and lifecycle.
"""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

from tierdex.errors import CorruptFileError
from tierdex.fileparts.footer import read_footer
from tierdex.fileparts.layout import FOOTER_BYTES, FOOTER_MAGIC
from tierdex.indexfile.chained.file import ChainedFile
from tierdex.indexfile.check import check_file
from tierdex.indexfile.compacted.file import CompactedFile
from tierdex.indexfile.header import decode_header
from tierdex.indexfile.layout import HEADER_BYTES, Form
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.folders.folder_listing import Identity
from tierdex.lifecycle.folders.gap import BatchOrder
from tierdex.lifecycle.folders.transition import sync_file
from tierdex.lifecycle.table.file_handle import FileHandle, Lease, live_handle
from tierdex.lifecycle.topic_set import topic_set

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tierdex.filesystem import FileSystem
    from tierdex.indexfile.chained.batch_scan import Holds


class LocalMending:
    """Reads single files for recovery (`lifecycle.folders.recovery.Repair`)."""

    def __init__(self, filesystem: FileSystem, holds: Holds | None = None) -> None:
        """`holds` is what a log says of source positions: unsealed files are cut behind what it has."""
        self._filesystem = filesystem
        self._holds = holds

    def identify(self, state: FileState, path: Path) -> Identity:
        """Return a file's identity. Raises CorruptFileError when the file does not open."""
        form = Form.COMPACTED if state is FileState.COMPACTED else Form.CHAINED
        file = self._filesystem.open(path)
        try:
            header = decode_header(file.read_at(0, HEADER_BYTES), path, form=form)
            size = file.size()
            if state is FileState.UNSEALED:
                tail = file.read_at(max(0, size - FOOTER_BYTES), FOOTER_BYTES)
                # A seal that was cut off before the rename left a footer; a crash before it, rows.
                return Identity(header.uuid, is_sealed=tail[: len(FOOTER_MAGIC)] == FOOTER_MAGIC)
            read_footer(file.read_at, size, path, uuid=header.uuid)
        finally:
            file.close()
        return Identity(header.uuid)

    def read_order(self, path: Path) -> BatchOrder:
        """Scan an unsealed file for its place among others (`folders.gap`). Raises CorruptFileError."""
        with closing(ChainedFile.open_for_reading(self._filesystem, path, self._holds)) as file:
            end = None if file.sealed else file.end_of_batches
            return BatchOrder(file.uuid, file.predecessor, end)

    def verify(self, state: FileState, path: Path) -> Sequence[str]:
        return check_file(self._filesystem, path)

    def seal(self, path: Path) -> int:
        """Recover an unsealed file, seal and sync it; return its item count."""
        file = ChainedFile.recover(self._filesystem, path, self._holds)
        try:
            if file.sealed:
                # Killed within its seal: the footer is there, but its length may not be durable.
                sync_file(self._filesystem, path)
            elif file.item_count:
                file.seal()
            return file.item_count
        finally:
            file.close()


def open_local(
    filesystem: FileSystem,
    node: str,
    state: FileState,
    number: int,
    path: Path,
    holds: Holds | None = None,
) -> FileHandle:
    """Return the handle of a recovered file. Raises CorruptFileError, OSError."""
    if state is FileState.UNSEALED:
        return _unsealed_handle(node, number, path, ChainedFile.recover(filesystem, path, holds))
    if state is FileState.SEALED:
        file = ChainedFile.open_sealed(filesystem, path)
        try:
            sealed_at_ms = filesystem.modified_ms(path)  # its writer may have moved it by now
            return _fixed_handle(node, state, number, path, file, file.created_ms, sealed_at_ms)
        except BaseException:
            file.close()
            raise
    assert state is FileState.COMPACTED, state
    return compacted_handle(node, number, path, CompactedFile.open_local(filesystem, path))


def open_for_reading(
    filesystem: FileSystem, node: str, state: FileState, number: int, path: Path, holds: Holds
) -> FileHandle:
    """Return the handle of a file beside its live writer; writes nothing.

    Of an unsealed one that is what comes before the first batch whose source position `holds` denies.
    """
    if state is FileState.UNSEALED:
        file = ChainedFile.open_for_reading(filesystem, path, holds)
        return _unsealed_handle(node, number, path, file)
    return open_local(filesystem, node, state, number, path)


def _unsealed_handle(node: str, number: int, path: Path, file: ChainedFile) -> FileHandle:
    return live_handle(
        number=number,
        node=node,
        uuid=file.uuid,
        path=path,
        reader=file,
        slot_count=file.slot_count,
        begin_ms=file.created_ms,
    )


def compacted_handle(node: str, number: int, path: Path, file: CompactedFile) -> FileHandle:
    """Return the handle of a compacted file; its statistics hold its dates."""
    extra = file.extra
    begin_ms, sealed_at_ms = extra.get("begin_ms"), extra.get("sealed_at_ms")
    if not isinstance(begin_ms, int) or not isinstance(sealed_at_ms, int):
        raise CorruptFileError(path, f"says nothing of its dates: {json.dumps(extra)[:100]}")
    return _fixed_handle(node, FileState.COMPACTED, number, path, file, begin_ms, sealed_at_ms)


def _fixed_handle(
    node: str,
    state: FileState,
    number: int,
    path: Path,
    file: Any,
    begin_ms: int,
    sealed_at_ms: int,
) -> FileHandle:
    return FileHandle(
        number=number,
        node=node,
        uuid=file.uuid,
        state=state,
        lease=Lease(file),
        path=path,
        slot_count=file.slot_count,
        begin_ms=begin_ms,
        sealed_at_ms=sealed_at_ms,
        topics=topic_set(file.topics),
        fixed_item_count=file.item_count,
        fixed_min_time=file.min_time,
        fixed_max_time=file.max_time,
        fixed_bytes=file.bytes_used,
    )
