"""Rows read from a file in a store a little at a time: all of them, in few reads, and damage is named."""

from __future__ import annotations

import numpy as np
import pytest

from tests.indexfile import compacted_files as files
from tierdex.errors import CorruptFileError
from tierdex.fileparts.layout import Part
from tierdex.indexfile.compacted.file import CompactedFile
from tierdex.indexfile.compacted.page_stream import READ_CHUNKS, WINDOW_PAGES, PageStream
from tierdex.indexfile.layout import DIRECTORY_BLOCK_BYTES, DIRECTORY_ENTRY_BYTES

COUNT, CHUNK = 200_000, 500  # rows of a file, and of a chunk


class Object:
    """One file in a store that counts reads; `data` may be damaged."""

    def __init__(self, data):
        self.whole = CompactedFile.from_bytes(data)
        self.parts = self.whole.footer.parts
        self.data, self.reads = bytearray(data), []

    def read(self, position, length):
        self.reads.append((position, length))
        return bytes(self.data[position : position + length])

    def open(self):
        return PageStream(
            self.read, position=self.whole.sidecar_position, file_bytes=len(self.data),
            crc=self.whole.footer_crc, name="object",
        )  # fmt: skip


@pytest.fixture(scope="module")
def data():
    return files.write(files.make_rows(COUNT, distinct=COUNT // 2))


@pytest.fixture
def made(data):
    return Object(data)


def test_all_rows_come_in_order_by_few_reads_and_never_the_filter(made):
    stream = made.open()
    assert len(made.reads) == 2
    rows = np.concatenate(list(stream.rows_in_hash_order(CHUNK)))
    assert np.array_equal(rows, np.concatenate(list(made.whole.rows_in_hash_order())))
    assert stream.item_count == made.whole.item_count == len(rows)
    assert stream.row_bounds().least == made.whole.row_bounds().least
    pages = made.whole.page_count
    assert pages > WINDOW_PAGES
    spans = -(-pages // (READ_CHUNKS * (CHUNK // made.whole.statistics.items_per_page)))
    windows = -(-pages // (WINDOW_PAGES // 2))
    assert len(made.reads) <= 2 + spans + windows
    place = made.parts[Part.FILTER]
    end_bytes = 4096
    inside = [
        min(begin + length, place.position + place.length) - max(begin, place.position)
        for begin, length in made.reads
    ]
    assert sum(bytes_ for bytes_ in inside if bytes_ > 0) < end_bytes
    page_bytes = made.whole.sidecar_position
    directory = made.parts[Part.DIRECTORY].length
    head = made.parts[Part.DIRECTORY].position - made.whole.sidecar_position
    overlap = windows * 2 * DIRECTORY_BLOCK_BYTES
    assert (
        sum(length for _, length in made.reads)
        < page_bytes + directory + head + overlap + end_bytes
    )
    assert max(length for _, length in made.reads) < 128 * 1024  # of 5 MB


def test_a_chunk_longer_than_a_window_is_read_at_once(made):
    rows = np.concatenate(list(made.open().rows_in_hash_order(COUNT)))
    assert len(rows) == made.whole.item_count


def test_a_damaged_part_is_named_and_gives_no_rows(made):
    places = {
        "directory block": made.parts[Part.DIRECTORY].position + 5 * DIRECTORY_BLOCK_BYTES + 9,
        "page": made.whole.page_place(7)[0] + 100,
        "checksum of part checksums": made.parts[Part.CHECKSUMS].position,
        "checksum of part queues": made.parts[Part.QUEUES].position,
    }
    for told, place in places.items():
        made.data[place] ^= 4
        with pytest.raises(CorruptFileError, match=told):
            list(made.open().rows_in_hash_order(CHUNK))
        made.data[place] ^= 4
    assert list(made.open().rows_in_hash_order(CHUNK))


def test_another_file_of_the_same_name_is_refused(made):
    other = Object(files.write(files.make_rows(COUNT, seed=2)))
    made.data = other.data
    with pytest.raises(CorruptFileError):
        made.open()


def test_a_cut_answer_is_refused(made):
    stream = made.open()
    stream._read = lambda position, length: made.read(position, length)[:-DIRECTORY_ENTRY_BYTES]
    with pytest.raises(CorruptFileError, match="bytes of the directory"):
        list(stream.rows_in_hash_order(CHUNK))
