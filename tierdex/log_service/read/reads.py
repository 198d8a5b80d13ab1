"""Reading a queue by offset: which files hold it, messages from one file after the other.

::

    extents   of the queue in every file, oldest first: sealed ones looked up once and kept until the list
              of files changes, growing ones each time
    begin     the first extent's first offset that is not gone (`trim_record`);  end  the last one's end,
              at the level asked for
    messages  from the extent that holds the offset on, until a limit, the end, a gap, or damage

What lies between two extents is missing, and named; it is never skipped. Nothing is opened or held a queue,
but the extents of those that were read lately. Depends on lifecycle, logfile and the
rest of log_service.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from tierdex.errors import CorruptFileError, UnavailableError
from tierdex.log_service.answer import MissingMessages, ReadAnswer
from tierdex.log_service.files.read_ahead import Reader
from tierdex.log_service.files.reading import Reading
from tierdex.log_service.levels import Level
from tierdex.log_service.notes.trim_record import Part
from tierdex.log_service.read.many_reads import ManyAnswers, read_together, unpacked_place
from tierdex.log_service.read.queue_parts import (
    STORE_ERRORS,
    FilesInOrder,
    HeldPart,
    QueueParts,
    before_damage,
    is_away,
    is_published,
    is_published_from,
    look_up,
    not_published,
)
from tierdex.log_service.read_policy import ReadLimits, ReadPolicy
from tierdex.logfile.messages import Extent, MessageBatch
from tierdex.value_rules import INT32_MAX, INT64_MAX, check_integer, check_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tierdex.lifecycle.table.file_table import FileList, FileSnapshot, FileTable
    from tierdex.log_service.files.log_file import LogFile
    from tierdex.log_service.files.reading import Memory
    from tierdex.log_service.notes.trim_record import TrimRecord
    from tierdex.log_service.read.many_reads import Place
    from tierdex.log_service.read.queue_parts import UnreadFile

_QUEUES_KEPT = 65_536
_SCAN_COUNT = 4096
_ANY_BYTES = 1 << 62
_NOBODY = Reader(None, b"", 0, -1)  # reads on


class QueuePosition(NamedTuple):
    """A place in a queue."""

    topic: str
    queue_id: int
    offset: int

    @property
    def name(self) -> bytes:
        return self.topic.encode()


def place_of(topic: object, queue_id: object, offset: object) -> QueuePosition:
    """Return a place as a caller gave it. Raises InvalidRequestError."""
    return QueuePosition(
        check_topic(topic, "topic"),
        check_integer(queue_id, "queue_id", 0, INT32_MAX),
        check_integer(offset, "offset", 0, INT64_MAX),
    )


class LogReads:
    """Answers reads from the files of a table. Safe to share between threads."""

    def __init__(
        self, table: FileTable, node: str, quarantined: Callable[[], Sequence[MissingMessages]],
        gone: TrimRecord, memory: Memory, unknown: Callable[[], str | None] = lambda: None,
    ) -> None:  # fmt: skip
        """Read the queues of `node`; `quarantined` returns files that do not open: what is missing.

        `unknown` says why published files are not known: they hold what comes before all that is here.
        """
        self._unknown = unknown
        self._memory = memory
        self._table = table
        self._node = node
        self._gone = gone
        self.quarantined = quarantined
        self._files: FilesInOrder | None = None

    @property
    def has_forgotten(self) -> bool:
        """Return whether some messages are forgotten, which files may still hold."""
        return len(self._gone.forgotten.places) > 0

    def without_forgotten(self, topic: bytes, queue_id: int, batch: MessageBatch) -> MessageBatch:
        """Return what was read of a queue without what is forgotten: these messages are empty, and say so."""
        places = self._gone.forgotten.places
        if not len(places):
            return batch
        return batch.without(places.within(topic, queue_id, batch.first_offset, batch.next_offset))

    def read(self, at: QueuePosition, limits: ReadLimits) -> ReadAnswer:
        """Return messages from `at` on."""
        with self._table.snapshot() as snapshot:
            return self._answer(self._files_of(snapshot), at, limits)

    def read_many(self, places: Sequence[QueuePosition], limits: ReadLimits) -> list[ReadAnswer]:
        """Return the answers in order, all from the same files."""
        with self._table.snapshot() as snapshot:
            files = self._files_of(snapshot)
            return [self._answer(files, at, limits) for at in places]

    def read_places(self, places: list[Place], limits: ReadLimits) -> ManyAnswers:
        """Return the answers in order: together where files have the queues whole, else one by one.

        Raises InvalidRequestError for a place that is none.
        """
        others: dict[int, ReadAnswer] = {}
        answers = ManyAnswers(places, others, self.without_forgotten)
        with self._table.snapshot() as snapshot:
            files = self._files_of(snapshot)
            left: Iterable[int] = range(len(places))
            if not self.quarantined() and self._unknown() is None:
                floor = None if self._gone.is_silent else self._floor_of
                found = None
                with suppress(*STORE_ERRORS):  # one by one they are named
                    reading = Reading(self._memory, _NOBODY, limits.policy)
                    found = read_together(places, files.at(limits.level), limits, floor, reading)
                if found is not None:
                    answers.take(found, reading.explain)
                    left = found.others
            for index in left:
                at = place_of(*unpacked_place(places[index], index))
                others[index] = self._answer(files, at, limits)
        return answers

    def let_go(self) -> None:
        """Keep nothing of the files that were: the tables of a growing one are large."""
        self._files = None

    def begin_before(
        self, file_list: FileList, topic: str, queue_id: int, first: int
    ) -> int | None:
        """Return where a queue begins that has `first` in the only growing file; None: not known here."""
        files = self._files
        if files is None or files.file_list is not file_list:
            return None
        sealed = files.queues.get((topic.encode(), queue_id))
        if sealed is None:
            return None
        held = self._kept(sealed.held, topic.encode(), queue_id)[0]
        return held[0].extent.first_offset if held else first

    def begin(self, topic: str, queue_id: int, level: Level) -> int:
        """Return where a queue begins. Raises UnavailableError, CorruptFileError while that is not known."""
        return self._queue_at(topic, queue_id, level, QueueParts.before).begin

    def end(self, topic: str, queue_id: int, level: Level) -> int:
        """Return where a queue ends. Raises as `begin`."""
        return self._queue_at(topic, queue_id, level, QueueParts.behind).end

    def bounds(self, topic: str, queue_id: int, level: Level) -> tuple[int, int]:
        """Return both; (0, 0) for a queue that holds nothing. Raises as `begin`."""
        queue = self._queue_at(topic, queue_id, level, lambda queue: iter(queue.unread))
        return queue.begin, queue.end

    def growing_from(self, topic: str, queue_id: int) -> int | None:
        """Return the offset of a queue's first message in journals that grow, None without one."""
        with self._table.snapshot() as snapshot:
            for handle in self._files_of(snapshot).growing:
                extent = handle.reader.extent(topic.encode(), queue_id, Level.RECEIVED)
                if extent is not None:
                    return int(extent.first_offset)
        return None

    def _queue_at(
        self,
        topic: str,
        queue_id: int,
        level: Level,
        asked: Callable[[QueueParts], Iterator[UnreadFile]],
    ) -> QueueParts:
        with self._table.snapshot() as snapshot:
            queue = self._queue(self._files_of(snapshot), topic.encode(), queue_id, level)
            for each in asked(queue):
                raise each.error()
            if not queue.held:
                self.refuse_unknown()
            return queue

    def offset_at(self, topic: str, queue_id: int, timestamp: int, level: Level) -> int:
        """Return the least offset whose message has a time >= `timestamp`; the end offset if none has.

        Times need not rise in a queue. Files without such a time are not read, and journals not before the
        checkpoint behind which such a time may stand. Raises CorruptFileError.
        """
        name = topic.encode()
        with self._table.snapshot() as snapshot:
            queue = self._queue(self._files_of(snapshot), name, queue_id, level)
            if queue.unread:
                raise queue.unread[0].error()
            self.refuse_unknown()
            reading = Reading(
                self._memory, Reader(None, name, queue_id, -1), ReadPolicy.NOT_IN_DISK
            )
            for handle, extent in queue.held:
                file: LogFile = handle.reader
                if file.max_time < timestamp:
                    continue
                near = file.offset_near(name, queue_id, timestamp)
                offset = max(extent.first_offset, near)
                while offset < extent.next_offset:
                    batch = file.read(
                        name, queue_id, offset,
                        max_count=min(_SCAN_COUNT, extent.next_offset - offset),
                        max_bytes=_ANY_BYTES, level=level, reading=reading,
                    )  # fmt: skip
                    later = (batch.times >= timestamp).nonzero()[0]
                    if len(later):
                        return offset + int(later[0])
                    offset = batch.next_offset
            return queue.end

    # -- files of a queue ------------------------------------------------------------------------------

    def _files_of(self, snapshot: FileSnapshot) -> FilesInOrder:
        files = self._files
        if files is None or files.file_list is not snapshot.file_list:
            files = self._files = FilesInOrder(snapshot.file_list, self._node)
        return files

    def _queue(self, files: FilesInOrder, topic: bytes, queue_id: int, level: Level) -> QueueParts:
        """Return a queue's parts and bounds at a level."""
        sealed = files.queues.get((topic, queue_id))
        if sealed is None:
            sealed = look_up(files.sealed, topic, queue_id, level)
            if len(files.queues) >= _QUEUES_KEPT:
                files.queues.clear()
            if not sealed.unread:  # damage is looked at again
                files.queues[topic, queue_id] = sealed
        held = list(sealed.held)
        if (
            level is Level.REMOTE
        ):  # files go up in order: what is behind the last published one has not
            while held and not is_published(held[-1].handle):
                held.pop()
        # The newest first: a journal is durable before the one behind it shows anything, so what is looked at
        # later has at least all that comes before what was seen.
        for handle in reversed(files.growing) if level is not Level.REMOTE else ():
            extent = handle.reader.extent(topic, queue_id, level)
            if extent is not None:
                held.append(HeldPart(handle, extent))
        # A journal found sealed while a newer one grows stands in order of numbers all the same.
        held.sort(key=lambda part: part.handle.number)
        kept, gone_to = self._kept(held, topic, queue_id)
        end = max(held[-1].extent.next_offset, gone_to) if held else gone_to
        queue = QueueParts(kept, kept[0].extent.first_offset if kept else end, end, sealed.unread)
        # Nothing is passed over for what cannot be read: below the first part there may be messages.
        is_open = queue.begin > gone_to and (any(queue.before()) or self._unknown() is not None)
        return queue._replace(begin=gone_to) if is_open else queue

    def _kept(
        self, held: Sequence[HeldPart], topic: bytes, queue_id: int
    ) -> tuple[list[HeldPart], int]:
        """Return the parts without what is gone, and the offset below which everything is."""
        if self._gone.is_silent:
            return list(held), 0
        parts = [Part(*part.extent, part.handle.sealed_at_ms) for part in held]
        begin = self._gone.begin_in(topic, queue_id, parts)
        return [
            HeldPart(handle, Extent(max(extent.first_offset, begin), extent.next_offset))
            for handle, extent in held
            if extent.next_offset > begin
        ], begin

    def _floor_of(self, place: Place, parts: list[Part]) -> int:
        """Return the offset below which everything of a queue is gone."""
        return self._gone.begin_in(place[0].encode(), place[1], parts)

    # -- messages --------------------------------------------------------------------------------------

    def _answer(self, files: FilesInOrder, at: QueuePosition, limits: ReadLimits) -> ReadAnswer:
        held, begin, end, unread = self._queue(files, at.name, at.queue_id, limits.level)
        first = max(at.offset, begin)
        collected = _Collected(first)
        missing = [each.missing for each in unread]
        reader = Reader(limits.group, at.name, at.queue_id, first)
        reading = Reading(self._memory, reader, limits.policy)
        for number, part in enumerate(held):
            if part.extent.next_offset <= collected.next_offset:
                continue
            if collected.is_full(limits):
                break
            if part.extent.first_offset > collected.next_offset:
                if not missing:
                    missing += self._not_known(at.offset) or self._gap(collected.next_offset)
                break
            if limits.level is Level.REMOTE and not is_published(part.handle):
                missing.append(not_published(part.handle, collected.next_offset))
                break
            reading.following = [each.handle.reader for each in held[number + 1 :]]
            damage = collected.take(part, at, limits, reading)
            if damage is not None:
                missing.append(damage)
            if collected.next_offset < part.extent.next_offset:
                break  # a limit, or damage
        reads_on = limits.max_count > 1 or limits.group is not None  # one message is a point
        if reads_on and is_published_from(held, collected.next_offset):
            reading.end(collected.next_offset)
        if collected.next_offset >= end or begin > at.offset:
            missing += self.quarantined()  # they may hold what comes next, or came before
        if begin > at.offset or not held:
            missing += self._not_known(at.offset)
        return ReadAnswer(
            at.topic, at.queue_id, first, begin, end,
            self.without_forgotten(
                at.name, at.queue_id, MessageBatch.join(collected.batches, first)
            ),
            from_begin=first > at.offset,
            missing=tuple(missing),
            generation=collected.generation,
            sources=reading.explain,
        )  # fmt: skip

    def refuse_unknown(self) -> None:
        """Raise UnavailableError while published files are not known: a queue may begin before all others."""
        reason = self._unknown()
        if reason is not None:
            raise UnavailableError(reason, retry_after_s=1.0)

    def _not_known(self, offset: int) -> list[MissingMessages]:
        reason = self._unknown()
        return [] if reason is None else [MissingMessages("store", reason, offset, is_away=True)]

    def _gap(self, offset: int) -> list[MissingMessages]:
        named = [each._replace(offset=offset) for each in self.quarantined()]
        return named or [MissingMessages("(no file)", "holds the messages from here on", offset)]


