"""A published log file as reads see it: queues by its sidecar, messages by ranges of whole pages.

What the row says needs no request: generation, batches, times, counts. The read's policy says whether pages
come from the store or from a kept local copy. A page that comes damaged, or a sidecar, is fetched from the
store before the file is called corrupt: the fault may lie in between, or in the copy, which then goes.

Depends on errors, index_service, lifecycle, logfile, fetched_ranges, log_file, log_row, read_policy and
whole_object.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tierdex.errors import CorruptFileError, NotFoundError, UnavailableError
from tierdex.index_service.readers.sidecar_cache import TailCache
from tierdex.log_service.files.fetched_ranges import Next, ObjectRange
from tierdex.log_service.files.log_file import GroupedLogFile
from tierdex.log_service.files.log_row import LogRowMore
from tierdex.log_service.files.whole_object import ReadsInOrder, check_object
from tierdex.log_service.read_policy import ReadPolicy
from tierdex.logfile.grouped.file import GroupedFile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import Buffer

    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.log_service.files.fetched_ranges import Ahead, FetchedRanges
    from tierdex.log_service.files.kept_copies import KeptCopies
    from tierdex.log_service.files.log_row import FileSizes
    from tierdex.log_service.files.read_ahead import Window
    from tierdex.log_service.files.reading import Reading
    from tierdex.logfile.grouped.file import PageSpan, QueuePlace
    from tierdex.storage_layer.base import Store

logger = logging.getLogger(__name__)

F = TypeVar("F", bound="Callable[..., Any]")


def _again_with_new_tail(ask: F) -> F:
    """Return the method; where the sidecar turns out to be damaged, it is fetched anew, once."""

    @wraps(ask)
    def asked(self: PublishedLogFile, *args: Any, **kwargs: Any) -> Any:
        try:
            return ask(self, *args, **kwargs)
        except CorruptFileError as error:
            logger.warning("sidecar fetched again", extra={"error": str(error)})
            self._tails.forget_tail(self.row.uuid)
            return ask(self, *args, **kwargs)

    return cast("F", asked)


class LogTails(TailCache[GroupedFile]):
    """Opens sidecars of log files; pages of an open one come by range GETs."""

    store: Store | None = None
    fetched: FetchedRanges
    copies: KeptCopies

    def _open_tail(self, row: FileRow, tail: memoryview, name: str) -> GroupedFile:
        def read(position: int, length: int) -> bytes | memoryview:
            return self.fetched.read(ObjectRange(row, position, position + length))[0]

        return GroupedFile(tail, read, position=row.sidecar_position, name=name)

    def _is_damaged(self, tail: GroupedFile) -> bool:
        return bool(tail.blocks.damaged() or tail.filter.damaged_partitions())

    def forget_tail(self, uuid: bytes) -> None:
        """Drop the sidecar of a file: it is damaged."""
        super().forget(uuid)

    def forget(self, uuid: bytes) -> None:
        """Drop what is kept of a file."""
        self.fetched.forget(uuid)
        self.copies.forget(uuid)
        super().forget(uuid)

    def fetch(self, row: FileRow, position: int, length: int) -> bytes:
        """Return a range of a file's object. Raises what the store raises."""
        return self.reached_store().get(row.object_key, position, length)

    def reached_store(self) -> Store:
        """Return the store. Raises UnavailableError while there is none."""
        if self.store is None:
            raise UnavailableError("the log has no store yet: it is being opened")
        return self.store


