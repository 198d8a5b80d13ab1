"""Where a queue of the log lies: its parts in the files of one version of the table.

A sealed file is asked once what it has of a queue, a growing one each time. A file that cannot say is named:
the queue may begin or end in it.

Depends on errors, lifecycle, logfile, answer and levels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tierdex.errors import CorruptFileError, NotFoundError, StoreRefusedError, UnavailableError
from tierdex.lifecycle.file_state import FileState
from tierdex.log_service.answer import MissingMessages
from tierdex.log_service.levels import Level
from tierdex.logfile.messages import MessageBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tierdex.errors import TierdexError
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.lifecycle.table.file_table import FileList
    from tierdex.logfile.messages import Extent

STORE_ERRORS = (UnavailableError, StoreRefusedError, NotFoundError)  # of a published file


class HeldPart(NamedTuple):
    """The part of a queue in one file."""

    handle: FileHandle
    extent: Extent


class UnreadFile(NamedTuple):
    """A file that could not say what it has of a queue."""

    number: int
    missing: MissingMessages

    def error(self) -> TierdexError:
        """Return why what depends on the file is not known."""
        file, reason = self.missing.file, self.missing.reason
        if self.missing.is_away:
            return UnavailableError(f"{file} cannot be asked: {reason}", retry_after_s=1.0)
        return CorruptFileError(file, reason)


class SealedParts(NamedTuple):
    """A queue in the sealed files, and the files that could not say, both oldest first."""

    held: tuple[HeldPart, ...]
    unread: tuple[UnreadFile, ...]


class QueueParts(NamedTuple):
    """A queue: its parts, oldest first, that are not gone, its bounds, and the files that could not say."""

    held: list[HeldPart]
    begin: int  # where it begins at the least
    end: int
    unread: tuple[UnreadFile, ...]

    def before(self) -> Iterator[UnreadFile]:
        """Yield the files that could not say, before the first part: the queue may begin in them."""
        return (
            each
            for each in self.unread
            if not self.held or each.number < self.held[0].handle.number
        )

    def behind(self) -> Iterator[UnreadFile]:
        """Yield those behind the last part: it may end in them."""
        return (
            each
            for each in self.unread
            if not self.held or each.number > self.held[-1].handle.number
        )


class FilesInOrder:
    """The files of one version of the table, and what is known of queues in the sealed ones."""

    def __init__(self, file_list: FileList, node: str) -> None:
        self.file_list = file_list
        own = [handle for handle in file_list.iterate() if handle.node == node]  # oldest first
        self.sealed = [handle for handle in own if not handle.reader.is_growing]
        self.growing = [handle for handle in own if handle.reader.is_growing]
        self._in_order = own
        self.queues: dict[tuple[bytes, int], SealedParts] = {}

    def at(self, level: Level) -> list[FileHandle]:
        """Return the files that may hold messages of a level, oldest first."""
        if level is not Level.REMOTE:
            return self._in_order
        return [handle for handle in self._in_order if is_published(handle)]


def look_up(
    handles: Sequence[FileHandle], topic: bytes, queue_id: int, level: Level
) -> SealedParts:
    """Return what these files have of a queue."""
    held, unread = [], []
    for handle in handles:
        try:
            extent = handle.reader.extent(topic, queue_id, level)
        except CorruptFileError as error:
            missing = MissingMessages(handle.file_id, error.reason)
            unread.append(UnreadFile(handle.number, missing))
            continue
        except STORE_ERRORS as error:
            missing = MissingMessages(handle.file_id, str(error), is_away=is_away(error))
            unread.append(UnreadFile(handle.number, missing))
            continue
        if extent is not None:
            held.append(HeldPart(handle, extent))
    return SealedParts(tuple(held), tuple(unread))


def is_published(handle: FileHandle) -> bool:
    """Return whether a file lies in the store, and is listed."""
    return handle.state is FileState.UPLOADED


def is_away(error: Exception) -> bool:
    """Return whether one of STORE_ERRORS may pass."""
    return not isinstance(error, NotFoundError)


def is_published_from(held: Sequence[HeldPart], offset: int) -> bool:
    """Return whether the next message of a queue lies in a published file."""
    return any(offset < part.extent.next_offset for part in held if is_published(part.handle))


def not_published(handle: FileHandle, offset: int) -> MissingMessages:
    """Return what is missing of a damaged file, which is never published."""
    return MissingMessages(handle.file_id, "is not published: it is damaged", offset)


def before_damage(read: Callable[[int], MessageBatch], count: int, offset: int) -> MessageBatch:
    """Return the messages before the first that cannot be read, of `count` that cannot all be."""
    sound = MessageBatch(offset, 0, 0, 0)
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        try:
            sound = read(middle)
            low = middle
        except CorruptFileError:
            high = middle
    return sound
