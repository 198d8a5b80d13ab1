"""Reads near the end of a queue, and of the messages at an index's entries: one kernel call each.

It takes messages of the only journal that grows, of a queue that begins there, or of which `reads` knows
where it begins. All else it leaves to `reads`. The kernel is one step for every Python thread; the mapping
is held until it is done.

Depends on fileparts, index_service.answer, logfile and the rest of log_service.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

from tierdex.fileparts.memory import address, thread_buffer
from tierdex.index_service.answer import Entry
from tierdex.log_service.answer import Message, ReadAnswer
from tierdex.log_service.kernels import tail_read as k
from tierdex.logfile.messages import MessageBatch

if TYPE_CHECKING:
    from tierdex.lifecycle.table.file_table import FileList, FileTable
    from tierdex.log_service.files.log_file import LiveFile
    from tierdex.log_service.levels import Level
    from tierdex.log_service.read.reads import LogReads
    from tierdex.logfile.journal.tables import Snapshot

_MEMORY_BYTES = 64 << 10


class _Growing(NamedTuple):
    """The only journal that grows in a list of files, and the addresses of its tables' words.

    `known` is what a search for messages knows of it, see kernels.found_messages.
    """

    file_list: FileList
    file: LiveFile
    is_only_file: bool
    snapshot: Snapshot
    words: int
    stage: int
    known: array[int]
    place: int  # of `known`


class TailReads:
    """Answers reads of a few messages, when it can. Safe to share between threads."""

    def __init__(self, table: FileTable, reads: LogReads) -> None:
        self._table = table
        self._reads = reads
        self._kernel: Any = None  # loads with the first read
        self._find: Any = None  # with the first search
        self._growing: _Growing | None = None

    def read(
        self, topic: str, queue_id: int, offset: int, max_count: int, max_bytes: int, level: Level
    ) -> ReadAnswer | None:  # fmt: skip
        """Return messages from `offset` on, None when the general path has to see to it."""
        growing = self._look()
        if growing is None:
            return None
        mapping = growing.file.journal.mapped_or_none
        if mapping is None:  # it was closed meanwhile
            return None
        memory, place = thread_buffer(_MEMORY_BYTES)
        count, bodies, extras, first, end = self._kernel(
            growing.words, growing.stage, topic, queue_id, offset, max_count, max_bytes,
            growing.file.limit(level), place, _MEMORY_BYTES,
        )  # fmt: skip
        del mapping  # alive until here: the kernel was given addresses
        if count < 0:
            return None
        begin = first
        if first and not growing.is_only_file:
            known = self._reads.begin_before(growing.file_list, topic, queue_id, first)
            if known is None:
                return None
            begin = known
        length = k.PLACES_BYTES + 8 * (3 * count + 2) + count + bodies + extras
        batch = MessageBatch(offset, count, bodies, extras, memory[k.PLACES_BYTES : length])
        batch = self._reads.without_forgotten(topic.encode(), queue_id, batch)
        return ReadAnswer(
            topic, queue_id, offset, begin, end, batch, generation=growing.file.generation
        )

    def find(
        self, entries: list[Entry], key: str | None, message_id: str | None, level: Level
    ) -> tuple[list[Message], int] | None:
        """Return the messages at entries that have the key, or the message ID, and how many bytes were read.

        None when the general path has to see to one of them.
        """
        growing = self._look()
        if growing is None or self._reads.has_forgotten:
            return None
        mapping = growing.file.journal.mapped_or_none
        if mapping is None:
            return None
        if self._find is None:
            from tierdex.log_service.kernels import found_messages

            self._find = found_messages.load()
        found: list[Message] = []
        content = self._find(
            growing.place, key, message_id, entries, len(entries), growing.file.limit(level), found
        )
        del mapping
        return None if content < 0 else (found, content)

    def let_go(self) -> None:
        """Keep nothing of the journal that was: its tables are large."""
        self._growing = None

    def _look(self) -> _Growing | None:
        """Return the journal that grows, with its tables as they are now."""
        growing, file_list = self._growing, self._table.version.files
        if (
            growing is not None
            and growing.file_list is file_list
            and growing.snapshot is growing.file.journal.tables.snapshot
        ):
            return growing
        local = file_list.local()
        live = [handle.reader for handle in local if handle.reader.is_growing]
        if len(live) != 1:
            return None
        if self._kernel is None:
            self._kernel = k.load()
        file: LiveFile = live[0]
        snapshot = file.journal.tables.snapshot
        words, stage = address(snapshot.words), file.journal.stage_address
        known = array(
            "q", (words, stage, id(Entry), id(Message), id(None), id(False), 0, 0)
        )  # the last is room for the address of a row
        place = known.buffer_info()[0]
        known[-2] = place + 8 * (len(known) - 1)
        self._growing = growing = _Growing(
            file_list, file, len(file_list) == 1, snapshot, words, stage, known, place
        )
        return growing
