"""A file of the log for reads and the file table: an unsealed or sealed journal, or a grouped file.

A grouped file that is published is `published_file`'s.

Depends on errors, fileparts, lifecycle, logfile, levels, log_row, page_arena, page_reads, queue_table and
reading.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.predecessor import Predecessor
from tierdex.lifecycle.manifests.file_row import LOG_KIND, FileRow
from tierdex.log_service.files.log_row import FileSizes, LogRowMore
from tierdex.log_service.files.page_arena import ArenaOfMany
from tierdex.log_service.files.page_reads import PageReads
from tierdex.log_service.files.queue_table import queues_of_grouped
from tierdex.log_service.levels import Level
from tierdex.logfile.columns import QueueColumns
from tierdex.logfile.grouped.places import GroupedPlaces
from tierdex.logfile.messages import MessageBatch
from tierdex.logfile.queue_ends import NO_QUEUES, QueueEnds

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from typing_extensions import Buffer

    from tierdex.log_service.files.page_arena import PageSource
    from tierdex.log_service.files.reading import Reading
    from tierdex.log_service.read_policy import ReadExplain
    from tierdex.logfile.grouped.file import GroupedFile, PageSpan, QueuePlace
    from tierdex.logfile.journal.file import Journal
    from tierdex.logfile.journal.sealed import SealedJournal
    from tierdex.logfile.messages import Extent

BATCH_COUNT: Final = "batch_count"  # in the EXTRA of a grouped file: of the journal that it was
BATCH_CRC: Final = "batch_crc"
PARTS: Final = "parts"  # in that of a merged file: [uuid, batch_count, batch_crc] of each journal
MERGED: Final = "merged"  # uuids of the files that it replaces
FORGETS: Final = "forgets"  # the last request to forget whose messages it left out

_RECEIVED, _OS = (
    Level.RECEIVED,
    Level.OS,
)  # a member of an enum takes as long to get as the rest here


class LiveFile:
    """An unsealed journal: what it shows depends on the level. Owns the journal."""

    is_growing = True
    forgets = 0

    def __init__(self, journal: Journal, *, is_own: bool = True) -> None:
        """`is_own`: this process writes it; else `durable` says how far it is known to be synced."""
        self.journal = journal
        self.durable = 0
        self._is_own = is_own

    @property
    def generation(self) -> int:
        return self.journal.header.generation

    @property
    def end_of_batches(self) -> Predecessor:
        """Where the batches that are written end."""
        return self.journal.end_of_batches

    @property
    def parts(self) -> tuple[Predecessor, ...]:
        """Of this one journal alone."""
        return (self.end_of_batches,)

    def limit(self, level: Level) -> int:
        """Return the byte below which messages have the level."""
        if level is _RECEIVED:
            return self.journal.received_limit
        if level is _OS:
            return self.journal.published
        return self.journal.synced if self._is_own else self.durable

    def extent(self, topic: bytes, queue_id: int, level: Level) -> Extent | None:
        """Return the offsets that a queue has here at a level, None when it has none."""
        return self.journal.extent(topic, queue_id, self.limit(level))

    def offset_near(self, topic: bytes, queue_id: int, timestamp: int) -> int:
        """Return an offset before which no message here has a time >= `timestamp`. CorruptFileError."""
        return self.journal.offset_near(topic, queue_id, timestamp)

    def read(
        self, topic: bytes, queue_id: int, offset: int, *, max_count: int, max_bytes: int, level: Level,
        reading: Reading,
    ) -> MessageBatch:  # fmt: skip
        """Return messages from `offset` on, at least one when there is one."""
        batch = self.journal.read(
            topic, queue_id, offset, max_count=max_count, max_bytes=max_bytes, limit=self.limit(level)
        )  # fmt: skip
        reading.explain.memory += batch.content_bytes
        return batch

    @property
    def item_count(self) -> int:
        return self.journal.message_count

    @property
    def min_time(self) -> int:
        return self.journal.tables.min_time

    @property
    def max_time(self) -> int:
        return self.journal.tables.max_time

    @property
    def bytes_used(self) -> int:
        return self.journal.published

    def close(self) -> None:
        self.journal.close()


class SealedFile:
    """A sealed journal: everything in it is durable. Owns the journal."""

    is_growing = False
    forgets = 0

    def __init__(self, journal: SealedJournal) -> None:
        self.journal = journal

    @property
    def generation(self) -> int:
        return self.journal.header.generation

    @property
    def end_of_batches(self) -> Predecessor:
        """Where the batches that are written end."""
        return self.journal.end_of_batches

    @property
    def parts(self) -> tuple[Predecessor, ...]:
        """Of this one journal alone."""
        return (self.end_of_batches,)

    def extent(self, topic: bytes, queue_id: int, level: Level) -> Extent | None:
        """Return the offsets that a queue has here. Raises CorruptFileError."""
        return self.journal.extent(topic, queue_id)

    def offset_near(self, topic: bytes, queue_id: int, timestamp: int) -> int:
        """Return an offset before which no message here has a time >= `timestamp`. CorruptFileError."""
        return self.journal.offset_near(topic, queue_id, timestamp)

    def read(
        self, topic: bytes, queue_id: int, offset: int, *, max_count: int, max_bytes: int,
        level: Level, reading: Reading,
    ) -> MessageBatch:  # fmt: skip
        """Return messages from `offset` on. Raises CorruptFileError."""
        batch = self.journal.read(topic, queue_id, offset, max_count=max_count, max_bytes=max_bytes)
        reading.explain.memory += batch.content_bytes
        return batch

    @property
    def item_count(self) -> int:
        return self.journal.message_count

    @property
    def min_time(self) -> int:
        return self.journal.min_time

    @property
    def max_time(self) -> int:
        return self.journal.max_time

    @property
    def bytes_used(self) -> int:
        return self.journal.bytes

    def check(self) -> list[str]:
        """Return every broken rule, in words. Reads it whole."""
        return self.journal.check()

    def close(self) -> None:
        self.journal.close()


def describe_parts(files: Sequence[GroupedFile]) -> dict[str, Any]:
    """Return what a merged file's EXTRA says of the files that it replaces, oldest first."""
    parts = [end for file in files for end in parts_of(file)]
    return {
        PARTS: [[end.uuid.hex(), end.batch_count, end.batch_crc] for end in parts],
        MERGED: [file.uuid.hex() for file in files],
    }


