"""The record of a batch: its bytes, what lies around it, and the order in which it becomes real."""

from __future__ import annotations

import google_crc32c
import numpy as np
import pytest

from tests.indexfile.chained_files import UUID
from tierdex.fileparts.memory import address
from tierdex.indexfile import layout
from tierdex.indexfile.chained.batch_statistics import BatchStatistics
from tierdex.indexfile.chained.kernels.batch_record import (
    batch_length,
    begin_batch,
    finish_batch,
)
from tierdex.indexfile.chained.kernels.batch_scan import FOR_STATISTICS, SCAN_END, scan_batches
from tierdex.indexfile.chained.kernels.batch_statistics import B_CRC
from tierdex.indexfile.header import FileHeader
from tierdex.indexfile.layout import Form
from tierdex.indexfile.schema import MESSAGE_SCHEMA, Schema, SchemaField

ROWS = 12
GUARD = 64  # bytes behind the last row that no kernel may touch
SCHEMAS = {
    24: Schema(),
    32: Schema((SchemaField("place", "<i8"),)),
    40: MESSAGE_SCHEMA,
    56: Schema(tuple(SchemaField(name, "<i8") for name in "abcd")),
}


class Region:
    """Rows in memory, filled with ones, and statistics that are bound to them."""

    def __init__(self, item_bytes: int, rows: int = ROWS) -> None:
        self.item_bytes, self.row_limit = item_bytes, rows
        self.data = np.full(rows * item_bytes + GUARD, 0xFF, np.uint8)
        header = FileHeader(Form.CHAINED, UUID, SCHEMAS[item_bytes], 8, 100, rows, 0)
        self.statistics = self.fresh(header)
        self.header = header

    def fresh(self, header: FileHeader) -> BatchStatistics:
        statistics = BatchStatistics(header, with_ends=False)
        statistics.bind(slots=0, rows=address(self.data))
        return statistics

    def row(self, number: int, length: int) -> np.ndarray:
        begin = (number - 1) * self.item_bytes
        return self.data[begin : begin + length]

    def scanned(self) -> int:
        """Return how many batches recovery would find."""
        statistics = self.fresh(self.header)
        while scan_batches(statistics.array, self.row_limit, FOR_STATISTICS) != SCAN_END:
            pass
        return statistics.batches


@pytest.fixture(params=sorted(SCHEMAS))
def region(request):
    return Region(request.param)


@pytest.mark.parametrize("entries", [b"", b"\0\0\1\0t", bytes(range(90))], ids=len)
def test_record_and_dictionary_rows_are_laid_out_as_the_format_says(region, entries):
    given = np.frombuffer(entries or b"\0", np.uint8)
    first_item = begin_batch(region.statistics.array, 3, address(given), len(entries), 0)
    head = region.row(1, (first_item - 1) * region.item_bytes)
    record = head[: layout.BATCH_RECORD_BYTES].view(layout.BATCH_RECORD)[0]
    assert record["magic"] == layout.BATCH_MAGIC
    assert (record["crc"], record["number"], record["flags"]) == (0, 0, 0)
    assert (record["item_count"], record["dictionary_bytes"]) == (3, len(entries))
    assert bytes(record["uuid"]) == UUID
    assert first_item - 1 == layout.batch_rows(region.item_bytes, len(entries), 0)
    begin = layout.batch_rows(region.item_bytes, 0, 0) * region.item_bytes
    assert not head[layout.BATCH_RECORD_BYTES : begin].any()
    assert head[begin : begin + len(entries)].tobytes() == entries
    assert not head[begin + len(entries) :].any()
    seed = region.fresh(region.header).crc
    assert region.statistics.crc == google_crc32c.extend(seed, head.tobytes())
    assert (region.row(first_item, region.item_bytes) == 0xFF).all()


def test_batch_is_found_only_once_its_checksum_is_stored(region):
    """Items of zero bytes stand for whatever an append writes between both steps."""
    array = region.statistics.array
    first_item = begin_batch(array, 1, 0, 0, 0)
    items = region.row(first_item, region.item_bytes)
    items[:] = 0
    assert region.scanned() == 0
    batch = region.row(1, first_item * region.item_bytes)
    crc = google_crc32c.extend(region.fresh(region.header).crc, batch.tobytes())
    array[B_CRC] = crc
    finish_batch(array, first_item, region.row_limit)
    assert region.scanned() == 1
    assert region.statistics.next_row == first_item + 1
    assert region.statistics.batches == 1


def test_old_record_behind_a_batch_is_zeroed(region):
    length = layout.batch_rows(region.item_bytes, 0, 1)
    begin_batch(region.statistics.array, 1, 0, 0, 0)
    finish_batch(region.statistics.array, length, region.row_limit)
    behind = region.row(length + 1, layout.BATCH_RECORD_BYTES)
    assert not behind.any()


def test_batch_at_the_end_of_the_rows_leaves_what_lies_behind_them_alone(region):
    """The mapping may end there."""
    record_rows = layout.batch_rows(region.item_bytes, 0, 0)
    for spare in range(record_rows):
        region = Region(region.item_bytes)
        begin_batch(region.statistics.array, 1, 0, 0, 0)
        finish_batch(region.statistics.array, ROWS - spare, ROWS)
        assert (region.row(ROWS - spare + 1, spare * region.item_bytes + GUARD) == 0xFF).all()
        assert region.statistics.next_row == ROWS - spare + 1


def test_record_of_another_place_is_none(region):
    array = region.statistics.array
    begin_batch(array, 3, 0, 0, 0)
    record, length = address(region.data), layout.batch_rows(region.item_bytes, 0, 3)
    assert batch_length(array, record, ROWS) == length
    assert batch_length(array, record, length) == length
    assert batch_length(array, record, length - 1) == 0
    assert batch_length(array, record, 0) == 0
    kept = region.data.copy()
    for name in ("magic", "number", "item_count", "dictionary_bytes", "flags", "uuid"):
        position = layout.BATCH_RECORD.fields[name][1]
        if name == "item_count":
            region.data[position] = 0
        else:
            region.data[position : position + 4] ^= 0x55
        assert batch_length(array, record, ROWS) == 0, name
        region.data[:] = kept
