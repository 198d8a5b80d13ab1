from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.simulation.simulated_disk import Effect, SimulatedCrash, SimulatedFileSystem

if TYPE_CHECKING:
    from tierdex.filesystem import FileSystem, OpenFile

DATA = Path("/data")
FILE = DATA / "file"
PAGE = 4096
SECTOR = 512


@pytest.fixture
def disk() -> SimulatedFileSystem:
    disk = SimulatedFileSystem()
    disk.make_folder(DATA)
    disk.sync_folder(Path("/"))
    return disk


def make_durable(disk: SimulatedFileSystem, path: Path, content: bytes) -> OpenFile:
    file = disk.open(path, create=True)
    file.write_at(0, content)
    file.sync()
    disk.sync_folder(path.parent)
    return file


def content_of(disk: FileSystem, path: Path = FILE) -> bytes | None:
    if not disk.exists(path):
        return None
    file = disk.open(path)
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


def contents_after_crash(disk: SimulatedFileSystem, path: Path = FILE) -> set[bytes | None]:
    return {content_of(state, path) for state in disk.crash_states(limit=4096, seed=1)}


def no_effect(effect: Effect) -> bool:
    return False


# -- power cuts: bytes --------------------------------------------------------------------------


def test_synced_file_in_a_synced_folder_survives_every_crash(disk: SimulatedFileSystem) -> None:
    make_durable(disk, FILE, b"abc")
    assert disk.pending_effects() == []
    assert contents_after_crash(disk) == {b"abc"}


def test_unsynced_file_may_be_absent_empty_zero_or_whole(disk: SimulatedFileSystem) -> None:
    disk.open(FILE, create=True).write_at(0, b"abc")
    assert contents_after_crash(disk) == {None, b"", b"\0\0\0", b"abc"}


def test_synced_file_without_its_folders_sync_may_be_absent(disk: SimulatedFileSystem) -> None:
    file = disk.open(FILE, create=True)
    file.write_at(0, b"abc")
    file.sync()
    assert contents_after_crash(disk) == {None, b"abc"}


def test_sectors_of_one_write_persist_independently(disk: SimulatedFileSystem) -> None:
    file = make_durable(disk, FILE, b"a" * 3 * SECTOR)
    file.write_at(0, b"b" * 3 * SECTOR)
    states = contents_after_crash(disk)
    assert len(states) == 8
    assert b"b" * SECTOR + b"a" * SECTOR + b"b" * SECTOR in states


def test_sector_keeps_any_of_its_versions_but_never_a_mix(disk: SimulatedFileSystem) -> None:
    file = make_durable(disk, FILE, b"aaaa")
    file.write_at(0, b"b")
    file.write_at(1, b"c")
    assert contents_after_crash(disk) == {b"aaaa", b"baaa", b"bcaa"}


def test_pages_of_a_mapping_persist_independently(disk: SimulatedFileSystem) -> None:
    file = make_durable(disk, FILE, bytes(2 * PAGE))
    mapping = file.map(2 * PAGE, writable=True)
    mapping.array[[0, 600, PAGE]] = 1
    states = contents_after_crash(disk)
    assert {(s[0], s[600], s[PAGE]) for s in states if s} == {
        (0, 0, 0), (1, 1, 0), (0, 0, 1), (1, 1, 1),
    }  # fmt: skip


def test_older_content_of_a_mapped_page_may_be_left_when_every_call_notes_stores(
    disk: SimulatedFileSystem,
) -> None:
    file = make_durable(disk, FILE, bytes(PAGE))
    disk.note_stores_at_every_call()
    mapping = file.map(PAGE, writable=True)
    mapping.array[0] = 1
    file.size()
    mapping.array[0] = 2
    assert {s[0] for s in contents_after_crash(disk) if s} == {0, 1, 2}


