"""Opens the files in the log's folders: identifies, repairs and opens journals and grouped files.

Recovery itself is planned and carried out by `lifecycle.folders.recovery`, which asks this module. Sealed
journals are opened by their footers, an unsealed one is read batch by batch. A file of a newer format is
no damage: the opening is refused before anything is moved. Depends on fileparts, lifecycle, logfile,
clean_close and log_file.
"""

from __future__ import annotations

import json
import logging
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tierdex.errors import CorruptFileError, UnsupportedFormatError
from tierdex.fileparts.footer import read_footer, read_part
from tierdex.fileparts.layout import FOOTER_BYTES, FOOTER_MAGIC, HEADER_BYTES, Part
from tierdex.fileparts.predecessor import NO_PREDECESSOR, Predecessor, decode_predecessor
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.folders.folder_listing import Identity
from tierdex.lifecycle.folders.gap import BatchOrder
from tierdex.lifecycle.table.file_handle import FileHandle, Lease, live_handle
from tierdex.lifecycle.topic_set import TOPICS_LISTED_MAX, topic_set
from tierdex.log_service.files.log_file import MERGED, PARTS, GroupedLogFile, LiveFile, SealedFile
from tierdex.log_service.recovery.clean_close import told_of_loss
from tierdex.logfile.check import check_log_file
from tierdex.logfile.grouped.file import GroupedFile
from tierdex.logfile.header import decode_log_header
from tierdex.logfile.journal.file import Journal, SealedJournal, recover_journal
from tierdex.logfile.journal.scan import BatchScan
from tierdex.logfile.layout import HEADER_MAGIC, TIMER_TOPIC, Form

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from tierdex.clock import Clock
    from tierdex.filesystem import FileSystem, OpenFile
    from tierdex.lifecycle.folders.folder_listing import FolderListing
    from tierdex.lifecycle.table.file_handle import Closing
    from tierdex.lifecycle.topic_set import TopicSet
    from tierdex.logfile.header import LogHeader
    from tierdex.logfile.topics import Topics

logger = logging.getLogger(__name__)


def remove_gone(
    filesystem: FileSystem, listing: FolderListing, gone: Collection[bytes]
) -> FolderListing:
    """Finish an expiry that was cut off: remove files of these uuids. Raises OSError.

    Durable before: the record that names them, and says where their queues go on.
    """
    named = frozenset(gone)
    there = [file for file in listing.files if file.identity and file.identity.uuid in named]
    for file in there:
        filesystem.unlink(file.path)
        filesystem.sync_folder(file.path.parent)
        logger.info("removed, as it expired", extra={"path": str(file.path)})
    return replace(listing, files=tuple(file for file in listing.files if file not in there))


class JournalMending:
    """What recovery asks about single files (`lifecycle.folders.recovery.Repair`)."""

    def __init__(
        self, filesystem: FileSystem, clock: Clock, closed_at: Predecessor | None = None
    ) -> None:
        """`closed_at` is where the log ended when it was closed, if that is known."""
        self._filesystem = filesystem
        self._clock = clock
        self._closed_at = closed_at
        self.newer: UnsupportedFormatError | None = None  # the first file of a newer format

    def identify(self, state: FileState, path: Path) -> Identity:
        """Return what header and footer say. Raises CorruptFileError when the file does not open."""
        with closing(self._filesystem.open(path)) as file:
            head = file.read_at(0, HEADER_BYTES)
            try:
                form = Form.GROUPED if state is FileState.COMPACTED else Form.JOURNAL
                header = decode_log_header(head, path, form=form)
            except UnsupportedFormatError as error:
                if head.startswith(HEADER_MAGIC):
                    self.newer = self.newer or error
                raise
            size = file.size()
            if state is FileState.UNSEALED:
                tail = file.read_at(max(0, size - FOOTER_BYTES), FOOTER_BYTES)
                has_footer = tail[: len(FOOTER_MAGIC)] == FOOTER_MAGIC
                is_sealed = size != header.capacity and has_footer
                if self._closed_at is not None and self._closed_at.uuid == header.uuid:
                    self._refuse_loss(file, header, path)
                return Identity(header.uuid, is_sealed=is_sealed)
            footer = read_footer(file.read_at, size, path, uuid=header.uuid)
            if state is not FileState.COMPACTED:
                return Identity(header.uuid)
            extra = json.loads(read_part(file.read_at, footer, Part.EXTRA, path))
            parts = (bytes.fromhex(uuid) for uuid, *_ in extra.get(PARTS, ()))
            files = (bytes.fromhex(uuid) for uuid in extra.get(MERGED, ()))
            return Identity(header.uuid, parts=tuple(dict.fromkeys((*files, *parts))))

    def _refuse_loss(self, file: OpenFile, header: LogHeader, path: Path) -> None:
        """Raise CorruptFileError for a journal that ends before what was durable when it was closed."""
        scan = BatchScan(header)
        scan.pass_file(file.read_at, min(header.capacity, file.size()))
        end = Predecessor(header.uuid, scan.end.number, scan.end.crc)
        reason = told_of_loss(end, self._closed_at)
        if reason is not None:
            raise CorruptFileError(path, reason)

    def read_order(self, path: Path) -> BatchOrder:
        """Scan an unsealed journal for its place among others (`lifecycle.folders.gap`). CorruptFileError."""
        try:
            journal = Journal.open_for_reading(self._filesystem, path)
        except CorruptFileError:
            with closing(SealedJournal.open(self._filesystem, path)) as sealed:
                return BatchOrder(sealed.uuid, None, None)
        with closing(journal):
            return BatchOrder(journal.uuid, journal.predecessor, journal.end_of_batches)

    def verify(self, state: FileState, path: Path) -> Sequence[str]:
        return check_log_file(self._filesystem, path)

    def seal(self, path: Path) -> int:
        """Recover an unsealed journal, seal and sync it; return its message count."""
        with closing(recover_journal(self._filesystem, path)) as journal:
            count = journal.message_count
            if count and isinstance(journal, Journal):
                journal.seal(seal_notes(journal, self._clock))
            return count


