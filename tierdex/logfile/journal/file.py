"""The journal of a message log: messages in order of arrival, appended in checksummed batches.

    create, recycle -> append ... append -> sync -> seal     one writer
    recover_journal                                          the writer's next process
    open_for_reading, refresh                                beside another process' writer
    SealedJournal.open                                       immutable

Here it is made, recovered and closed; `JournalReader` reads, `JournalWriter` appends, syncs and seals.

Sizes are bytes, times int64 ms. Knows neither states nor folders: the caller names, renames and removes
files, and syncs their folder. Depends on filesystem, fileparts, layout, check, header, scan, sealed,
tables and writer.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from tierdex.errors import CorruptFileError
from tierdex.fileparts.footer import read_footer
from tierdex.fileparts.layout import HEADER_BYTES
from tierdex.fileparts.predecessor import Predecessor, decode_predecessor
from tierdex.logfile.header import LogHeader, check_sizes, decode_log_header
from tierdex.logfile.journal.check import check_journal
from tierdex.logfile.journal.scan import BatchScan
from tierdex.logfile.journal.sealed import SealedJournal
from tierdex.logfile.journal.tables import Tables
from tierdex.logfile.journal.writer import (
    STAGE_BYTES,
    ClosedStage,
    JournalFullError,
    JournalWriter,
    StageFullError,
)
from tierdex.logfile.layout import Form

if TYPE_CHECKING:
    from pathlib import Path

    from tierdex.filesystem import FileSystem, OpenFile

__all__ = [
    "ClosedStage", "Journal", "JournalFullError", "SealedJournal", "StageFullError", "recover_journal",
]  # fmt: skip

_COPY_BYTES = 1 << 20


class Journal(JournalWriter):
    """One unsealed journal.

    Owns its descriptor, mapping and stages; `close` gives them back. Invariants (`check` verifies them):
      1. the bytes up to `published` are whole batches that verify, numbered 0, 1, 2 ...;
      2. the n-th row of a queue in the file is the n-th of its slots, and its offset first_offset + n;
      3. what lies behind `synced` may be lost by a power cut, and then only a prefix is left.

    Thread safety: one thread at a time defines, stages and closes stages, one writes, syncs and seals;
    any number of threads read without locks.
    """

    @classmethod
    def create(
        cls, filesystem: FileSystem, path: Path, *, uuid: bytes, capacity: int, created_ms: int,
        generation: int = 0, stage_bytes: int = STAGE_BYTES,
    ) -> Journal:  # fmt: skip
        """Make a new, empty journal; header and all its blocks are reserved and durable on return.

        Raises OSError (FileExistsError, disk full ...), and then leaves no file.
        """
        header = _make_header(uuid, capacity, created_ms, generation, path)
        file = filesystem.open(path, writable=True, create=True, exclusive=True)
        try:
            file.ask_for_overwriting()  # while it is empty
            return cls._begin(file, path, header, stage_bytes)
        except BaseException:
            file.close()
            with suppress(OSError):  # the first error is the one to tell
                filesystem.unlink(path)
            raise

    @classmethod
    def recycle(
        cls, filesystem: FileSystem, path: Path, *, uuid: bytes, capacity: int, created_ms: int,
        generation: int = 0, stage_bytes: int = STAGE_BYTES,
    ) -> Journal:  # fmt: skip
        """Make a new, empty journal of a file that is no longer needed, whose blocks it takes over.

        The old header goes first and durably, and every old batch is refused by the new uuid in its
        checksum. The caller moved the file to a name of no meaning and synced both folders: until the
        header is durable the file is the old one or none. Raises BlockingIOError while a process has the
        file open (unlink it then), OSError.
        """
        header = _make_header(uuid, capacity, created_ms, generation, path)
        file = filesystem.open(path, writable=True)
        try:
            file.lock_alone()
            return cls._begin(file, path, header, stage_bytes)
        except BaseException:
            file.close()
            raise

    @classmethod
    def _begin(cls, file: OpenFile, path: Path, header: LogHeader, stage_bytes: int) -> Journal:
        # The length first: a header whose file is shorter than it says would look cut.
        file.truncate(header.capacity)
        file.reserve(0, header.capacity)
        file.write_at(0, header.encode())
        file.sync()
        file.lock_shared()  # it is not recycled while it is open here
        mapping = file.map(header.capacity, writable=False)
        scan = BatchScan(header)
        return cls(
            path, header, file, mapping, Tables(), scan,
            writable=True, stage_bytes=stage_bytes, synced=HEADER_BYTES,
        )  # fmt: skip

    @classmethod
    def open_for_reading(cls, filesystem: FileSystem, path: Path) -> Journal:
        """Open an unsealed journal beside its live writer, writing nothing; `refresh` sees later batches.

        Verifies all batches. Raises CorruptFileError (damaged; sealed, too: open it as such), OSError.
        """
        file = filesystem.open(path)
        try:
            file.lock_shared()
            header = decode_log_header(file.read_at(0, HEADER_BYTES), path, form=Form.JOURNAL)
            if file.size() < header.capacity:
                raise CorruptFileError(path, f"{file.size()} bytes: sealed, or cut")
            tables, scan = _take_batches(file, header, path)
            try:
                mapping = file.map(header.capacity, writable=False)
            except OSError as error:  # it is sealed meanwhile, which cuts what it does not hold
                if file.size() >= header.capacity:
                    raise
                raise CorruptFileError(path, f"{file.size()} bytes: sealed, or cut") from error
            return cls(path, header, file, mapping, tables, scan, writable=False)
        except BaseException:
            file.close()
            raise

    def refresh(self) -> int:
        """Take batches that a live writer has made since; return the new `published`.

        Raises CorruptFileError, OSError. One thread.
        """
        if not self._writable and not self.sealed:
            limit = self.header.capacity
            self._scan.take_file(self._file.read_at, self.tables, self.path, limit)
            self._publish(self._scan.end.position)
        return self.published

    @property
    def predecessor(self) -> Predecessor | None:
        """The journal that was written before this one, as noted by `follow`; None: none was noted."""
        header = self._file.read_at(0, HEADER_BYTES)
        return decode_predecessor(header, self.uuid, self.path)

    def check(self) -> list[str]:
        """Return every broken invariant, in words; empty means the journal is sound."""
        return check_journal(self, self._file.read_at)

    def close(self) -> None:
        """Give descriptor and mapping back. What is staged and not written is gone. Idempotent."""
        mapping, self._mapping = self._mapping, None
        if mapping is not None:
            self._writable = False
            mapping.close()
            self._file.close()


def recover_journal(
    filesystem: FileSystem, path: Path, *, stage_bytes: int = STAGE_BYTES
) -> Journal | SealedJournal:
    """Open the journal of a process that is gone, ready for appends; sealed, when its seal was finished.

    Trusts the header and the batches that verify, nothing else. What lies behind the last length that a
    batch knows as durable is written again, since a failed sync may have left pages that look clean; then
    all is durable. Raises CorruptFileError (damaged where it was durable, or cut: then it is no torn end,
    and its batches are left as they are), UnsupportedFormatError, OSError.
    """
    file = filesystem.open(path, writable=True)
    try:
        file.lock_shared()
        header = decode_log_header(file.read_at(0, HEADER_BYTES), path, form=Form.JOURNAL)
        size = file.size()
        if size != header.capacity:
            try:
                footer = read_footer(file.read_at, size, path, uuid=header.uuid)
                sealed = SealedJournal(path, header, file, footer)
                file.sync()  # the end of its seal may not have been
                return sealed
            except CorruptFileError:
                if size < header.capacity:
                    raise
            file.truncate(header.capacity)  # a seal that was not finished had made it longer
        tables, scan = _take_batches(file, header, path)
        file.reserve(0, header.capacity)
        _write_again(file, scan, header)
        mapping = file.map(header.capacity, writable=False)
        end = scan.end.position
        return Journal(
            path, header, file, mapping, tables, scan,
            writable=True, stage_bytes=stage_bytes, synced=end,
        )  # fmt: skip
    except BaseException:
        file.close()
        raise


def _take_batches(file: OpenFile, header: LogHeader, path: Path) -> tuple[Tables, BatchScan]:
    """Return the index and the end of all batches that verify. Raises CorruptFileError for damage.

    Beside a live writer the batch at the end may be there by the time a later one is found: so the scan
    goes on from there, and it is damage only if that leads nowhere.
    """
    tables, scan = Tables(), BatchScan(header)
    damaged_at = -1
    while True:
        scan.take_file(file.read_at, tables, path, header.capacity)
        end = scan.position
        later = scan.find_durable_behind(file.read_at, header.capacity)
        if later is None:
            return tables, scan
        if end == damaged_at:
            raise CorruptFileError(
                path,
                f"is damaged: batch {scan.end.number} at byte {end} does not verify, and was durable when "
                f"the batch at byte {later} was written",
            )
        damaged_at = end


def _write_again(file: OpenFile, scan: BatchScan, header: LogHeader) -> None:
    """Write what may not be on the device, and a zeroed record behind it; durable on return."""
    end = scan.end.position
    for position in range(max(HEADER_BYTES, min(scan.synced_to, end)), end, _COPY_BYTES):
        length = min(_COPY_BYTES, end - position)
        file.write_at(position, file.read_at(position, length))
    file.write_at(0, file.read_at(0, HEADER_BYTES))  # with the predecessor's record
    behind = min(HEADER_BYTES, header.capacity - end)
    if behind:
        file.write_at(end, bytes(behind))
    file.sync()


def _make_header(
    uuid: bytes, capacity: int, created_ms: int, generation: int, path: Path
) -> LogHeader:
    header = LogHeader(
        form=Form.JOURNAL,
        uuid=uuid,
        created_ms=created_ms,
        generation=generation,
        capacity=capacity,
    )
    check_sizes(header, path)
    return header