class PublishedLogFile(GroupedLogFile):
    """Reads one object. Immutable: safe to share between threads."""

    def __init__(self, row: FileRow, node: str, tails: LogTails) -> None:
        """Raises CorruptFileError when the row is no log file's."""
        self.row = row
        self._node = node
        self._tails = tails
        more = LogRowMore.of(row)
        self._more = more
        self.end_of_batches = more.end
        self.parts = (more.end,)  # all that local files are asked for is not asked of it

    @property
    def file(self) -> GroupedFile:
        """The open sidecar, fetched when it is not here. Raises what the store raises."""
        return self._tails.get(self.row, self._node, partial(self._tails.fetch, self.row))

    ends = _again_with_new_tail(GroupedLogFile.ends)
    left_out = _again_with_new_tail(GroupedLogFile.left_out)
    extent = _again_with_new_tail(GroupedLogFile.extent)
    _plan = _again_with_new_tail(GroupedLogFile._plan)

    @property
    def generation(self) -> int:
        return self._more.generation

    @property
    def sizes(self) -> FileSizes:
        return self._more.sizes

    def _pages_of(
        self, topic: bytes, queue_id: int, place: QueuePlace | None, reading: Reading
    ) -> PublishedPages:
        pages = PublishedPages(self.row, self._node, self._tails, reading)
        if place is not None:
            pages.window = reading.window
            pages.ahead = partial(self._ahead, topic, queue_id, place, reading)
        return pages

    def _ahead(
        self, topic: bytes, queue_id: int, place: QueuePlace, reading: Reading, begin: int, length: int,
        is_late: bool,
    ) -> Next:  # fmt: skip
        """Return what comes in the queue behind `length` bytes at `begin`, here and in the next files."""
        most = reading.bytes_ahead(is_late=is_late) - length
        left = most
        rest = self._extent(self.file, place)._replace(begin=begin + length)
        found = []
        following = iter(reading.following)
        while left > 0:
            if rest.length > 0:
                found.append(rest)
                left -= rest.length
            file = next(following, None)
            if not isinstance(file, PublishedLogFile):
                break
            tail = self._tails.opened(file.row.uuid)
            if tail is None:
                break
            with suppress(CorruptFileError):  # who reads there is told
                other = tail.find(topic, queue_id)
                if other is not None:
                    rest = file._extent(tail, other)
        return Next(found, most)

    def _extent(self, file: GroupedFile, place: QueuePlace) -> ObjectRange:
        """Return the pages that hold a queue."""
        span = file.plan(place, place.first_offset, place.next_offset - place.first_offset)
        return ObjectRange(self.row, span.position, span.position + span.length)

    def in_order(self, window_bytes: int) -> GroupedFile:
        """Return the file to read all of it, page after page, for one thread. Raises as `file`.

        A kept copy is read where one verifies. An object that is gone is a CorruptFileError, which names it.
        """
        position, copies = self.row.sidecar_position, self._tails.copies
        has_copy = copies.is_sound(self.row, self._node)

        def fetch(begin: int, length: int) -> bytes:
            if has_copy:
                kept = copies.read(self.row, self._node, begin, length, only_cached=False)
                if kept is not None:
                    return kept
            try:
                return self._tails.fetch(self.row, begin, length)
            except NotFoundError as error:
                raise CorruptFileError(self.row.object_key, str(error)) from error

        pages = ReadsInOrder(fetch, position, window_bytes)
        tail = self.file.sidecar_bytes().data
        return GroupedFile(tail, pages, position=position, name=self.row.object_key)

    def check(self) -> list[str]:
        """Return every broken rule of the object in the store, in words. Raises what the store raises."""
        return check_object(self._tails.reached_store(), self.row)

    @property
    def item_count(self) -> int:
        return self.row.item_count

    @property
    def min_time(self) -> int:
        return self.row.min_time

    @property
    def max_time(self) -> int:
        return self.row.max_time

    @property
    def bytes_used(self) -> int:
        return self.row.bytes

    def close(self) -> None:
        """Do nothing: the sidecar is the cache's."""


class PublishedPages:
    """The pages of one read of a published file (`page_arena.PageSource`): where its policy says."""

    is_local = False

    def __init__(self, row: FileRow, node: str, tails: LogTails, reading: Reading) -> None:
        self._row = row
        self._node = node
        self._tails = tails
        self._policy = reading.policy
        self._explain = reading.explain
        self.is_stored = False
        self.window: Window | None = None
        self.ahead: Callable[[int, int, bool], Next] | None = None  # of a reader of one queue

    def bring(self, span: PageSpan, then: Sequence[PageSpan] = ()) -> Buffer:
        """Return the bytes of neighbouring pages; `then` is asked for next. Raises what the store raises.

        NotFoundError where the policy leaves the store alone.
        """
        copy = self._copy(span)
        self.is_stored = copy is None
        if copy is not None:
            self._explain.kept_copy += span.length
            return copy
        if self.ahead is not None:
            return self._fetch(span, partial(self.ahead, span.position, span.length))
        ranges = [self._range(each) for each in then]
        following = Next(ranges, sum(each.length for each in ranges))
        return self._fetch(span, lambda is_late: following)

    def bring_again(self, span: PageSpan) -> Buffer | None:
        if not self.is_stored:
            self._tails.copies.forget(self._row.uuid)
        else:
            self._tails.fetched.discard(self._range(span))
        self.ahead, self.is_stored = None, True
        return self._fetch(span, lambda is_late: Next())

    def takes(self, *, is_stored: bool) -> bool:
        if self._policy is ReadPolicy.FORCE:
            return is_stored
        return not is_stored or self._policy is not ReadPolicy.DISABLE

    def note_kept(self, span: PageSpan) -> None:
        self._explain.arena += span.length

    def _copy(self, span: PageSpan) -> bytes | None:
        if self._policy is ReadPolicy.FORCE:
            return None
        return self._tails.copies.read(
            self._row, self._node, span.position, span.length,
            only_cached=self._policy is ReadPolicy.NOT_IN_MEM,
        )  # fmt: skip

    def _fetch(self, span: PageSpan, ahead: Ahead) -> Buffer:
        if self._policy is ReadPolicy.DISABLE:
            raise NotFoundError(
                "it lies in the store alone, which the read policy DISABLE leaves out"
            )
        found = self._tails.fetched.read(self._range(span), ahead, self.window)
        self._explain.requests += found.requests
        if found.was_here:
            self._explain.read_ahead += span.length
        else:
            self._explain.store += span.length
        return found.data

    def _range(self, span: PageSpan) -> ObjectRange:
        return ObjectRange(self._row, span.position, span.position + span.length)