def refuse_strangers(filesystem: FileSystem, listing: FolderListing) -> None:
    """Raise CorruptFileError for a journal of another log, before anything is moved. Raises OSError.

    A journal names the one before it, and the first one of a log none: so there is no older file beside it.
    Else messages of two logs would answer for the same offsets.
    """
    files = [(file, file.identity.uuid) for file in listing.files if file.identity is not None]
    for file, uuid in files:
        older = [str(o.path) for o, other in files if o.number < file.number and other != uuid]
        if not older or file.state is FileState.COMPACTED:
            continue
        before = None
        with suppress(CorruptFileError), closing(filesystem.open(file.path)) as opened:
            before = decode_predecessor(opened.read_at(0, HEADER_BYTES), uuid, file.path)
        if before == NO_PREDECESSOR:
            raise CorruptFileError(
                file.path,
                f"was the first journal of its log, and an older file is here ({older[0]}): one of both is "
                "of another log, or was put back by hand. Move it out of the folder",
            )


def seal_notes(journal: Journal, clock: Clock) -> dict[str, Any]:
    """Return what a sealed journal says of its life: wall times, int64 ms."""
    return {"begin_ms": journal.header.created_ms, "sealed_at_ms": clock.now_ms()}


def open_immutable(
    filesystem: FileSystem, node: str, state: FileState, number: int, path: Path
) -> FileHandle:
    """Return the handle of a sealed or compacted file. Raises CorruptFileError, OSError."""
    opens = open_sealed if state is FileState.SEALED else open_grouped
    return opens(filesystem, node, number, path)


def open_sealed(filesystem: FileSystem, node: str, number: int, path: Path) -> FileHandle:
    """Return the handle of a sealed journal. Raises CorruptFileError, OSError."""
    journal = SealedJournal.open(filesystem, path)
    return _handle(
        filesystem, node, FileState.SEALED, number, path, journal, lambda: SealedFile(journal)
    )


def open_grouped(filesystem: FileSystem, node: str, number: int, path: Path) -> FileHandle:
    """Return the handle of a compacted file. Raises CorruptFileError, OSError."""
    file = GroupedFile.open_local(filesystem, path)
    return _handle(
        filesystem, node, FileState.COMPACTED, number, path, file, lambda: GroupedLogFile(file)
    )


def _handle(
    filesystem: FileSystem, node: str, state: FileState, number: int, path: Path,
    file: SealedJournal | GroupedFile, make_reader: Callable[[], Closing],
) -> FileHandle:  # fmt: skip
    """Return the handle of an open file, which is closed when there is none."""
    try:
        return FileHandle(
            number=number,
            node=node,
            uuid=file.uuid,
            state=state,
            lease=Lease(make_reader()),
            path=path,
            begin_ms=int(file.extra.get("begin_ms", file.header.created_ms)),
            sealed_at_ms=int(file.extra.get("sealed_at_ms", filesystem.modified_ms(path))),
            topics=_topics_of(file.topics),
            fixed_item_count=file.message_count,
            fixed_min_time=file.min_time,
            fixed_max_time=file.max_time,
            fixed_bytes=file.bytes,
        )
    except BaseException:
        file.close()
        raise


def _topics_of(topics: Topics) -> TopicSet:
    """Return the topics of a file for retention; None when they are too many to list."""
    if len(topics) > TOPICS_LISTED_MAX:
        return None
    names = (topics.name(index) for index in range(len(topics)))
    return topic_set(name.decode() for name in names if name != TIMER_TOPIC)  # no rule is for it


def unsealed_handle(
    node: str, number: int, path: Path, journal: Journal, *, is_own: bool = True
) -> FileHandle:
    """Return the handle of an unsealed journal."""
    return live_handle(
        number=number, node=node, uuid=journal.uuid, path=path,
        reader=LiveFile(journal, is_own=is_own), slot_count=0, begin_ms=journal.header.created_ms,
    )  # fmt: skip