def test_mapping_sync_makes_only_its_pages_durable(disk: SimulatedFileSystem) -> None:
    file = make_durable(disk, FILE, bytes(3 * PAGE))
    mapping = file.map(3 * PAGE, writable=True)
    mapping.array[[0, PAGE, 2 * PAGE]] = 1
    mapping.sync(PAGE + 10, 1)
    survivor = content_of(disk.crash(no_effect))
    assert survivor is not None
    assert (survivor[0], survivor[PAGE], survivor[2 * PAGE]) == (0, 1, 0)


@pytest.mark.parametrize(("keeps_size", "survivor"), [(True, PAGE), (False, 0)])
def test_mapping_sync_keeps_the_size_as_linux_does_unless_told_not_to(
    keeps_size: bool, survivor: int
) -> None:
    disk = SimulatedFileSystem(mapping_sync_keeps_size=keeps_size)
    file = make_durable(disk, Path("/file"), b"")
    file.truncate(PAGE)
    mapping = file.map(PAGE, writable=True)
    mapping.array[:] = 1
    mapping.sync(0, PAGE)
    assert content_of(disk.crash(no_effect), Path("/file")) == b"\1" * survivor


def test_synced_pages_survive_an_earlier_truncation_that_did_not_persist(
    disk: SimulatedFileSystem,
) -> None:
    file = make_durable(disk, FILE, b"a" * PAGE)
    file.truncate(0)
    file.truncate(PAGE)
    file.write_at(0, b"b" * PAGE)
    file.sync()
    assert contents_after_crash(disk) == {b"b" * PAGE}


def test_truncation_persists_or_not(disk: SimulatedFileSystem) -> None:
    make_durable(disk, FILE, b"abc").truncate(1)
    assert contents_after_crash(disk) == {b"abc", b"a"}


# -- power cuts: names --------------------------------------------------------------------------


def test_rename_is_atomic_and_durable_once_both_folders_are_synced(
    disk: SimulatedFileSystem,
) -> None:
    disk.make_folder(DATA / "to")
    disk.sync_folder(DATA)
    make_durable(disk, FILE, b"new")
    target = DATA / "to" / "file"
    make_durable(disk, target, b"old")
    disk.rename(FILE, target)

    def outcomes() -> set[tuple[bytes | None, bytes | None]]:
        states = disk.crash_states(limit=64, seed=1)
        return {(content_of(state, FILE), content_of(state, target)) for state in states}

    assert outcomes() == {(b"new", b"old"), (None, b"new")}
    disk.sync_folder(DATA / "to")
    assert outcomes() == {(b"new", b"old"), (None, b"new")}
    disk.sync_folder(DATA)
    assert outcomes() == {(None, b"new")}


def test_new_folder_needs_its_parents_sync(disk: SimulatedFileSystem) -> None:
    disk.make_folder(DATA / "new")
    make_durable(disk, DATA / "new" / "file", b"abc")
    assert contents_after_crash(disk, DATA / "new" / "file") == {None, b"abc"}
    disk.sync_folder(DATA)
    assert contents_after_crash(disk, DATA / "new" / "file") == {b"abc"}


def test_unlink_and_link_persist_or_not(disk: SimulatedFileSystem) -> None:
    make_durable(disk, FILE, b"abc")
    disk.link(FILE, DATA / "second")
    disk.unlink(FILE)
    names = {tuple(state.list_folder(DATA)) for state in disk.crash_states(limit=64, seed=1)}
    assert names == {("file",), ("file", "second"), ("second",), ()}
    disk.sync_folder(DATA)
    assert contents_after_crash(disk, DATA / "second") == {b"abc"}


def test_two_names_of_one_file_stay_one_file_after_a_crash(disk: SimulatedFileSystem) -> None:
    make_durable(disk, FILE, b"abc")
    disk.link(FILE, DATA / "second")
    disk.sync_folder(DATA)
    survivor = disk.crash(no_effect)
    survivor.open(FILE, writable=True).write_at(0, b"X")
    assert content_of(survivor, DATA / "second") == b"Xbc"


# -- choosing states ----------------------------------------------------------------------------


