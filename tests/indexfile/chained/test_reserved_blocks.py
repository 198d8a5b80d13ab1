"""Blocks reserved beside the appends: no append waits for the disk, nothing is left behind."""

import threading
import time

from tests.indexfile.chained_files import FILESYSTEM, make_file, make_part
from tests.indexfile.faulty_disk import FaultyFileSystem
from tests.patience import PATIENCE_S
from tierdex.fileparts.layout import BLOCK_BYTES
from tierdex.indexfile import layout
from tierdex.indexfile.chained.file import ChainedFile
from tierdex.indexfile.chained.reserved_blocks import RESERVE_STEP_MAX

SLOTS = 8
ROWS_BEGIN = layout.rows_position(SLOTS)
PART_ITEMS = 10_000


def fill(file, parts, topic="t"):
    for number in range(parts):
        file.append([make_part(["a"] * PART_ITEMS, topic=topic, first=number * PART_ITEMS)])


def test_appends_into_reserved_blocks_ask_the_disk_for_nothing(tmp_path):
    disk = FaultyFileSystem()
    file = make_file(tmp_path / "file", item_capacity=1_000_000, filesystem=disk)
    fill(file, 8)
    assert file.is_short_of_room
    file.reserve_ahead()
    assert not file.is_short_of_room
    disk.free_reserve = 0  # from here on every reservation fails
    fill(file, 4)
    assert file.item_count == 12 * PART_ITEMS
    assert file.check() == []


def test_what_is_reserved_stays_below_twice_what_is_used(tmp_path):
    file = make_file(tmp_path / "file", slot_count=SLOTS, item_capacity=1_000_000)
    fill(file, 5)
    for _ in range(3):
        file.reserve_ahead()
    used = file._used_bytes() - ROWS_BEGIN
    assert file.bytes_used - ROWS_BEGIN <= 2 * used + BLOCK_BYTES + RESERVE_STEP_MAX
    assert file.bytes_used - ROWS_BEGIN >= 2 * used


def test_file_that_will_be_large_is_made_ready_before_its_first_item(tmp_path):
    disk = FaultyFileSystem()
    file = make_file(tmp_path / "file", item_capacity=1_000_000, filesystem=disk)
    file.reserve_ahead(expected_bytes=4 << 20)
    disk.free_reserve = 0
    fill(file, 9)
    assert file.item_count == 9 * PART_ITEMS


def test_seal_cuts_what_was_reserved_and_nobody_reserves_after_it(tmp_path):
    file = make_file(tmp_path / "file", slot_count=SLOTS, item_capacity=1_000_000)
    fill(file, 3)
    file.reserve_ahead(expected_bytes=8 << 20)
    file.seal()
    size = file.path.stat().st_size
    file.reserve_ahead(expected_bytes=64 << 20)
    assert file.path.stat().st_size == size
    sealed = ChainedFile.open_sealed(FILESYSTEM, file.path)
    assert sealed.check() == []
    assert sealed.item_count == 3 * PART_ITEMS


def test_closed_file_reserves_nothing(tmp_path):
    file = make_file(tmp_path / "file", slot_count=SLOTS, item_capacity=1_000_000)
    fill(file, 3)
    path = file.path
    file.close()
    before = path.stat().st_size, path.stat().st_blocks, file._blocks.end
    file.reserve_ahead(expected_bytes=8 << 20)
    assert (path.stat().st_size, path.stat().st_blocks, file._blocks.end) == before


def test_append_waits_for_no_more_than_one_step_of_who_reserves_ahead(tmp_path):
    """Who reserves ahead takes the lock again at once; a thread that waits for it goes first."""
    blocks = make_file(tmp_path / "file", slot_count=SLOTS, item_capacity=1_000_000)._blocks
    append = threading.Thread(target=blocks.make_room, args=(blocks.end + (16 << 20),), daemon=True)
    reserve_up_to, by = blocks._reserve_up_to, []

    def note(target):
        by.append(threading.current_thread() is append)
        reserve_up_to(target)
        if len(by) == 1:
            append.start()
            while not blocks._turn.locked():
                time.sleep(0.001)

    blocks._reserve_up_to = note
    blocks.reserve_ahead(lambda: ROWS_BEGIN, expected=12 << 20)
    append.join(PATIENCE_S)
    assert by[:2] == [False, True]


def test_reserving_ahead_ends_however_fast_the_appends_are(tmp_path):
    blocks = make_file(tmp_path / "file", slot_count=SLOTS, item_capacity=1_000_000)._blocks
    blocks.reserve_ahead(lambda: blocks.end, expected=8 << 20)  # all that is reserved is used up
    assert blocks.end >= ROWS_BEGIN + (8 << 20)


def test_appends_and_reservations_side_by_side_keep_the_file_sound(tmp_path):
    file = make_file(tmp_path / "file", item_capacity=1_000_000)
    stop = threading.Event()

    def reserve():
        while not stop.is_set():
            file.reserve_ahead()

    beside = threading.Thread(target=reserve)
    beside.start()
    try:
        fill(file, 20)
    finally:
        stop.set()
        beside.join()
    assert file.item_count == 20 * PART_ITEMS
    assert file.check() == []
    recovered = ChainedFile.recover(FILESYSTEM, file.path)
    assert recovered.item_count == 20 * PART_ITEMS
    assert recovered.snapshot == file.snapshot
