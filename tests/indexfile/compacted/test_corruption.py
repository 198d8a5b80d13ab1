"""Damage anywhere: a typed error, or the same answer; never a wrong or empty one, never a crash."""

import numpy as np
import pytest

from tests.indexfile import compacted_files as files
from tierdex.errors import CorruptFileError
from tierdex.filesystem import LocalFileSystem
from tierdex.indexfile.check import check_compacted, check_file
from tierdex.indexfile.compacted.file import CompactedFile
from tierdex.indexfile.lookup import Search

ROWS = files.make_rows(900, distinct=600)
DATA = files.write(ROWS)
SOUND = CompactedFile.from_bytes(DATA)
ASKED = ROWS[::40]


def answers(file: CompactedFile):
    """What single lookups, a batch and a walk give."""
    single = [files.found(file, files.lookup_of(row)) for row in ASKED]
    many = file.search(Search.of(ASKED["key_hash"], ASKED["tag"], limit=100))
    return [*single, many.rows, *file.rows_in_hash_order()]


TRUTH = answers(SOUND)


def assert_error_or_truth(data: bytes) -> bool:
    """Return whether the damage was noticed; fail when it changed an answer."""
    try:
        got = answers(CompactedFile.from_bytes(data))
    except CorruptFileError:
        return True
    assert len(got) == len(TRUTH)
    assert all(np.array_equal(a, b) for a, b in zip(got, TRUTH, strict=True))
    return False


def flipped(position: int, bit: int) -> bytes:
    data = bytearray(DATA)
    data[position] ^= 1 << bit
    return bytes(data)


@pytest.mark.parametrize("start", range(7))
def test_flipped_bits_are_noticed_or_harmless(start):
    unnoticed = 0
    for position in range(start, len(DATA), 7 * 3):
        unnoticed += not assert_error_or_truth(flipped(position, position % 8))
    # Only padding, and bytes that no lookup here needed, may go unnoticed.
    assert unnoticed < 12


def test_check_names_every_flipped_byte_but_padding():
    unnoticed = [p for p in range(4096, len(DATA), 13) if not check_compacted(flipped(p, p % 8))]
    assert unnoticed == []


def test_every_truncation_is_refused():
    for length in (*range(0, len(DATA), 97), *range(len(DATA) - 70, len(DATA))):
        with pytest.raises(CorruptFileError):
            CompactedFile.from_bytes(DATA[:length])


def test_grown_file_is_refused():
    for more in (b"\0", b"\0" * 64, DATA[-64:]):
        with pytest.raises(CorruptFileError):
            CompactedFile.from_bytes(DATA + more)


def test_swapped_pages_are_noticed():
    first, second = SOUND.span(0, 1), SOUND.span(1, 1)
    assert first.length == second.length or first.length != second.length
    data = bytearray(DATA)
    length = min(first.length, second.length)
    data[first.position : first.position + length] = DATA[second.position :][:length]
    data[second.position : second.position + length] = DATA[first.position :][:length]
    assert assert_error_or_truth(bytes(data))


def test_page_of_another_file_is_noticed():
    foreign = files.write(ROWS, uuid=bytes(16))
    assert len(foreign) == len(DATA)
    span = SOUND.span(1, 1)
    data = bytearray(DATA)
    data[span.position :][: span.length] = b""
    data = DATA[: span.position] + foreign[span.position :][: span.length]
    data += DATA[span.position + span.length :]
    assert assert_error_or_truth(data)
    faults = check_compacted(data)
    assert faults == ["checksum of page 1 differs"]


def test_zeroed_blocks_are_noticed():
    for begin in range(0, len(DATA) - 512, 512):
        data = DATA[:begin] + bytes(512) + DATA[begin + 512 :]
        assert assert_error_or_truth(data) or DATA[begin : begin + 512] == bytes(512)


def test_tail_of_another_file_is_refused():
    foreign = files.write(ROWS, uuid=bytes(16))
    with pytest.raises(CorruptFileError, match="another file"):
        CompactedFile.from_bytes(DATA[: SOUND.sidecar_position] + foreign[SOUND.sidecar_position :])


def test_damaged_sidecar_is_noticed_before_it_answers():
    tail = SOUND.sidecar_bytes().tobytes()
    wanted = Search.of(ASKED["key_hash"], ASKED["tag"])
    plan = SOUND.plan_pages(wanted)
    for position in range(0, len(tail), 11):
        damaged = bytearray(tail)
        damaged[position] ^= 0x10
        try:
            file = CompactedFile.from_sidecar(bytes(damaged))
            assert np.array_equal(file.plan_pages(wanted), plan)
            for first, last in plan.tolist():
                assert file.span(first, last - first + 1) == SOUND.span(first, last - first + 1)
        except CorruptFileError:
            continue


def test_foreign_and_newer_files_say_so(tmp_path):
    for data in (b"", b"hello world", b"\0" * 5000, b"PAR1" * 2000):
        path = tmp_path / "file"
        path.write_bytes(data)
        faults = check_file(LocalFileSystem(), path)
        assert len(faults) == 1
    newer = bytearray(DATA)
    newer[8] = 3
    path.write_bytes(newer)
    assert "newer" in check_file(LocalFileSystem(), path)[0]
