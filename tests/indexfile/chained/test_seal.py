"""Sealed files: answers stay, damage is told before it changes one, crashes within a seal."""

import shutil

import pytest

from tests.indexfile.chained_files import (
    FILESYSTEM,
    key,
    make_file,
    make_part,
    message_id,
    offsets_of,
)
from tests.indexfile.faulty_disk import FaultyFileSystem
from tierdex.errors import CorruptFileError, ReadOnlyError
from tierdex.indexfile import layout
from tierdex.indexfile.chained.file import ChainedFile
from tierdex.indexfile.column_search import search_file
from tierdex.indexfile.lookup import Search

NAMES = [f"k{number % 40}" for number in range(200)]


def fill(path, **other):
    file = make_file(path, slot_count=16, item_capacity=1000, **other)
    for first in range(0, 200, 50):
        ids = [f"id{number}" for number in range(first, first + 5)]
        names = NAMES[first : first + 50]
        file.append([make_part(names, first=first), make_part(ids, kind=1, topic=f"t{first}")])
    return file


@pytest.fixture
def sealed_path(tmp_path):
    file = fill(tmp_path / "sealed")
    file.seal()
    file.close()
    return tmp_path / "sealed"


def answers(file: ChainedFile) -> list[list[int]]:
    found = [offsets_of(file, key(f"k{number}")) for number in range(42)]
    return found + [offsets_of(file, message_id(f"id{number}")) for number in range(200)]


def test_sealing_changes_no_answer(tmp_path):
    file = fill(tmp_path / "file")
    before = (answers(file), file.snapshot, file.end_offsets(), file.topics)
    file.seal()
    assert (answers(file), file.snapshot, file.end_offsets(), file.topics) == before
    assert file.check() == []
    opened = ChainedFile.open_sealed(FILESYSTEM, tmp_path / "file")
    assert (answers(opened), opened.snapshot, opened.end_offsets(), opened.topics) == before
    assert opened.check() == []
    assert (opened.sealed, opened.room(), opened.sync()) == (True, 0, opened.published)


def test_sealed_file_has_no_spare_bytes(sealed_path):
    assert sealed_path.stat().st_size < 4096 + 4096 + 225 * 40 + 4096 + 1000


def test_sealed_file_takes_no_more(tmp_path, sealed_path):
    file = fill(tmp_path / "file")
    file.seal()
    for sealed in (file, ChainedFile.open_sealed(FILESYSTEM, sealed_path)):
        with pytest.raises(ReadOnlyError):
            sealed.append([make_part(["a"])])
        assert sealed.seal() is None


def test_empty_file_can_be_sealed(tmp_path):
    file = make_file(tmp_path / "file")
    file.seal()
    opened = ChainedFile.open_sealed(FILESYSTEM, file.path)
    assert opened.check() == []
    assert opened.min_time > opened.max_time


def test_every_flipped_byte_is_told_or_changes_no_answer(sealed_path):
    good = ChainedFile.open_sealed(FILESYSTEM, sealed_path)
    expected = answers(good)
    data = sealed_path.read_bytes()
    told = 0
    positions = [*range(200), *range(200, len(data), 97), *range(len(data) - 700, len(data))]
    for position in positions:
        damaged = bytearray(data)
        damaged[position] ^= 0x08
        copy = sealed_path.with_name("copy")
        copy.write_bytes(damaged)
        try:
            file = ChainedFile.open_sealed(FILESYSTEM, copy)
        except CorruptFileError:
            told += 1
            continue
        assert file.check() != []
        again = ChainedFile.open_sealed(FILESYSTEM, copy)
        try:
            assert answers(again) == expected
        except CorruptFileError:
            told += 1
    assert told > len(positions) * 0.9


def test_damaged_block_never_looks_like_an_absent_key(sealed_path):
    data = bytearray(sealed_path.read_bytes())
    data[layout.HEADER_BYTES : layout.HEADER_BYTES + 64] = bytes(64)  # all slots
    sealed_path.write_bytes(data)
    file = ChainedFile.open_sealed(FILESYSTEM, sealed_path)
    with pytest.raises(CorruptFileError, match="block 0"):
        offsets_of(file, key("k1"))
    lookup = key("k1")
    with pytest.raises(CorruptFileError, match="block 0"):
        search_file(file, Search.of([lookup.key_hash], file.tags_of(["orders"], 0)))
    with pytest.raises(CorruptFileError):
        list(file.rows_in_hash_order())


def test_blocks_that_changed_places_are_told(sealed_path):
    data = bytearray(sealed_path.read_bytes())
    first, second = slice(8192, 12288), slice(12288, 16384)
    data[first], data[second] = data[second], data[first]
    sealed_path.write_bytes(data)
    file = ChainedFile.open_sealed(FILESYSTEM, sealed_path)
    assert [p for p in file.check() if p.startswith("blocks")] == [
        "blocks: checksum of block 1 differs",
        "blocks: checksum of block 2 differs",
    ]


def test_every_cut_is_corrupt(sealed_path):
    data = sealed_path.read_bytes()
    for length in [*range(0, len(data), 211), len(data) - 1]:
        sealed_path.write_bytes(data[:length])
        for opener in (ChainedFile.open_sealed, ChainedFile.recover, ChainedFile.open_for_reading):
            with pytest.raises(CorruptFileError):
                opener(FILESYSTEM, sealed_path)
    sealed_path.write_bytes(data + bytes(100))
    with pytest.raises(CorruptFileError):
        ChainedFile.open_sealed(FILESYSTEM, sealed_path)


def test_recovery_of_a_finished_seal_opens_it_sealed(sealed_path):
    file = ChainedFile.recover(FILESYSTEM, sealed_path)
    assert file.sealed
    assert file.check() == []
    reader = ChainedFile.open_for_reading(FILESYSTEM, sealed_path)
    assert reader.sealed


def test_seal_that_stops_before_the_cut_leaves_an_unsealed_file(tmp_path):
    disk = FaultyFileSystem()
    file = fill(tmp_path / "file", filesystem=disk)
    expected = answers(file)
    disk.fail_syncs = 1
    with pytest.raises(OSError, match="input/output"):
        file.seal()
    assert not file.sealed
    with pytest.raises(OSError, match="read again"):
        file.seal()
    shutil.copyfile(file.path, tmp_path / "copy")
    recovered = ChainedFile.recover(FILESYSTEM, tmp_path / "copy")
    assert not recovered.sealed
    assert answers(recovered) == expected
    recovered.append([make_part(["after"], first=500)])
    assert offsets_of(recovered, key("after")) == [50000]
    assert recovered.check() == []
    file.reread()
    file.seal()
    assert answers(ChainedFile.open_sealed(FILESYSTEM, file.path)) == expected


def test_full_disk_at_the_seal_leaves_the_file_usable(tmp_path):
    disk = FaultyFileSystem()
    file = fill(tmp_path / "file", filesystem=disk)
    disk.free_reserve = 0
    with pytest.raises(OSError, match="no space"):
        file.seal()
    disk.free_reserve = None
    file.append([make_part(["more"])])
    file.seal()
    assert ChainedFile.open_sealed(FILESYSTEM, file.path).check() == []


def test_unsealed_file_is_not_opened_as_a_sealed_one(tmp_path):
    file = fill(tmp_path / "file")
    with pytest.raises(CorruptFileError, match="footer"):
        ChainedFile.open_sealed(FILESYSTEM, file.path)
