"""Damage anywhere in a grouped file: a typed error, or the same answer; never a wrong or empty one."""

import numpy as np
import pytest

from tests.logfile.grouped.grouped_files import grouped_bytes, open_bytes, sealed_of
from tests.logfile.log_files import FILESYSTEM, Model, everything, some_rows
from tierdex.errors import CorruptFileError
from tierdex.fileparts.checksums import part_seed
from tierdex.fileparts.layout import Part
from tierdex.logfile import layout
from tierdex.logfile.check import check_log_file
from tierdex.logfile.grouped.kernels.page_columns import R_COUNT, R_QUEUE, RUN_WORDS, list_runs
from tierdex.logfile.grouped.kernels.page_read import P_RUNS
from tierdex.logfile.grouped.kernels.page_write import finish_page
from tierdex.logfile.grouped.queue_groups import QueueRows
from tierdex.logfile.grouped.sources import JournalSource
from tierdex.logfile.layout import Codec

MODEL = Model()


@pytest.fixture(scope="module", params=[Codec.PLAIN, Codec.LZ4], ids=["plain", "lz4"])
def data(request, tmp_path_factory):
    model = Model()
    sealed = sealed_of(tmp_path_factory.mktemp("log"), [some_rows(60, queues=9)], model)
    MODEL.queues = model.queues
    return grouped_bytes(
        [JournalSource(sealed)], sealed.header, page_bytes=512, codec=request.param
    )


def is_noticed(damaged: bytes, position: int = 0, *, whole: bool = False) -> bool:
    """Say whether damage was noticed; fail when it changed an answer."""
    try:
        file = open_bytes(damaged, position)
        assert everything(file, MODEL.queues) == MODEL.queues
        for topic, queue_id in MODEL.queues:
            assert file.may_contain(topic.encode(), queue_id)
        return bool(whole and file.check())
    except CorruptFileError:
        return True


def flipped(data: bytes, place: int) -> bytes:
    damaged = bytearray(data)
    damaged[place] ^= 1 << place % 8
    return bytes(damaged)


def test_flipped_bits_are_noticed_or_harmless(data):
    position = open_bytes(data).sidecar_position
    unnoticed = [
        place
        for place in [*range(4096, position, 3), *range(position, len(data), 2)]
        if not is_noticed(flipped(data, place))
    ]
    # Only the zero bytes between parts, and queues' bytes behind the last value.
    assert len(unnoticed) < 20, unnoticed


def test_check_names_every_flipped_byte(data):
    for place in range(4096, len(data), 7):
        assert is_noticed(flipped(data, place), whole=True), place


def test_header_is_compared_where_the_file_lies_whole(data, tmp_path):
    path = tmp_path / "file"
    for place in [*range(64), *range(64, 4096, 61)]:
        path.write_bytes(flipped(data, place))
        assert check_log_file(FILESYSTEM, path)
    path.write_bytes(data)
    assert check_log_file(FILESYSTEM, path) == []


def test_every_cut_and_growth_is_refused(data):
    lengths = [*range(0, len(data), 97), *range(len(data) - 70, len(data))]
    for damaged in [*(data[:length] for length in lengths), data + b"\0", data + data[-64:]]:
        with pytest.raises(CorruptFileError):
            open_bytes(damaged)
    with pytest.raises(CorruptFileError):
        open_bytes(data, open_bytes(data).sidecar_position + 8)


def test_zeroed_and_swapped_sectors_are_noticed(data):
    for begin in range(4096, len(data) - 512, 512):
        zeroed = data[:begin] + bytes(512) + data[begin + 512 :]
        assert zeroed == data or is_noticed(zeroed, whole=True)
        if begin + 1024 <= len(data):
            first, second = data[begin : begin + 512], data[begin + 512 : begin + 1024]
            swapped = data[:begin] + second + first + data[begin + 1024 :]
            assert swapped == data or is_noticed(swapped, whole=True)


def test_page_in_anothers_place_is_noticed(data):
    file = open_bytes(data)
    first, second = file.span(1), file.span(2)
    with pytest.raises(CorruptFileError, match="page 1"):
        file.open_page(np.frombuffer(data[second.position :][: second.length], np.uint8), 1)
    page = np.frombuffer(data[first.position :][: first.length], np.uint8)
    assert file.open_page(page, 1).number == 1


def test_forged_page_is_refused_or_read_within_its_bounds(data):
    """Head and columns are damaged under a checksum that was made for them: no read leaves the payload."""
    file = open_bytes(data)
    seed = np.uint32(part_seed(file.uuid, Part.PAGE))
    random = np.random.default_rng(8)
    refused = 0
    for _ in range(3000):
        number = int(random.integers(file.page_count))
        span = file.span(number)
        page = np.frombuffer(data[span.position :][: span.length], np.uint8).copy()
        for _ in range(int(random.integers(1, 4))):
            most = min(len(page), 90)
            page[int(random.integers(4, most))] = random.integers(256)
        codec = int(page[layout.places(layout.PAGE_HEADER)["codec"]])
        finish_page(page.ctypes.data, len(page) - layout.PAGE_HEADER_BYTES, codec, seed, number)
        try:
            opened = file.open_page(page, number)
        except CorruptFileError:
            refused += 1
            continue
        first = 0
        runs = np.empty((int(opened.words[P_RUNS]), RUN_WORDS), np.int64)
        list_runs(opened.words[None], runs)
        for above, count in runs[:, [R_QUEUE, R_COUNT]].tolist():
            batch = opened.messages(
                above, 0, max_count=count, max_bytes=1 << 30, first_offset=0, is_first=True
            )
            assert len(batch) == count
            first += count
        assert first == opened.message_count
        opened.rows()
    assert refused > 1000


ODD_DIRECTORY = {
    "first_queue": "page 3 does not begin where the one before ended",
    "first_ordinal": "page 3 does not begin where the one before ended",
    "min_time": "page 3 has other times than the directory says",
    "max_time": "page 3 has other times than the directory says",
}


@pytest.mark.parametrize("column", ODD_DIRECTORY)
def test_check_compares_each_page_with_the_directory(data, column, monkeypatch):
    file = open_bytes(data)
    directory = file.directory().copy()
    directory[column][3] += 1
    monkeypatch.setattr(file, "directory", lambda: directory)
    assert file.check() == [ODD_DIRECTORY[column]]


def test_check_compares_the_runs_with_the_queues(data, monkeypatch):
    file = open_bytes(data)
    queues = file.queues()
    counts = queues.counts.copy()
    counts[-2:] += [1, -1]  # the sum stays
    odd = QueueRows(queues.topics, queues.queue_ids, queues.first_offsets, counts)
    monkeypatch.setattr(file, "queues", lambda: odd)
    (fault,) = file.check()
    assert "has other queues" in fault or "does not begin" in fault


def test_newer_file_says_so(data, tmp_path):
    newer = bytearray(data)
    newer[layout.places(layout.HEADER)["format_version"]] = 2
    (tmp_path / "file").write_bytes(newer)
    assert "newer" in check_log_file(FILESYSTEM, tmp_path / "file")[0]
