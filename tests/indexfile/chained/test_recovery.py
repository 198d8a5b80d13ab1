"""Unclean stops, damage, full disks and failed syncs of an unsealed file."""

import shutil
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.indexfile.chained_files import FILESYSTEM, key, make_file, make_part, offsets_of
from tests.indexfile.faulty_disk import FaultyFileSystem
from tests.interrupting import interrupted_at
from tests.simulation.simulated_disk import SimulatedFileSystem
from tests.simulation.simulated_file import PAGE
from tierdex.errors import CorruptFileError, UnsupportedFormatError
from tierdex.filesystem import make_durable_folder
from tierdex.indexfile import layout
from tierdex.indexfile.chained import batch_append
from tierdex.indexfile.chained.file import ChainedFile
from tierdex.indexfile.chained.reserved_blocks import RESERVE_STEP_MIN

SLOTS = 8
ROWS_BEGIN = layout.rows_position(SLOTS)


@pytest.fixture
def batches(tmp_path):
    """A file of four batches that was not closed, and its published rows after each."""
    file = make_file(tmp_path / "file", slot_count=SLOTS, item_capacity=100)
    published = [0]
    for number in range(4):
        names = ["hot", f"k{number}", "hot"]
        part = make_part(names, topic=f"t{number}", first=3 * number)
        published.append(file.append([part, make_part(["hot"], first=100 + number)]))
    return file, published


