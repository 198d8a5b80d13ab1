"""Reading the batches of an unsealed file: from its bytes to statistics, dictionaries and chains.

Batches are a file's own write-ahead log: everything mutable is derived from them, here and only here.
Bytes come through pread in pieces, never through a mapping: another process may cut the file. The
scan ends at the first batch that does not verify; what lies behind it was never acknowledged.

Depends on layout, dictionary, source, kernels.batch_scan, batch_record and batch_statistics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.dictionary import Dictionaries
from tierdex.indexfile import layout
from tierdex.indexfile.chained.batch_statistics import BatchStatistics
from tierdex.indexfile.chained.kernels import batch_scan as k
from tierdex.indexfile.chained.kernels import batch_statistics as statistics_k
from tierdex.indexfile.chained.kernels.batch_record import batch_length
from tierdex.indexfile.source import decode_source

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.indexfile.header import FileHeader
    from tierdex.indexfile.source import Source

    Holds = Callable[[Source], bool]

_PIECE_BYTES = 4 << 20


class ScannedFile(NamedTuple):
    """An unsealed file as a scan reads it; errors name `path`."""

    read_at: Callable[[int, int], bytes]
    header: FileHeader
    path: object


class RowsInMemory(NamedTuple):
    """Rows of a file that lie in memory: `data` begins with the row `first`."""

    data: np.ndarray
    first: int


def scan_file(
    file: ScannedFile,
    statistics: BatchStatistics,
    dictionaries: Dictionaries | None,
    *,
    slots: np.ndarray | None,
    row_limit: int | None = None,
    holds: Holds | None = None,
) -> None:
    """Take every batch from the statistics' next row on into the statistics, the dictionaries and `slots`.

    `slots` is the u4 array whose chains are built, None for no chains; `dictionaries` None: they are
    known already. Raises CorruptFileError when a batch that verifies breaks a rule all the same, and
    NotHeldError for the first whose source position `holds` denies.
    """
    read_at, header, path = file
    item_bytes = header.schema.item_bytes
    begin = layout.rows_position(header.slot_count)
    limit = header.row_capacity if row_limit is None else row_limit
    least_rows = piece_rows = _PIECE_BYTES // item_bytes
    while True:
        first = statistics.next_row
        wanted = min(limit - first + 1, piece_rows) * item_bytes
        data = np.frombuffer(read_at(begin + (first - 1) * item_bytes, wanted), np.uint8)
        last = first + len(data) // item_bytes - 1
        # Row 1 would lie here if the piece were the whole region.
        rows = data.ctypes.data - (first - 1) * item_bytes
        statistics.bind(slots=slots.ctypes.data if slots is not None else 0, rows=rows)
        scan_rows(
            statistics, last, path, dictionaries, RowsInMemory(data, first),
            with_chains=slots is not None, holds=holds,
        )  # fmt: skip
        if last >= limit or len(data) < wanted:
            return  # there is no more to read
        if statistics.next_row > last:
            piece_rows = least_rows
            continue
        # What comes next is the end, or a batch of which the piece holds only a part.
        row = statistics.next_row
        length = 0
        if (last - row + 1) * item_bytes >= layout.BATCH_RECORD_BYTES:
            length = batch_length(statistics.array, rows + (row - 1) * item_bytes, limit - row + 1)
        elif row > first:
            length = least_rows  # not even its record: read on from there
        if length <= last - row + 1:
            return
        piece_rows = max(least_rows, int(length))


class NotHeldError(Exception):
    """A log has not got the messages of a batch; `row` is the last one before it."""

    def __init__(self, row: int) -> None:
        super().__init__(f"the batch behind row {row} is of messages that are gone")
        self.row = row


def delayed_rows(file: ScannedFile, holds: Holds) -> int:
    """Return how many rows are of messages that a log has: those before the first batch it denies."""
    statistics = BatchStatistics(file.header, with_ends=False)
    dictionaries = Dictionaries(file.header.schema.dictionary_names)
    try:
        scan_file(file, statistics, dictionaries, slots=None, holds=holds)
    except NotHeldError as denied:
        return denied.row
    return statistics.next_row - 1


def scan_anew(
    file: ScannedFile, slots: np.ndarray, row_limit: int | None = None
) -> tuple[BatchStatistics, Dictionaries]:
    """Return the statistics and dictionaries of a file's batches, up to `row_limit`; see `scan_file`."""
    header = file.header
    statistics, dictionaries = BatchStatistics(header), Dictionaries(header.schema.dictionary_names)
    scan_file(file, statistics, dictionaries, slots=slots, row_limit=row_limit)
    return statistics, dictionaries


def recount_ends(statistics: BatchStatistics, header: FileHeader, path: object) -> None:
    """Take the end offsets anew from the batches that `statistics` counts and is bound to.

    An append that was interrupted has left those of items that are in no batch.
    """
    again = BatchStatistics(header)
    again.bind(slots=0, rows=int(statistics.array[statistics_k.B_ROWS]))
    scan_rows(again, statistics.next_row - 1, path, None, RowsInMemory(np.empty(0, np.uint8), 1))
    statistics.take_ends(again)


def scan_rows(
    statistics: BatchStatistics,
    last_row: int,
    path: object,
    dictionaries: Dictionaries | None,
    rows: RowsInMemory,
    *,
    with_chains: bool = False,
    holds: Holds | None = None,
) -> None:
    """Scan rows up to `last_row` that lie in memory."""
    data, first_row = rows
    purpose = k.FOR_CHAINS if with_chains else k.FOR_STATISTICS
    item_bytes = int(statistics.array[statistics_k.B_ITEM_BYTES])
    while True:
        answer = k.scan_batches(statistics.array, last_row, purpose)
        if answer == k.SCAN_BAD_LINK:
            raise CorruptFileError(
                path, f"an item before row {statistics.next_row} has a wrong link"
            )
        if answer == k.SCAN_GROW:
            statistics.grow()
            continue
        if answer == k.SCAN_DICTIONARY:
            length = int(statistics.array[statistics_k.B_DICTIONARY_BYTES])
            position = (
                int(statistics.array[statistics_k.B_DICTIONARY_ROW]) - first_row
            ) * item_bytes
            statistics.array[statistics_k.B_DICTIONARY_BYTES] = 0
            if dictionaries is not None:
                loaded = data[position : position + length].tobytes()
                try:
                    if statistics.array[statistics_k.B_HAS_SOURCE]:
                        source = decode_source(loaded[: layout.SOURCE_BYTES])
                        loaded = loaded[layout.SOURCE_BYTES :]
                        if holds is not None and not holds(source):
                            raise NotHeldError(_row_before(statistics))
                        statistics.note_source(source)
                    dictionaries.load(loaded)
                except ValueError as error:
                    raise CorruptFileError(path, str(error)) from error
        if dictionaries is not None and statistics.max_topic >= len(dictionaries.strings("topic")):
            raise CorruptFileError(path, f"topic {statistics.max_topic} is in no dictionary")
        if answer == k.SCAN_END:
            return


def _row_before(statistics: BatchStatistics) -> int:
    """Return the last row before the batch that was scanned last."""
    array = statistics.array
    record = layout.batch_rows(int(array[statistics_k.B_ITEM_BYTES]), 0, 0)
    return int(array[statistics_k.B_DICTIONARY_ROW]) - record - 1
