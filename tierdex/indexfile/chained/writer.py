"""Writing a chained file: room for batches, appends, syncs, and the seal that makes it immutable.

The order of an append: blocks reserved, items and links written, slots moved (batch_append.write);
then the batch's CRC, which makes it real; then `published`, which makes it visible. Durable is what a
`sync` that began afterwards has returned for.

The writing half of `ChainedFile`: one thread at a time, beside any number of readers. Sizes are bytes.
Depends on batch_append, batch_scan, predecessor, reserved_blocks, filesystem, fileparts, proof, chain_lookup,
reader, seal and layout.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tierdex.errors import ReadOnlyError, TierdexError
from tierdex.fileparts.memory import address
from tierdex.fileparts.predecessor import Predecessor, decode_predecessor, encode_predecessor
from tierdex.indexfile import layout
from tierdex.indexfile.chained import batch_append
from tierdex.indexfile.chained.batch_scan import recount_ends
from tierdex.indexfile.chained.kernels.chain_lookup import V_ROWS, V_SLOTS
from tierdex.indexfile.chained.proof import prove
from tierdex.indexfile.chained.reader import ChainedReader
from tierdex.indexfile.chained.reserved_blocks import ReservedBlocks
from tierdex.indexfile.chained.seal import encode_tail, rows_end

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tierdex.fileparts.dictionary import Dictionaries
    from tierdex.filesystem import FileSystem, Mapping, OpenFile
    from tierdex.indexfile.chained.batch_statistics import BatchStatistics
    from tierdex.indexfile.chained.view import ChainedView
    from tierdex.indexfile.columns import ItemColumns, ItemRows
    from tierdex.indexfile.header import FileHeader
    from tierdex.indexfile.source import Source

_COPY_BYTES = 1 << 20


class FileFullError(TierdexError):
    """The batch does not fit any more: roll. Nothing was applied."""


class MappedFile(NamedTuple):
    """An open file and its mapping; `writable` when appends may go into it."""

    file: OpenFile
    mapping: Mapping
    writable: bool


class ChainedWriter(ChainedReader):
    """The writing half of a chained file. Owns its descriptor and mapping."""

    def __init__(
        self,
        path: Path,
        header: FileHeader,
        opened: MappedFile,
        *,
        statistics: BatchStatistics,
        dictionaries: Dictionaries,
        view: ChainedView,
    ) -> None:
        """Take over an open file; its rows are those that `statistics` counts."""
        super().__init__(path, header, statistics, dictionaries, view)
        self.suspect = False  # a sync failed: what is on the device is not known
        self.sealed = False
        self._proven = False  # a suspect file was read again since its last failure
        self.synced = 0  # rows that are durable
        file = self._file = opened.file
        self._mapping: Mapping | None = opened.mapping
        self._writable = opened.writable
        self._predecessor_synced = False
        self._blocks = ReservedBlocks(file, self._populate, header)

    # -- order ---------------------------------------------------------------------------------------

    @property
    def end_of_batches(self) -> Predecessor:
        """Where this file's batches end now, for the file that takes over from it."""
        return Predecessor(self.uuid, self._statistics.batches, self._statistics.crc)

    @property
    def predecessor(self) -> Predecessor | None:
        """The file that was written before this one, as noted by `follow`; None when nothing was."""
        header = self._view.data[: layout.HEADER_BYTES].tobytes()
        return decode_predecessor(header, self.uuid, self.path)

    def follow(self, predecessor: Predecessor) -> None:
        """Note which file this one takes over from; before the first append. Durable with `sync`."""
        data = encode_predecessor(predecessor, self.uuid)
        view = self._refuse_unless_writable()
        view.data[layout.PREDECESSOR_POSITION : layout.HEADER_BYTES] = np.frombuffer(data, np.uint8)
        self._write_back(layout.PREDECESSOR_POSITION, layout.HEADER_BYTES)

    # -- room ----------------------------------------------------------------------------------------

    @property
    def bytes_used(self) -> int:
        """Disk blocks that the file holds or has reserved, in bytes."""
        return self._file.size() if self.sealed else max(self._blocks.end, self._used_bytes())

    @property
    def is_full(self) -> bool:
        return self.room() == 0

    def room(self) -> int:
        """Return how many items one more batch may hold, when it brings no new strings."""
        if not self._writable or self.suspect or self.sealed:
            return 0
        record = layout.batch_rows(self.schema.item_bytes, 0, 0)
        rows_left = self.header.row_capacity - self._statistics.next_row + 1 - record
        return max(0, min(self.header.item_capacity - self._statistics.items, rows_left))

    # -- writing -----------------------------------------------------------------------------------

    @property
    def source(self) -> Source | None:
        """The last source position of the batches, None when none has one."""
        return self._statistics.source

    @property
    def covers(self) -> Source | None:
        """The position that the last entries come from, None where no log has them."""
        return self._statistics.covers or self._statistics.source

    def append(self, batch: Sequence[ItemColumns | ItemRows], source: Source | None = None) -> int:
        """Write all items as one atomic batch and return the new `published`.

        Items lie in the order of `batch`; `source` says up to where a log has their messages. Raises
        InvalidRequestError, FileFullError (roll) and OSError (disk full ...); then nothing was applied,
        and the file stays usable.
        """
        _mapped = self._refuse_unless_writable()  # held: kernels write to its memory by address
        try:
            sources = batch_append.prepare(batch, self.schema, self.dictionaries)
            count = sum(source.size for source in sources)
            if not count:
                self.dictionaries.forget()
                return self.published
            staged = b"" if source is None else source.encode()
            if self.dictionaries.has_staged:
                staged += self.dictionaries.staged()
            self._make_room(count, len(staged))
        except BaseException:
            self.dictionaries.forget()
            raise
        before = self._statistics.array.copy()
        begin = self._used_bytes()
        try:
            with self._statistics_lock:
                batch_append.write(
                    self._statistics, sources, staged, self.header.row_capacity, source
                )
            # With the record behind it, which `write` has zeroed; all of it has blocks.
            self._write_back(begin, self._used_bytes() + layout.BATCH_RECORD_BYTES)
            # Within the attempt: strings that were written and count as staged would be written again.
            self.dictionaries.keep()
        except BaseException:
            # An interrupt, exhausted memory, or a full disk that copies on write. Readers may be among
            # the rows of the batch, so none may be written again: the file is given up for writing.
            self.suspect = True
            with self._statistics_lock:
                batch_append.undo(self._statistics, before, sources, staged)
                self.dictionaries.forget()
                recount_ends(self._statistics, self.header, self.path)
            raise
        self._publish()
        return self.published

    def statistics_address(self) -> int:
        """Return where the statistics lies, which the kernels of single puts advance."""
        return address(self._statistics.array)

    def room_for_singles(self, most: int) -> tuple[int, int]:
        """Return up to how many items, `most` more at best, and up to which row, kernels may append.

        Each message is a batch that brings no new string; it and the record after it find blocks.
        Both are 0 when the file takes none.
        """
        if not self._writable or self.suspect or self.sealed or not self._stores_are_shared:
            return 0, 0
        reserved = (self._blocks.end - self._rows_begin) // self.schema.item_bytes
        items = min(self.item_capacity, self._statistics.items + most)
        return items, min(self.header.row_capacity, reserved)

    def _make_room(self, items: int, staged_bytes: int) -> None:
        """Reserve disk blocks for a batch and the record after it. Raises FileFullError, OSError."""
        item_bytes = self.schema.item_bytes
        rows = layout.batch_rows(item_bytes, staged_bytes, items)
        last = self._statistics.next_row + rows - 1
        if self._statistics.items + items > self.item_capacity or last > self.header.row_capacity:
            raise FileFullError(f"{self.path}: {items} more items do not fit")
        record = layout.batch_rows(item_bytes, 0, 0)
        self._blocks.expect_items(self._statistics.items + items)
        self._blocks.make_room(self.header.row_end(min(last + record, self.header.row_capacity)))

    @property
    def is_short_of_room(self) -> bool:
        """Return whether appends will soon wait for disk blocks, unless `reserve_ahead` is called."""
        return self._blocks.are_short(self._used_bytes())

    def reserve_ahead(self, expected_bytes: int = 0) -> None:
        """Reserve blocks beside the appends; see `ReservedBlocks`. Raises OSError (disk full ...)."""
        if not self._writable or self.suspect or self.sealed:
            return
        self._blocks.reserve_ahead(self._used_bytes, expected_bytes)

    @property
    def _stores_are_shared(self) -> bool:
        return self._mapping is not None and self._mapping.is_shared

    def _write_back(self, begin: int, end: int) -> None:
        assert self._mapping is not None
        self._mapping.write_back(begin, end - begin)

    def _populate(self, position: int, length: int) -> None:
        if (mapping := self._mapping) is not None:  # else closed beside this call
            mapping.populate(position, length)

    def sync(self) -> int:
        """Make everything published now durable, and return the row count that is.

        Raises OSError; the file is then `suspect`: it takes no more appends, and what it holds has
        to be read again from the device (`reread`) before it is rewritten.
        """
        if self.sealed:
            return self.published
        self._refuse_unless_writable()
        published = self.published
        if published <= self.synced:
            return self.synced
        begin = self.header.row_end(self.synced)
        assert self._mapping is not None
        try:
            if not self._predecessor_synced:  # before any batch of this file counts as durable
                self._mapping.sync(0, layout.HEADER_BYTES)
                self._predecessor_synced = True
            # With the zeroed record behind: on a page of its own it may else be lost, and what a crash had
            # cut off there goes on where the same bytes were written again.
            end = self.header.row_end(published) + layout.BATCH_RECORD_BYTES
            self._mapping.sync(begin, min(end, self.header.full_length) - begin)
        except OSError:
            self.suspect, self._proven = True, False
            raise
        self.synced = published
        return published

    def seal(self) -> None:
        """Make the file immutable: parts and footer, durable; then cut to its length.

        Raises OSError: after a full disk the file is as it was; after a failed sync it is suspect,
        and has to be read again before the next try. After a crash within, recovery finds either an
        unsealed file with all its batches, or a sealed one.
        """
        if self.sealed:
            return
        assert self._writable, "opened for reading"
        if self.suspect and not self._proven:
            raise OSError(f"{self.path} has to be read again: an earlier write or sync failed")
        self._blocks.stop()
        data = self._view.data
        end = rows_end(self.header, self._statistics.next_row - 1)
        used = self._used_bytes()
        if end > used:
            self._file.reserve(used, end - used)
            data[used:end] = 0
        if self._view.slots is not None:  # after a re-read the file's own slots are not trusted
            slots = self._view.slots
            data[layout.HEADER_BYTES :][: slots.nbytes] = slots.view(np.uint8)
        self._write_back(0, self._rows_begin)
        self._write_back(used, end)
        tail = encode_tail(self.header, data, self._statistics, self.dictionaries)
        self._file.reserve(end, len(tail))
        # Durable before: batches, slots, parts, footer. Only then is the length the sealed one.
        self._file.write_at(end, tail)
        try:
            self._file.sync()
            self._file.truncate(end + len(tail))
            self._file.sync()
        except OSError:
            self.suspect, self._proven = True, False
            with suppress(OSError):  # the first error is the one to tell
                self._file.truncate(self.header.full_length)
            raise
        self.synced = self.published
        self.suspect = False
        self._writable = False
        self.sealed = True

    def copy_sealed(self, filesystem: FileSystem, path: Path) -> None:
        """Write what is published as a sealed file at `path`, durable on return.

        For a suspect file: what was written is still in memory, though the device may have lost it,
        and only bytes written anew can be synced with a meaning. Raises CorruptFileError when memory
        no longer holds it (then `reread` tells what is left), OSError.
        """
        view = self._view
        prove(self.header, self.path, view, self.published)
        used, end = self._used_bytes(), rows_end(self.header, self._statistics.next_row - 1)
        file = filesystem.open(path, writable=True, create=True, exclusive=True)
        try:
            for position in range(0, used, _COPY_BYTES):
                piece = view.data[position : min(used, position + _COPY_BYTES)]
                file.write_at(position, piece.data)
            if view.slots is not None:  # after a re-read the file's own slots are not trusted
                file.write_at(layout.HEADER_BYTES, view.slots.view(np.uint8).data)
            if end > used:
                file.write_at(used, bytes(end - used))
            mapping = file.map(end, writable=False)
            data = mapping.array.view(np.ndarray)
            file.write_at(end, encode_tail(self.header, data, self._statistics, self.dictionaries))
            file.sync()
        finally:
            file.close()

    # -- private -----------------------------------------------------------------------------------

    @property
    def _rows_begin(self) -> int:
        return layout.rows_position(self.header.slot_count)

    def _used_bytes(self) -> int:
        return self.header.row_end(self._statistics.next_row - 1)

    def _bind(self) -> None:
        array = self._view.array
        self._statistics.bind(
            slots=int(array[V_SLOTS]), rows=int(array[V_ROWS]), published=address(self._seen)
        )

    def _refuse_unless_writable(self) -> ChainedView:
        """Return the memory to write; a reference to it keeps the file mapped."""
        view = self._view
        if not self._writable:
            raise ReadOnlyError(f"{self.path} is open for reading only")
        if self.suspect:
            raise OSError(f"{self.path} takes no more: an earlier write or sync failed")
        return view