def test_few_pending_effects_are_enumerated_and_many_are_sampled_by_seed(
    disk: SimulatedFileSystem,
) -> None:
    file = make_durable(disk, FILE, bytes(40 * SECTOR))
    file.write_at(0, b"a" * 3 * SECTOR)
    assert len(list(disk.crash_states(limit=8, seed=1))) == 8
    file.write_at(0, b"b" * 40 * SECTOR)
    first = [state.persisted for state in disk.crash_states(limit=300, seed=1)]
    assert first == [state.persisted for state in disk.crash_states(limit=300, seed=1)]
    assert first != [state.persisted for state in disk.crash_states(limit=300, seed=2)]
    assert len(set(first)) == 300
    assert {len(first[0]), len(first[1])} == {0, 43}


def test_survivors_are_independent_of_the_disk_and_of_each_other(
    disk: SimulatedFileSystem,
) -> None:
    make_durable(disk, FILE, b"abc")
    one, other = disk.crash(no_effect), disk.crash(no_effect)
    one.open(FILE, writable=True).write_at(0, b"X")
    assert (content_of(one), content_of(other), content_of(disk)) == (b"Xbc", b"abc", b"abc")
    assert one.trace != []
    assert other.trace[0].kind == "stat"


# -- failing calls ------------------------------------------------------------------------------


def test_nth_call_of_a_kind_fails_once(disk: SimulatedFileSystem) -> None:
    file = make_durable(disk, FILE, b"abc")
    disk.fail("write", 2, errno.EIO)
    file.write_at(0, b"1")
    with pytest.raises(OSError, match="Input/output error"):
        file.write_at(0, b"2")
    file.write_at(1, b"3")
    assert content_of(disk) == b"13c"


def test_fault_for_ever_lasts_until_healed(disk: SimulatedFileSystem) -> None:
    disk.fail("open", 1, errno.ENOSPC, for_ever=True)
    for _ in range(3):
        with pytest.raises(OSError, match="No space left"):
            disk.open(FILE, create=True)
    assert not disk.exists(FILE)
    disk.heal()
    disk.open(FILE, create=True).close()


def test_short_write_writes_its_beginning_and_fails(disk: SimulatedFileSystem) -> None:
    file = make_durable(disk, FILE, b"abc")
    disk.fail("write", 1, errno.ENOSPC, written_bytes=2)
    with pytest.raises(OSError, match="No space left"):
        file.write_at(0, b"XYZ")
    assert content_of(disk) == b"XYc"