class _Collected:
    """Batches of one queue that follow each other."""

    def __init__(self, first_offset: int) -> None:
        self.batches: list[MessageBatch] = []
        self.next_offset = first_offset
        self.count = 0
        self.body_bytes = 0
        self.generation = 0

    def is_full(self, limits: ReadLimits) -> bool:
        has_bytes = self.body_bytes >= limits.max_bytes and self.count > 0
        return has_bytes or self.count >= limits.max_count

    def take(
        self, part: HeldPart, at: QueuePosition, limits: ReadLimits, reading: Reading
    ) -> MissingMessages | None:
        """Take messages of one file; return what is damaged behind them, if anything is."""
        file: LogFile = part.handle.reader
        wanted = min(limits.max_count - self.count, part.extent.next_offset - self.next_offset)
        bytes_left = max(0, limits.max_bytes - self.body_bytes)

        def read(count: int) -> MessageBatch:
            return file.read(
                at.name, at.queue_id, self.next_offset,
                max_count=count, max_bytes=bytes_left, level=limits.level, reading=reading,
            )  # fmt: skip

        damage: MissingMessages | None = None
        try:
            batch = read(wanted)
        except CorruptFileError as error:
            batch = before_damage(read, wanted, self.next_offset)
            damage = MissingMessages(part.handle.file_id, error.reason, batch.next_offset)
        except STORE_ERRORS as error:
            return MissingMessages(
                part.handle.file_id, str(error), self.next_offset, is_away=is_away(error)
            )
        if self.count and len(batch) and len(batch.bodies) > bytes_left:
            return (
                damage  # the first message of a file may be above the limit; the first of all only
            )
        if len(batch):
            self.batches.append(batch)
            self.next_offset = batch.next_offset
            self.count += len(batch)
            self.body_bytes += len(batch.bodies)
            self.generation = file.generation
        return damage