def parts_of(file: GroupedFile) -> tuple[Predecessor, ...]:
    """Return the journals that a grouped file holds, oldest first, and where the batches of each ended.

    Raises CorruptFileError when it does not say so.
    """
    try:
        if PARTS in file.extra:
            return tuple(
                Predecessor(bytes.fromhex(uuid), int(count), int(crc))
                for uuid, count, crc in file.extra[PARTS]
            )
        count, crc = int(file.extra[BATCH_COUNT]), int(file.extra[BATCH_CRC])
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptFileError(file.path, "does not say which batches it holds") from error
    return (Predecessor(file.uuid, count, crc),)


def left_out_before(file: GroupedFile) -> QueueEnds:
    """Return where queues end of which a merge left messages out: the queue table. CorruptFileError."""
    table = file.queue_table()
    return NO_QUEUES if table is None else QueueEnds.decode(table, file.path)


class GroupedLogFile:
    """A compacted file: the messages of a journal, or of merged ones, by queue. Owns the file."""

    is_growing = False

    def __init__(self, file: GroupedFile) -> None:
        """Raises CorruptFileError when it does not say which batches it holds."""
        self._file = file
        self.parts = parts_of(file)
        self.end_of_batches = self.parts[-1]

    def ends(self, topics: Collection[bytes] | None = None) -> tuple[QueueColumns, np.ndarray]:
        """Return (queues, next offsets i8) of all topics, or of these. Raises CorruptFileError."""
        queues, next_offsets = queues_of_grouped(self.file)
        if topics is None:
            return queues, next_offsets
        names = self.file.topics
        chosen = np.array([names.name(index) in topics for index in range(len(names))])
        kept = chosen[queues.topic_index]
        return (
            QueueColumns(queues.topics, queues.topic_index[kept], queues.queue_ids[kept]),
            next_offsets[kept],
        )

    def left_out(self) -> QueueEnds:
        """Return where queues end of which a merge left messages out. Raises CorruptFileError."""
        return left_out_before(self.file)

    @property
    def file(self) -> GroupedFile:
        return self._file

    @property
    def forgets(self) -> int:
        """The last request to forget of which this file has nothing any more; 0: none."""
        return int(self.file.extra.get(FORGETS, 0))

    @property
    def generation(self) -> int:
        return self.file.header.generation

    @property
    def sizes(self) -> FileSizes:
        return FileSizes(self.file.queue_count, self.file.payload_bytes, self.file.body_bytes)

    def make_row(self, object_key: str, dates: dict[str, int], follows: bytes | None) -> FileRow:
        """Return the manifest's row of this file; `dates` are `begin_ms` and `sealed_at_ms`.

        Number and topics are the caller's to say: here they are 0 and any.
        """
        file = self.file
        return FileRow(
            uuid=file.uuid,
            number=0,
            object_key=object_key,
            bytes=file.bytes,
            item_count=file.message_count,
            slot_count=0,
            min_time=file.min_time,
            max_time=file.max_time,
            begin_ms=dates["begin_ms"],
            sealed_at_ms=dates["sealed_at_ms"],
            sidecar_position=file.sidecar_position,
            tail_crc=file.footer_crc,
            topics=None,
            schema=LogRowMore(self.generation, self.end_of_batches, self.sizes, follows).encode(),
            kind=LOG_KIND,
        )

    def extent(self, topic: bytes, queue_id: int, level: Level) -> Extent | None:
        """Return the offsets that a queue has here. Raises CorruptFileError."""
        return self.file.extent(topic, queue_id)

    def offset_near(self, topic: bytes, queue_id: int, timestamp: int) -> int:
        """Return an offset before which no message here has a time >= `timestamp`. CorruptFileError."""
        return self.file.offset_near(topic, queue_id, timestamp)

    def read(
        self, topic: bytes, queue_id: int, offset: int, *, max_count: int, max_bytes: int,
        level: Level, reading: Reading,
    ) -> MessageBatch:  # fmt: skip
        """Return messages from `offset` on. Raises CorruptFileError, and what reading pages raises."""
        found = self._plan(topic, queue_id, offset, max_count)
        if found is None:
            return MessageBatch(offset, 0, 0, 0)
        file, place, plan = found
        source = self._pages_of(topic, queue_id, place, reading)
        pages = PageReads(file, source, reading.arena, plan, max_bytes)
        return file.read_pages(place, offset, max_count=max_count, max_bytes=max_bytes, pages=pages)

    def _plan(
        self, topic: bytes, queue_id: int, offset: int, max_count: int
    ) -> tuple[GroupedFile, QueuePlace, PageSpan] | None:
        """Return where a queue lies, and the pages with these messages; None without any of them."""
        file = self.file
        place = file.find(topic, queue_id)
        if place is None or max_count <= 0 or not place.first_offset <= offset < place.next_offset:
            return None
        return file, place, file.plan(place, offset, max_count)

    def places(self, reading: Reading) -> GroupedPlaces:
        """Return what reads many places of the file."""
        source = self._pages_of(b"", 0, None, reading)
        kept = ArenaOfMany(reading.arena, source, self.file)
        return GroupedPlaces(self.file, kept, source.bring)

    def _pages_of(
        self, topic: bytes, queue_id: int, place: QueuePlace | None, reading: Reading
    ) -> PageSource:
        """Return where the pages come from; `place` is None for a read of many queues."""
        return LocalPages(self.file, reading.explain)

    @property
    def item_count(self) -> int:
        return self.file.message_count

    @property
    def min_time(self) -> int:
        return self.file.min_time

    @property
    def max_time(self) -> int:
        return self.file.max_time

    @property
    def bytes_used(self) -> int:
        return self.file.bytes

    def check(self) -> list[str]:
        """Return every broken rule, in words. Reads it whole."""
        return self.file.check()

    def close(self) -> None:
        self.file.close()


class LocalPages:
    """The pages of a file that lies here (`page_arena.PageSource`)."""

    is_local = True
    is_stored = False

    def __init__(self, file: GroupedFile, explain: ReadExplain) -> None:
        self._file = file
        self._explain = explain

    def bring(self, span: PageSpan, then: Sequence[PageSpan] = ()) -> Buffer:
        self._explain.disk += span.length
        return self._file.read_span(span)

    def takes(self, *, is_stored: bool) -> bool:
        return True  # what lies here is not published, or not known to be

    def bring_again(self, span: PageSpan) -> Buffer | None:
        return None  # there is no other copy

    def note_kept(self, span: PageSpan) -> None:
        self._explain.arena += span.length


LogFile = LiveFile | SealedFile | GroupedLogFile
