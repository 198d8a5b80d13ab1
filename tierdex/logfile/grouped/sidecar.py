"""The tail of a grouped file: what it says of itself, its queues, and where its pages lie.

The *sidecar* is one contiguous range at the file's end and self-sufficient: with it alone a queue is found,
and any page that is brought can be verified and read. Small parts are verified when it is opened; groups
of queues, queues and directory are one checked range, verified block by block when first used, as
partitions of the filter are.

Depends on blocks, fileparts, header, layout, messages, queue_groups, topics and kernels.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.checksums import part_seed
from tierdex.fileparts.filter import FuseFilter
from tierdex.fileparts.footer import PartEntry, read_footer, read_part
from tierdex.fileparts.layout import HEADER_BYTES, Part
from tierdex.fileparts.memory import address
from tierdex.logfile import layout
from tierdex.logfile.blocks import CheckedBlocks
from tierdex.logfile.grouped.kernels import directory as k
from tierdex.logfile.grouped.queue_groups import QueueRows
from tierdex.logfile.header import LogHeader, decode_extra, decode_log_header
from tierdex.logfile.kernels.blocks import SOUND
from tierdex.logfile.kernels.queue_hash import queue_hash
from tierdex.logfile.layout import Form
from tierdex.logfile.messages import Extent
from tierdex.logfile.topics import Topics

if TYPE_CHECKING:
    from typing_extensions import Buffer


class PageSpan(NamedTuple):
    """A contiguous range of whole pages that one request reads."""

    position: int
    length: int
    first_page: int
    page_count: int


class QueuePlace(NamedTuple):
    """One queue of a file: its place among the queues, and its offsets [first_offset, next_offset)."""

    queue: int
    first_offset: int
    next_offset: int


class GroupedSidecar:
    """The open tail of one grouped file. Borrows its buffer. Safe to share between threads."""

    def __init__(self, sidecar: Buffer, *, position: int, name: object) -> None:
        """Read the small parts of `sidecar`, the file from byte `position` to its end.

        Raises CorruptFileError, UnsupportedFormatError.
        """
        self.path = name
        self.sidecar_position = position
        self._sidecar = np.frombuffer(memoryview(sidecar), np.uint8)
        self.bytes = position + len(self._sidecar)
        self.footer = read_footer(self._read_tail, self.bytes, name)
        begin = self.footer.part(Part.HEADER_COPY, name).position
        if self.footer.form != Form.GROUPED or not position <= begin < self.footer.table_position:
            raise CorruptFileError(name, "is not in grouped form, or its tail is cut")
        self._sidecar = self._sidecar[begin - position :]  # pages may have come with it
        self.sidecar_position = begin
        self.header = self._read_header()
        self._statistics = self._read_statistics()
        self.topics = Topics(
            self._part(Part.TOPICS), self._part(Part.DICTIONARIES),
            queue_count=self.queue_count, path=name,
        )  # fmt: skip
        self._words = np.zeros(k.FILE_WORDS, np.int64)
        self.blocks = self._open_checked_range()
        self.filter = FuseFilter(
            self._part(Part.FILTER_PARTITIONS), self._view(self.footer.part(Part.FILTER, name)).data,
            bits=int(self._statistics["filter_bits"]), uuid=self.uuid, path=name,
        )  # fmt: skip
        self._page_seed = np.uint32(part_seed(self.uuid, Part.PAGE))

    # -- what the file says of itself ---------------------------------------------------------------

    @property
    def uuid(self) -> bytes:
        return self.header.uuid

    @property
    def message_count(self) -> int:
        return int(self._statistics["message_count"])

    @property
    def body_bytes(self) -> int:
        return int(self._statistics["body_bytes"])

    @property
    def payload_bytes(self) -> int:
        """Bytes of all payloads before they were compressed."""
        return int(self._statistics["payload_bytes"])

    @property
    def queue_count(self) -> int:
        return int(self._statistics["queue_count"])

    @property
    def page_count(self) -> int:
        return int(self._statistics["page_count"])

    @property
    def min_time(self) -> int:
        return int(self._statistics["min_time"])

    @property
    def max_time(self) -> int:
        return int(self._statistics["max_time"])

    @property
    def footer_crc(self) -> int:
        return self.footer.crc

    @cached_property
    def extra(self) -> dict[str, Any]:
        """What the writer's caller added."""
        return decode_extra(self._part(Part.EXTRA), self.path)

    def queue_table(self) -> Buffer | None:
        """Return the verified queue table that the file carries, None when it has none."""
        return self._part(Part.QUEUE_TABLE) if Part.QUEUE_TABLE in self.footer.parts else None

    def shares(self) -> Buffer | None:
        """Return the verified part that says which files were merged into this one, None without."""
        return self._part(Part.SHARES) if Part.SHARES in self.footer.parts else None

    def sidecar_bytes(self) -> np.ndarray:
        """Return the tail (u1): what `GroupedSidecar` takes."""
        return self._sidecar

    # -- queues and pages -----------------------------------------------------------------------------

    def may_contain(self, topic: bytes, queue_id: int) -> bool:
        """Return False only when the queue is not in the file. Raises CorruptFileError."""
        name, scratch = np.frombuffer(topic, np.uint8), np.empty(1, np.int64)
        if not len(name):
            return False
        return self.filter.may_contain(
            int(queue_hash(address(name), len(name), queue_id, address(scratch)))
        )

    def find(self, topic: bytes, queue_id: int) -> QueuePlace | None:
        """Return a queue's place, None when it is not in the file. Raises CorruptFileError."""
        topic_index = self.topics.find(topic)
        if topic_index < 0:
            return None
        row = self.topics.rows[topic_index]
        first, count = int(row["first_queue"]), int(row["queue_count"])
        index = self._sound(k.find_queue(self._words, self.blocks.words, first, count, queue_id))
        if index < 0:
            return None
        return self.place(index)

    def place(self, index: int) -> QueuePlace:
        """Return the queue at a place among the file's. Raises CorruptFileError."""
        first = self._queue_value(index, k.FIRST_OFFSET)
        return QueuePlace(index, first, first + self._queue_value(index, k.COUNT))

    def extent(self, topic: bytes, queue_id: int) -> Extent | None:
        """Return the offsets that a queue has here, None when it has none. Raises CorruptFileError."""
        place = self.find(topic, queue_id)
        return Extent(place.first_offset, place.next_offset) if place is not None else None

    def queues(self) -> QueueRows:
        """Return all queues, verified. Raises CorruptFileError."""
        columns = [np.empty(self.queue_count, np.int64) for _ in range(3)]
        for column, out in zip((k.ID, k.FIRST_OFFSET, k.COUNT), columns, strict=True):
            damaged = k.list_queues(
                self._words, self.blocks.words, column, 0, self.queue_count, address(out)
            )
            if damaged != SOUND:
                raise self.blocks.damage(int(damaged))
        topics = np.repeat(np.arange(len(self.topics)), self.topics.rows["queue_count"])
        return QueueRows(topics, *columns)

    def page_of(self, queue: int, ordinal: int) -> int:
        """Return the page of a queue's message: `ordinal` counts from its first here."""
        return self._sound(k.find_page(self._words, self.blocks.words, queue, ordinal))

    def offset_near(self, topic: bytes, queue_id: int, timestamp: int) -> int:
        """Return an offset of a queue before which no message has a time >= `timestamp`, by its pages.

        0 for a queue that is not here. Raises CorruptFileError.
        """
        place = self.find(topic, queue_id)
        if place is None:
            return 0
        first = self.page_of(place.queue, 0)
        end = self.page_of(place.queue, place.next_offset - place.first_offset - 1) + 1
        late = k.find_late_page(self._words, self.blocks.words, first, end, timestamp)
        page = self._sound(late)
        if page == end:
            return place.next_offset
        return place.first_offset + (self.page_first(page)[1] if page > first else 0)

    def page_first(self, page: int) -> tuple[int, int]:
        """Return (queue, ordinal) of a page's first message. Raises CorruptFileError."""
        return self._entry(page)[1:]

    def span(self, first_page: int, page_count: int = 1) -> PageSpan:
        """Return the range of some pages in the file. Raises CorruptFileError."""
        begin, end = self._entry(first_page)[0], self._entry(first_page + page_count)[0]
        if not HEADER_BYTES <= begin < end <= self.sidecar_position:
            raise CorruptFileError(self.path, f"page {first_page} lies from {begin} to {end}")
        return PageSpan(begin, end - begin, first_page, page_count)

    def page_places(self, numbers: np.ndarray) -> np.ndarray:
        """Return a row (begin, end; i8) a page of `numbers` (i8); of no bytes where that is damaged."""
        places = np.empty((len(numbers), 2), np.int64)
        k.page_places(self._words, self.blocks.words, numbers, places)
        begins, ends = places.T
        is_odd = (begins < HEADER_BYTES) | (ends <= begins) | (ends > self.sidecar_position)
        places[is_odd] = 0
        return places

    @property
    def directory_words(self) -> np.ndarray:
        """Where kernels find groups, queues and directory in `blocks`."""
        return self._words

    def directory(self) -> np.ndarray:
        """Return all entries and the closing one (layout.DIRECTORY_ENTRY), verified."""
        entry = self.footer.parts[Part.DIRECTORY]
        begin = entry.position - self._range_position
        self.blocks.verify(begin, begin + entry.length)
        found: np.ndarray = self._view(entry).view(layout.DIRECTORY_ENTRY)
        return found

    # -- private ----------------------------------------------------------------------------------------

    def _entry(self, page: int) -> tuple[int, int, int]:
        *values, damaged = k.page_entry(self._words, self.blocks.words, page)
        if damaged != SOUND:
            raise self.blocks.damage(int(damaged))
        position, queue, ordinal = (int(value) for value in values)
        return position, queue, ordinal

    def _queue_value(self, index: int, column: int) -> int:
        return self._sound(k.queue_value(self._words, self.blocks.words, index, column))

    def _sound(self, answer: tuple[int, int]) -> int:
        value, damaged = answer
        if damaged != SOUND:
            raise self.blocks.damage(int(damaged))
        return int(value)

    def _open_checked_range(self) -> CheckedBlocks:
        """Open groups, queues and directory as one range, and note where they lie in it."""
        kinds = (Part.QUEUE_GROUPS, Part.QUEUES, Part.DIRECTORY)
        groups, queues, directory = (self.footer.part(kind, self.path) for kind in kinds)
        begin, end = groups.position, directory.position + directory.length
        group_count = -(-self.queue_count // layout.QUEUE_GROUP)
        sound = (
            groups.length == group_count * layout.QUEUE_GROUP_ROW.itemsize
            and groups.position + groups.length <= queues.position
            and queues.position + queues.length <= directory.position
            and directory.length == (self.page_count + 1) * layout.DIRECTORY_ENTRY.itemsize
            and self.sidecar_position <= begin
            and (self.message_count > 0) == (self.page_count > 0) == (self.queue_count > 0)
        )
        if not sound:
            raise CorruptFileError(self.path, "queues and directory do not lie where they must")
        self._range_position = begin
        words = self._words
        words[k.F_GROUPS], words[k.F_QUEUES] = 0, queues.position - begin
        words[k.F_QUEUES_END] = queues.position + queues.length - begin
        words[k.F_DIRECTORY] = directory.position - begin
        words[k.F_QUEUE_COUNT], words[k.F_PAGE_COUNT] = self.queue_count, self.page_count
        start = begin - self.sidecar_position
        data = self._sidecar[start : start + end - begin]
        sums = self._part(Part.CHECKSUMS)
        return CheckedBlocks(data, sums, uuid=self.uuid, path=self.path, part=Part.CHECKSUMS)

    def _read_header(self) -> LogHeader:
        data = self._part(Part.HEADER_COPY)
        if len(data) > HEADER_BYTES:
            raise CorruptFileError(self.path, f"header copy has {len(data)} bytes")
        header = decode_log_header(data.ljust(HEADER_BYTES, b"\0"), self.path, form=Form.GROUPED)
        if header.uuid != self.footer.uuid:
            raise CorruptFileError(self.path, "the footer belongs to another file")
        return header

    def _read_statistics(self) -> np.void:
        data = self._part(Part.STATISTICS)
        if len(data) != layout.GROUPED_STATISTICS.itemsize:
            raise CorruptFileError(self.path, f"statistics have {len(data)} bytes")
        row: np.void = np.frombuffer(data, layout.GROUPED_STATISTICS)[0]
        if int(row["message_count"]) != self.footer.item_count:
            raise CorruptFileError(self.path, "footer and statistics count different messages")
        if int(row["filter_bits"]) not in {0, 8, 16}:
            raise CorruptFileError(self.path, f"a filter of {int(row['filter_bits'])} bits")
        return row

    def _part(self, kind: Part) -> bytes:
        entry = self.footer.part(kind, self.path)
        if entry.position < self.sidecar_position:
            raise CorruptFileError(self.path, f"part {kind.name.lower()} lies before the sidecar")
        return read_part(self._read_tail, self.footer, kind, self.path)

    def _view(self, entry: PartEntry) -> np.ndarray:
        begin = entry.position - self.sidecar_position
        if begin < 0:
            raise CorruptFileError(self.path, f"part {entry.kind.name.lower()} lies too early")
        return self._sidecar[begin : begin + entry.length]

    def _read_tail(self, position: int, length: int) -> bytes:
        begin = position - self.sidecar_position
        if begin < 0:
            raise CorruptFileError(
                self.path, f"{length} bytes at {position} are before the sidecar"
            )
        return self._sidecar[begin : begin + length].tobytes()
