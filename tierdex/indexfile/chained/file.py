"""The chained form of an index file: written by head insertion, looked up while it is written.

    create, recycle -> append ... append -> sync -> seal  one writer
    recover                                              the writer's next process
    open_sealed, open_for_reading                        immutable file; beside another process' writer

Here it is made, opened, recovered, read again and closed; `ChainedReader` answers queries,
`ChainedWriter` appends, syncs and seals.

Sizes are bytes, times int64 ms. This module knows neither states nor folders: the caller names, renames
and removes files, and syncs their folder. Depends on fileparts, batch_scan, check, reader,
seal, batch_statistics, view, writer, header, layout and lookup.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.dictionary import Dictionaries
from tierdex.fileparts.layout import FOOTER_BYTES
from tierdex.indexfile import layout
from tierdex.indexfile.chained.batch_scan import ScannedFile, delayed_rows, scan_anew, scan_file
from tierdex.indexfile.chained.batch_statistics import BatchStatistics
from tierdex.indexfile.chained.check import check_chained
from tierdex.indexfile.chained.reader import Published
from tierdex.indexfile.chained.seal import read_tail
from tierdex.indexfile.chained.view import ChainedView
from tierdex.indexfile.chained.writer import ChainedWriter, FileFullError, MappedFile
from tierdex.indexfile.header import FileHeader, check_counts, read_chained_header
from tierdex.indexfile.layout import Form
from tierdex.indexfile.lookup import Lookup

if TYPE_CHECKING:
    from pathlib import Path

    from tierdex.filesystem import FileSystem, OpenFile
    from tierdex.indexfile.chained.batch_scan import Holds
    from tierdex.indexfile.schema import Schema

_PIECE_BYTES = 1 << 20


def write_recovered(file: OpenFile, header: FileHeader, slots: np.ndarray, end: int) -> None:
    """Write the header and the rows up to `end` again, and between them new `slots`. Raises OSError."""
    file.reserve(0, end)  # a copied file may have holes where its writer had reserved blocks
    _write_again(file, 0, layout.HEADER_BYTES)
    file.write_at(layout.HEADER_BYTES, slots.view(np.uint8).data)
    _write_again(file, layout.rows_position(header.slot_count), end)


def cut_behind(file: OpenFile, header: FileHeader, end: int) -> None:
    """Zero the record behind `end`, durably: a batch that was cut off verifies, and would be found again.

    Durable before anything is appended: the log whose messages it names gives their offsets anew.
    """
    length = min(layout.BATCH_RECORD_BYTES, header.full_length - end)
    if length and file.read_at(end, length).strip(b"\0"):
        file.reserve(end, length)
        file.write_at(end, bytes(length))
        file.sync()


def _write_again(file: OpenFile, begin: int, end: int) -> None:
    for position in range(begin, end, _PIECE_BYTES):
        file.write_at(position, file.read_at(position, min(end - position, _PIECE_BYTES)))


__all__ = ["ChainedFile", "FileFullError", "Lookup", "Published"]

_ZEROED_BYTES = 1 << 20  # at once
_SPARE_ROWS = 4096  # rows beyond two an item: the longest dictionary string always fits a new file


class ChainedFile(ChainedWriter):
    """One index file in chained form.

    Owns its descriptor and mapping; `close` gives them back. Invariants (`check` verifies them):
      1. the rows up to `published` are whole batches that verify, numbered 0, 1, 2 ...;
      2. every published item is in the chain of its slot, exactly once, newest first;
      3. counts, time bounds, end offsets and dictionaries are what the batches say;
      4. every stored row lies in reserved disk blocks.

    Thread safety: one thread at a time appends, syncs, seals (the caller locks; a sync may run beside
    appends); any number of threads read without locks.
    """

    # -- construction ----------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        filesystem: FileSystem,
        path: Path,
        *,
        uuid: bytes,
        schema: Schema,
        slot_count: int,
        item_capacity: int,
        created_ms: int,
    ) -> ChainedFile:
        """Make a new, empty file; header and reserved slots are durable on return.

        Raises OSError (FileExistsError, disk full ...), and then leaves no file.
        """
        header = _new_header(uuid, schema, slot_count, item_capacity, created_ms)
        check_counts(header, path)
        file = filesystem.open(path, writable=True, create=True, exclusive=True)
        try:
            file.ask_for_overwriting()  # while it is empty
            _begin(file, header)
            return cls._over(path, header, file, writable=True)
        except OSError:
            file.close()
            with suppress(OSError):  # the first error is the one to tell
                filesystem.unlink(path)
            raise

    @classmethod
    def recycle(
        cls,
        filesystem: FileSystem,
        path: Path,
        *,
        uuid: bytes,
        schema: Schema,
        slot_count: int,
        item_capacity: int,
        created_ms: int,
    ) -> ChainedFile:
        """Make a new, empty file of one that is no longer needed, whose blocks it takes over.

        The caller gave it, durably, a name that no process opens and that recovery removes. Its old
        rows stay where they are: a scan of the new file refuses them, since each batch's checksum has
        the file's uuid. Raises BlockingIOError while a process has the file (unlink it then), OSError.
        """
        header = _new_header(uuid, schema, slot_count, item_capacity, created_ms)
        check_counts(header, path)
        file = filesystem.open(path, writable=True)
        try:
            file.prove_alone()
            # Zeros where an unsealed file ends: a footer of the old life there would make it look sealed.
            file.truncate(min(file.size(), header.full_length - FOOTER_BYTES))
            _begin(file, header)
            # Not synced: every opening of an unsealed file builds its slots anew.
            _zero(file, layout.HEADER_BYTES, layout.rows_position(slot_count))
            return cls._over(path, header, file, writable=True)
        except BaseException:
            file.close()
            raise

    @classmethod
    def _over(
        cls,
        path: Path,
        header: FileHeader,
        file: OpenFile,
        *,
        writable: bool,
        statistics: BatchStatistics | None = None,
        dictionaries: Dictionaries | None = None,
        slots: np.ndarray | None = None,
    ) -> ChainedFile:
        """Map an unsealed file and return it; without statistics it is an empty one."""
        mapping = file.map(header.full_length, writable=writable)
        view = ChainedView(header, path, mapping.array.view(np.ndarray), slots=slots)
        result = cls(
            path,
            header,
            MappedFile(file, mapping, writable),
            statistics=statistics or BatchStatistics(header),
            dictionaries=dictionaries or Dictionaries(header.schema.dictionary_names),
            view=view,
        )
        result._bind()
        return result

    @classmethod
    def recover(cls, filesystem: FileSystem, path: Path, holds: Holds | None = None) -> ChainedFile:
        """Open the unsealed file of a process that is gone, ready for appends.

        Trusts the header and the batches that verify, nothing else: chains are built anew, and all
        is written again, since an earlier sync may have failed. A file whose seal was finished
        before the crash is returned sealed. Beside a log, the file is cut before the first batch whose
        source position the log denies (`holds`). Raises CorruptFileError, UnsupportedFormatError, OSError.
        """
        file = filesystem.open(path, writable=True)
        try:
            header = read_chained_header(file.read_at, path)
            if file.size() != header.full_length:
                return cls._sealed(path, header, file)
            slots = np.zeros(header.slot_count, np.uint32)
            limit = (
                None
                if holds is None
                else delayed_rows(ScannedFile(file.read_at, header, path), holds)
            )
            statistics, dictionaries = scan_anew(
                ScannedFile(file.read_at, header, path), slots, limit
            )
            used = header.row_end(statistics.next_row - 1)
            write_recovered(file, header, slots, used)
            if limit is not None:
                cut_behind(file, header, used)
            result = cls._over(
                path, header, file, writable=True, statistics=statistics, dictionaries=dictionaries
            )
            result._blocks.end = used
            return result
        except BaseException:
            file.close()
            raise

    @classmethod
    def open_sealed(cls, filesystem: FileSystem, path: Path) -> ChainedFile:
        """Open a sealed file by its footer; its blocks are verified when first used."""
        file = filesystem.open(path)
        try:
            return cls._sealed(
                path,
                read_chained_header(file.read_at, path),
                file,
            )
        except BaseException:
            file.close()
            raise

    @classmethod
    def open_for_reading(
        cls, filesystem: FileSystem, path: Path, holds: Holds | None = None
    ) -> ChainedFile:
        """Open a file beside its live writer, writing nothing; `refresh` sees later batches.

        Verifies all batches and builds private slots. A sealed file is opened as one. `holds` as in
        `recover`.
        """
        file = filesystem.open(path)
        try:
            header = read_chained_header(file.read_at, path)
            if file.size() != header.full_length:
                return cls._sealed(path, header, file)
            slots = np.zeros(header.slot_count, np.uint32)
            limit = (
                None
                if holds is None
                else delayed_rows(ScannedFile(file.read_at, header, path), holds)
            )
            statistics, names = scan_anew(ScannedFile(file.read_at, header, path), slots, limit)
            return cls._over(
                path,
                header,
                file,
                writable=False,
                statistics=statistics,
                dictionaries=names,
                slots=slots,
            )
        except BaseException:
            file.close()
            raise

    @classmethod
    def _sealed(cls, path: Path, header: FileHeader, file: OpenFile) -> ChainedFile:
        size = file.size()
        if size < layout.rows_position(header.slot_count):
            raise CorruptFileError(path, f"cut to {size} bytes")
        parts = read_tail(file.read_at, size, header, path)
        mapping = file.map(size, writable=False)
        data = mapping.array.view(np.ndarray)
        statistics = BatchStatistics(header)
        statistics.restore(parts.statistics)
        result = cls(
            path,
            header,
            MappedFile(file, mapping, writable=False),
            statistics=statistics,
            dictionaries=parts.dictionaries,
            view=ChainedView(header, path, data, blocks=parts.blocks),
        )
        result.sealed = True
        result.synced = parts.statistics.row_count
        return result

    # -- from the device, and away ---------------------------------------------------------------------

    def reread(self) -> int:
        """Read a suspect file again from the device; return how many published rows are proven.

        Rows that are not are no longer published. Afterwards the file may be walked or sealed.
        """
        published = self.published
        self._drop_mapping()
        self._file.forget_cached()
        slots = np.zeros(self.slot_count, np.uint32)
        statistics, dictionaries = scan_anew(
            ScannedFile(self._file.read_at, self.header, self.path), slots, published
        )
        mapping = self._file.map(self.header.full_length, writable=self._writable)
        self._mapping = mapping
        view = ChainedView(self.header, self.path, mapping.array.view(np.ndarray), slots=slots)
        with self._statistics_lock:
            self._statistics, self.dictionaries = statistics, dictionaries
            self._look_at(view)
            self._bind()
        self._proven = True
        self._publish()
        return self.published

    def refresh(self) -> int:
        """Take batches that a live writer has made since; return the new `published`."""
        if self._writable or self.sealed:
            return self.published
        slots = self._view.slots
        scan_file(
            ScannedFile(self._file.read_at, self.header, self.path),
            self._statistics,
            self.dictionaries,
            slots=slots,
        )
        self._bind()
        self._publish()
        return self.published

    def close(self) -> None:
        """Give descriptor and mapping back. Rows that were handed out are copies and stay."""
        if not self._closed:
            self._closed = True
            self._blocks.stop()
            self._drop_mapping()
            self._file.close()

    def check(self) -> list[str]:
        """Return every broken invariant, in words; empty means the file is sound."""
        return check_chained(self, self._view, self._statistics, self._file)

    # -- private -----------------------------------------------------------------------------------

    def _drop_mapping(self) -> None:
        """Release the mapped pages; they are unmapped after the last reader."""
        self._look_at(None)
        if self._mapping is not None:
            self._mapping.close()
            self._mapping = None


def _new_header(
    uuid: bytes, schema: Schema, slot_count: int, item_capacity: int, created_ms: int
) -> FileHeader:
    return FileHeader(
        form=Form.CHAINED,
        uuid=uuid,
        schema=schema,
        slot_count=slot_count,
        item_capacity=item_capacity,
        row_capacity=min(2 * item_capacity + _SPARE_ROWS, layout.ROW_COUNT_MAX),
        created_ms=created_ms,
    )


def _begin(file: OpenFile, header: FileHeader) -> None:
    """Give an open file its length, blocks for its slots, and its header; durable on return."""
    # The length first: a header whose file is shorter than it says would look cut.
    file.truncate(header.full_length)
    file.reserve(0, layout.rows_position(header.slot_count))
    file.write_at(0, header.encode())
    file.sync()


def _zero(file: OpenFile, begin: int, end: int) -> None:
    for position in range(begin, end, _ZEROED_BYTES):
        file.write_at(position, bytes(min(_ZEROED_BYTES, end - position)))