def test_failed_sync_cleans_pages_so_that_the_next_sync_does_not_save_them(
    disk: SimulatedFileSystem,
) -> None:
    file = make_durable(disk, FILE, b"a" * SECTOR * 2)
    file.write_at(0, b"b")
    disk.fail("sync", 1, errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    file.write_at(SECTOR, b"c")
    file.sync()
    assert content_of(disk) == b"b" + b"a" * 511 + b"c" + b"a" * 511
    states = contents_after_crash(disk)
    assert {(s[0:1], s[SECTOR : SECTOR + 1]) for s in states if s} == {(b"a", b"c"), (b"b", b"c")}
    file.forget_cached()
    assert content_of(disk) == b"a" * SECTOR + b"c" + b"a" * 511


def test_mapped_pages_are_not_forgotten_as_long_as_a_view_lives(disk: SimulatedFileSystem) -> None:
    file = make_durable(disk, FILE, bytes(PAGE))
    mapping = file.map(PAGE, writable=True)
    mapping.array[0] = 1
    disk.fail("mapping_sync", 1, errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        mapping.sync(0, PAGE)
    view = mapping.array[:1]
    mapping.close()
    file.forget_cached()
    assert file.read_at(0, 1) == b"\1"
    del view
    file.forget_cached()
    assert file.read_at(0, 1) == b"\0"


def test_full_disk_refuses_writes_and_reservations_until_space_returns() -> None:
    disk = SimulatedFileSystem(capacity_bytes=4 * PAGE)
    file = disk.open(Path("/a"), create=True)
    file.reserve(0, 3 * PAGE)
    file.write_at(0, b"x" * 3 * PAGE)
    other = disk.open(Path("/b"), create=True)
    with pytest.raises(OSError, match="No space left"):
        other.reserve(0, 2 * PAGE)
    with pytest.raises(OSError, match="No space left"):
        other.write_at(0, b"y" * 2 * PAGE)
    assert other.size() == PAGE
    assert disk.free_bytes(Path("/")) == 0
    disk.unlink(Path("/a"))
    assert disk.free_bytes(Path("/")) == 0
    file.close()  # the blocks of an unlinked file come back with its last close
    assert disk.free_bytes(Path("/")) == 3 * PAGE
    other.write_at(PAGE, b"z" * 3 * PAGE)


# -- crash points, restarts, locks --------------------------------------------------------------


def scenario(disk: SimulatedFileSystem) -> None:
    file = disk.open(DATA / "tmp", create=True)
    try:
        file.write_at(0, b"abc")
        file.sync()
        disk.rename(DATA / "tmp", FILE)
        disk.sync_folder(DATA)
    finally:
        file.close()
        disk.unlink(DATA / "tmp")


@pytest.mark.parametrize("after", [False, True])
def test_crash_at_every_call_leaves_the_old_or_the_whole_new_file(after: bool) -> None:
    complete = SimulatedFileSystem()
    complete.make_folder(DATA)
    complete.trace.clear()
    scenario(complete)
    states = 0
    for nth in range(1, len(complete.trace) + 1):
        disk = SimulatedFileSystem()
        disk.make_folder(DATA)
        disk.sync_folder(Path("/"))
        disk.crash_at(nth, after=after)
        with pytest.raises(SimulatedCrash):
            scenario(disk)
        for survivor in disk.crash_states(limit=64, seed=nth):
            assert content_of(survivor) in (None, b"abc")
            states += 1
    assert states > 15


def test_rename_before_the_sync_is_caught_as_a_lost_file(disk: SimulatedFileSystem) -> None:
    file = disk.open(DATA / "tmp", create=True)
    file.write_at(0, b"abc")
    disk.rename(DATA / "tmp", FILE)
    disk.sync_folder(DATA)
    assert contents_after_crash(disk) == {b"", b"\0\0\0", b"abc"}


def test_dead_machine_takes_no_more_calls_or_stores(disk: SimulatedFileSystem) -> None:
    file = make_durable(disk, FILE, bytes(PAGE))
    mapping = file.map(PAGE, writable=True)
    disk.crash_at(1, kind="unlink", after=True)
    with pytest.raises(SimulatedCrash):
        disk.unlink(DATA / "absent")
    mapping.array[0] = 1
    with pytest.raises(SimulatedCrash):
        file.write_at(0, b"x")
    assert contents_after_crash(disk) == {bytes(PAGE)}


def test_restart_keeps_what_was_written_and_drops_the_locks(disk: SimulatedFileSystem) -> None:
    file = make_durable(disk, FILE, b"abc")
    file.write_at(0, b"X")
    disk.lock(DATA / "LOCK", "first")
    again = disk.restart()
    assert content_of(again) == b"Xbc"
    again.lock(DATA / "LOCK", "second").release()
    with pytest.raises(SimulatedCrash):
        file.read_at(0, 1)
    assert content_of(again.crash(no_effect)) == b"abc"


def test_locks_collide_between_instances_of_one_disk(disk: SimulatedFileSystem) -> None:
    other = disk.other_process()
    lock = disk.lock(DATA / "LOCK", "first")
    with pytest.raises(BlockingIOError):
        other.lock(DATA / "LOCK", "second")
    assert content_of(other, DATA / "LOCK") == b"first"
    lock.release()
    other.lock(DATA / "LOCK", "second")
    with pytest.raises(BlockingIOError):
        disk.lock(DATA / "LOCK", "first")


def test_trace_names_every_call_and_its_path(disk: SimulatedFileSystem) -> None:
    disk.trace.clear()
    scenario(disk)
    kinds = [call.kind for call in disk.trace]
    assert kinds == ["open", "write", "sync", "rename", "sync_folder", "unlink"]
    assert disk.trace[0].path == "/data/tmp"