def damage(path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def test_recovered_file_answers_as_before_and_takes_more(batches):
    file, _published = batches
    recovered = ChainedFile.recover(FILESYSTEM, file.path)
    assert recovered.snapshot == file.snapshot
    assert recovered.end_offsets() == file.end_offsets()
    assert recovered.dictionaries.encode() == file.dictionaries.encode()
    assert offsets_of(recovered, key("hot")) == [10300, 10200, 10100, 10000]
    recovered.append([make_part(["hot"], first=7)])
    assert offsets_of(recovered, key("hot"))[0] == 700
    assert recovered.check() == []
    again = ChainedFile.recover(FILESYSTEM, file.path)
    assert again.snapshot == recovered.snapshot
    assert again.check() == []


# Within a generator's end Python only says that it was raised.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_file_recovers_after_an_append_that_was_interrupted_anywhere(tmp_path):
    place, has_come_so_far = 0, True
    while has_come_so_far:
        place += 1
        file = make_file(tmp_path / str(place), slot_count=SLOTS, item_capacity=100)
        file.append([make_part(["a"], first=1)])
        part = make_part(["b"], topic="another", first=2)
        has_come_so_far = interrupted_at(place, lambda file=file, part=part: file.append([part]))
        if not file.suspect:  # such a one is written anew, see the tests of the writer
            file.append([make_part(["b"], topic="another", first=3)])
        recovered = ChainedFile.recover(FILESYSTEM, file.path)
        assert recovered.check() == []
        assert offsets_of(recovered, key("a")) == [100]
        if not file.suspect:
            assert offsets_of(recovered, key("b", "another"))[0] == 300
        recovered.close()
        file.close()
    assert place > 50


def test_nothing_mutable_but_batches_is_trusted(batches):
    file, _ = batches
    damage(file.path, layout.HEADER_BYTES, b"\xff" * (4 * SLOTS))
    recovered = ChainedFile.recover(FILESYSTEM, file.path)
    assert recovered.check() == []
    assert offsets_of(recovered, key("k0", "t0")) == [100]


def test_every_flipped_byte_leaves_a_prefix_of_whole_batches(batches, tmp_path):
    file, published = batches
    data = file.path.read_bytes()
    end = ROWS_BEGIN + 40 * published[-1]
    for position in [*range(ROWS_BEGIN, end, 7), end - 1]:
        copy = tmp_path / "copy"
        shutil.copyfile(file.path, copy)
        damage(copy, position, bytes([data[position] ^ 0x10]))
        row = (position - ROWS_BEGIN) // 40
        good = max(rows for rows in published if rows <= row)
        recovered = ChainedFile.recover(FILESYSTEM, copy)
        assert recovered.published == good
        recovered.append([make_part(["after"])])
        assert recovered.check() == []
        recovered.close()


def test_lost_page_in_the_middle_cuts_what_came_after(batches):
    file, published = batches
    damage(file.path, ROWS_BEGIN + 40 * published[1], bytes(40))
    recovered = ChainedFile.recover(FILESYSTEM, file.path)
    assert recovered.published == published[1]
    assert recovered.topics == ["t0", "orders"]


def test_batch_behind_a_lost_one_does_not_come_back_when_the_lost_one_is_put_again(batches):
    file, published = batches
    row = ROWS_BEGIN + 40 * published[2]
    lost = file.path.read_bytes()[row : row + 40]
    damage(file.path, row, bytes(40))
    recovered = ChainedFile.recover(FILESYSTEM, file.path)
    part = make_part(["hot", "k2", "hot"], topic="t2", first=6)
    recovered.append([part, make_part(["hot"], first=102)])
    assert file.path.read_bytes()[row : row + 40] == lost  # the very same batch
    assert ChainedFile.open_for_reading(FILESYSTEM, file.path).published == recovered.published


def test_batch_behind_a_lost_one_stays_away_after_another_power_cut():
    """What ends with a page is synced with the zeroed record on the next one."""
    folder, disk = Path("/data"), SimulatedFileSystem()
    make_durable_folder(disk, folder)
    file = make_file(folder / "file", slot_count=SLOTS, item_capacity=1000, filesystem=disk)
    disk.sync_folder(folder)
    count = PAGE // 40 * 5  # and 2 rows of the record and the topic's name: 512 are five pages
    lost = make_part([f"k{n}" for n in range(count)])
    file.append([lost])
    boundary = file._used_bytes()
    assert boundary % PAGE == 0
    file.append([make_part(["behind"])])
    disk = disk.crash(lambda effect: effect.position >= boundary)
    with closing(ChainedFile.recover(disk, file.path)) as recovered:
        assert recovered.item_count == 0
        recovered.append([lost])
        recovered.sync()
        disk = disk.crash(lambda effect: False)
    with closing(ChainedFile.recover(disk, file.path)) as again:
        assert again.item_count == count
        assert offsets_of(again, key("behind")) == []


def test_batch_of_another_file_is_not_taken(batches, tmp_path):
    file, published = batches
    other = make_file(tmp_path / "other", slot_count=SLOTS, item_capacity=100, uuid=b"o" * 16)
    other.append([make_part(["x"])])
    begin, end = ROWS_BEGIN, ROWS_BEGIN + 40 * published[1]
    damage(other.path, begin, file.path.read_bytes()[begin:end])
    assert ChainedFile.recover(FILESYSTEM, other.path).item_count == 0


def test_batch_longer_than_a_piece_is_recovered(tmp_path):
    file = make_file(tmp_path / "file", slot_count=1000, item_capacity=300_000)
    file.append([make_part(["small"])])
    file.append([make_part([f"k{n}" for n in range(250_000)], first=1)])
    recovered = ChainedFile.recover(FILESYSTEM, file.path)
    assert recovered.item_count == 250_001
    assert offsets_of(recovered, key("k77")) == [7800]


def test_file_with_only_a_header_is_empty(tmp_path):
    file = make_file(tmp_path / "file")
    for opener in (ChainedFile.recover, ChainedFile.open_for_reading):
        opened = opener(FILESYSTEM, file.path)
        assert opened.item_count == 0
        assert opened.check() == []


@pytest.mark.parametrize("opener", ["recover", "open_for_reading", "open_sealed"])
def test_every_cut_of_an_unsealed_file_is_corrupt(batches, opener):
    file, _ = batches
    size = file.path.stat().st_size
    for length in [0, 7, 100, 4096, ROWS_BEGIN - 1, ROWS_BEGIN, ROWS_BEGIN + 500, size - 1]:
        cut = file.path.with_name("cut")
        shutil.copyfile(file.path, cut)
        with cut.open("r+b") as handle:
            handle.truncate(length)
        with pytest.raises(CorruptFileError):
            getattr(ChainedFile, opener)(FILESYSTEM, cut)


@pytest.mark.parametrize("opener", ["recover", "open_for_reading", "open_sealed"])
def test_foreign_file_is_unsupported(tmp_path, opener):
    (tmp_path / "foreign").write_bytes(b"SQLite format 3\0" * 1000)
    with pytest.raises(UnsupportedFormatError):
        getattr(ChainedFile, opener)(FILESYSTEM, tmp_path / "foreign")


def test_disk_that_is_full_at_creation_leaves_no_file(tmp_path):
    disk = FaultyFileSystem()
    disk.free_reserve = 0
    with pytest.raises(OSError, match="no space"):
        make_file(tmp_path / "file", filesystem=disk)
    assert list(tmp_path.iterdir()) == []


def test_disk_that_fills_up_refuses_batches_whole_and_serves_on(tmp_path):
    disk = FaultyFileSystem()
    file = make_file(tmp_path / "file", item_capacity=100_000, filesystem=disk)
    file.append([make_part(["a"])])
    disk.free_reserve = 0
    before = file.snapshot
    with pytest.raises(OSError, match="no space"):
        file.append([make_part(["b"] * 20_000, topic="new")])
    assert (file.snapshot, file.topics) == (before, ["orders"])
    file.append([make_part(["c"] * 100)])  # within what is reserved already
    disk.free_reserve = None
    file.append([make_part(["b"] * 20_000, topic="new")])
    assert file.item_count == 20_101
    assert file.check() == []


def test_last_free_blocks_are_used_before_a_batch_is_refused(tmp_path):
    disk = FaultyFileSystem()
    file = make_file(tmp_path / "file", item_capacity=100_000, filesystem=disk)
    disk.free_reserve = RESERVE_STEP_MIN // 2
    file.append([make_part(["a"] * 1000)])
    assert file.item_count == 1000


def test_blocks_are_reserved_in_steps(tmp_path):
    file = make_file(tmp_path / "file", slot_count=SLOTS, item_capacity=1_000_000)
    file.append([make_part(["a"])])
    assert file.bytes_used == ROWS_BEGIN + RESERVE_STEP_MIN
    assert file.path.stat().st_blocks * 512 < 1 << 20


def test_sync_returns_what_is_durable(batches):
    file, published = batches
    assert file.synced == 0
    assert file.sync() == published[-1] == file.synced
    assert file.sync() == published[-1]


def test_failed_sync_makes_the_file_suspect_until_it_is_read_again(tmp_path):
    disk = FaultyFileSystem()
    file = make_file(tmp_path / "file", filesystem=disk)
    file.append([make_part(["a", "b"] * 100)])
    disk.fail_syncs = 1
    with pytest.raises(OSError, match="input/output"):
        file.sync()
    assert file.suspect
    assert file.room() == 0
    for refused in (file.sync, lambda: file.append([make_part(["c"])])):
        with pytest.raises(OSError, match="takes no more"):
            refused()
    assert len(offsets_of(file, key("a"))) == 100
    published = file.published
    assert file.reread() == published
    assert disk.forgotten == 1
    assert len(offsets_of(file, key("a"))) == 100
    assert sum(len(chunk) for chunk in file.rows_in_hash_order()) == 200
    file.seal()
    assert not file.suspect
    assert ChainedFile.open_sealed(FILESYSTEM, file.path).check() == []


def test_read_again_proves_only_what_the_device_has(batches):
    file, published = batches
    file.suspect = True
    damage(file.path, ROWS_BEGIN + 40 * (published[2] + 2), b"\0\1\2\3")
    assert file.reread() == published[2] == file.published
    assert offsets_of(file, key("k3", "t3")) == []
    assert offsets_of(file, key("k0", "t0")) == [100]
    assert file.check() == []


def test_interrupted_append_leaves_the_file_readable_and_closed_for_more(batches, monkeypatch):
    file, published = batches
    real = batch_append._write_source

    def interrupt(*arguments) -> None:
        real(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(batch_append, "_write_source", interrupt)
    with pytest.raises(KeyboardInterrupt):
        file.append([make_part(["hot"], topic="new")])
    assert file.suspect
    assert file.published == published[-1]
    assert "new" not in file.topics
    assert len(offsets_of(file, key("hot"))) == 4
    assert ChainedFile.open_for_reading(FILESYSTEM, file.path).published == published[-1]
    assert file.reread() == published[-1]
    assert file.check() == []


@pytest.mark.parametrize("queues", [1, 3000], ids=["few queues", "a table that grew"])
def test_interrupted_append_leaves_no_end_offsets_behind(tmp_path, monkeypatch, queues):
    """Who resumes behind them would never put those messages again."""
    file = make_file(tmp_path / "file")
    file.append([make_part(["a", "b"], topic="t0")])
    before, published = file.end_offsets(), file.published
    real = batch_append._write_source

    def interrupt(*arguments) -> None:
        real(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(batch_append, "_write_source", interrupt)
    part = make_part(["lost"] * queues, topic="new", first=10_000, queue_id=np.arange(queues))
    with pytest.raises(KeyboardInterrupt):
        file.append([part])
    assert file.end_offsets() == before
    file.copy_sealed(FILESYSTEM, tmp_path / "copy")
    with closing(ChainedFile.open_sealed(FILESYSTEM, tmp_path / "copy")) as copy:
        assert copy.end_offsets() == before
        assert copy.published == published
        assert copy.check() == []


def test_order_of_an_append_is_rows_then_crc_then_published(batches):
    file, published = batches
    begin = ROWS_BEGIN + 40 * published[-1]
    data = np.fromfile(file.path, np.uint8)
    assert not data[begin : begin + 40].any()  # the record after the last batch is zero
