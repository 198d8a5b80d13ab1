"""One contract for every FileSystem: the machine's own and the simulated one."""

from __future__ import annotations

import errno
import os
import socket
import tempfile
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.simulation.simulated_disk import SimulatedFileSystem
from tierdex.filesystem import FileSystem, LocalFileSystem, make_durable_folder, read_aside


@pytest.fixture(params=["local", "simulated"])
def system(request: pytest.FixtureRequest, tmp_path: Path) -> FileSystem:
    if request.param == "local":
        return LocalFileSystem()
    disk = SimulatedFileSystem()
    disk.make_folder(tmp_path)
    return disk


def write(system: FileSystem, path: Path, data: bytes) -> None:
    file = system.open(path, create=True)
    file.write_at(0, data)
    file.close()


def read(system: FileSystem, path: Path) -> bytes:
    file = system.open(path)
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


def test_absent_file_is_not_found(system: FileSystem, tmp_path: Path) -> None:
    for call in (system.open, system.file_size, system.modified_ms):
        with pytest.raises(FileNotFoundError):
            call(tmp_path / "absent")
    with pytest.raises(FileNotFoundError):
        system.rename(tmp_path / "absent", tmp_path / "other")
    with pytest.raises(FileNotFoundError):
        system.open(tmp_path / "no folder" / "file", create=True)
    assert not system.exists(tmp_path / "absent")
    assert not system.is_folder(tmp_path / "absent")


def test_write_extends_and_leaves_zeros_in_the_gap(system: FileSystem, tmp_path: Path) -> None:
    file = system.open(tmp_path / "file", create=True)
    file.write_at(5, memoryview(b"abc"))
    file.write_at(6, np.frombuffer(b"XY", np.uint8))
    assert file.size() == 8
    assert file.read_at(0, 100) == b"\0\0\0\0\0aXY"
    assert file.read_at(7, 5) == b"Y"
    assert file.read_at(8, 5) == b""
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.read_at(0, 1)


def test_file_opened_for_reading_refuses_writes(system: FileSystem, tmp_path: Path) -> None:
    write(system, tmp_path / "file", b"abc")
    file = system.open(tmp_path / "file")
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.write_at(0, b"x")
    file.close()
    assert read(system, tmp_path / "file") == b"abc"


def test_exclusive_create_refuses_a_file_that_is_there(system: FileSystem, tmp_path: Path) -> None:
    write(system, tmp_path / "file", b"abc")
    with pytest.raises(FileExistsError):
        system.open(tmp_path / "file", create=True, exclusive=True)


def test_truncate_cuts_and_grows_with_zeros(system: FileSystem, tmp_path: Path) -> None:
    write(system, tmp_path / "file", b"abcdef")
    file = system.open(tmp_path / "file", writable=True)
    file.truncate(2)
    file.truncate(4)
    assert file.read_at(0, 10) == b"ab\0\0"
    file.close()
    assert system.file_size(tmp_path / "file") == 4


def test_reserve_grows_the_file_and_keeps_its_bytes(system: FileSystem, tmp_path: Path) -> None:
    write(system, tmp_path / "file", b"abc")
    file = system.open(tmp_path / "file", writable=True)
    file.reserve(0, 2)
    assert file.size() == 3
    file.reserve(4096, 4096)
    assert file.size() == 8192
    assert file.read_at(0, 3) == b"abc"
    file.close()


def test_mapping_and_file_show_each_others_bytes(system: FileSystem, tmp_path: Path) -> None:
    file = system.open(tmp_path / "file", create=True)
    file.truncate(10_000)
    mapping = file.map(10_000, writable=True)
    mapping.array[9_999] = 7
    file.write_at(1, b"\5")
    assert file.read_at(9_999, 1) == b"\7"
    assert mapping.array[1] == 5
    file.truncate(20_000)  # growing keeps the mapping good
    mapping.array[2] = 6
    assert file.read_at(0, 3) == b"\0\5\6"
    mapping.sync(5_000, 5_000)
    file.close()
    mapping.array[3] = 8  # the mapping outlives the open file
    assert read(system, tmp_path / "file")[3] == 8
    mapping.close()
    assert len(mapping.array) == 0


def test_view_of_a_closed_mapping_stays_readable(system: FileSystem, tmp_path: Path) -> None:
    write(system, tmp_path / "file", b"abc")
    file = system.open(tmp_path / "file")
    mapping = file.map(3, writable=False)
    view = mapping.array[1:]
    mapping.close()
    file.close()
    assert bytes(view) == b"bc"
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 0


def test_mapping_beyond_the_end_is_refused(system: FileSystem, tmp_path: Path) -> None:
    write(system, tmp_path / "file", b"abc")
    file = system.open(tmp_path / "file")
    with pytest.raises(OSError, match="3 bytes"):
        file.map(4, writable=False)
    file.close()


def test_file_cut_while_it_is_being_mapped_is_an_os_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader beside a writer: the seal cuts the file between the look at its size and the mapping."""
    system, look = LocalFileSystem(), os.fstat
    write(system, tmp_path / "file", bytes(10_000))

    def look_then_cut(descriptor: int) -> os.stat_result:
        seen = look(descriptor)
        os.truncate(tmp_path / "file", 5_000)
        return seen

    file = system.open(tmp_path / "file")
    monkeypatch.setattr(os, "fstat", look_then_cut)
    with pytest.raises(OSError, match="cut below 10000 bytes"):
        file.map(10_000, writable=False)
    file.close()


def test_folders_are_made_with_parents_and_listed_in_order(
    system: FileSystem, tmp_path: Path
) -> None:
    folder = tmp_path / "one" / "two"
    system.make_folder(folder)
    system.make_folder(folder)
    for name in ("b", "a", "c"):
        write(system, folder / name, b"")
    assert system.list_folder(folder) == ["a", "b", "c"]
    assert system.list_folder(tmp_path / "absent") == []
    assert system.is_folder(folder)
    assert not system.is_folder(folder / "a")
    assert not system.exists(folder / "a" / "below a file")
    with pytest.raises(NotADirectoryError):
        system.list_folder(folder / "a")
    with pytest.raises(FileExistsError):
        system.make_folder(folder / "a")


def test_rename_replaces_and_open_files_follow(system: FileSystem, tmp_path: Path) -> None:
    system.make_folder(tmp_path / "folder")
    write(system, tmp_path / "a", b"new")
    write(system, tmp_path / "folder" / "b", b"old")
    file = system.open(tmp_path / "a", writable=True)
    old = system.open(tmp_path / "folder" / "b")
    system.rename(tmp_path / "a", tmp_path / "folder" / "b")
    file.write_at(0, b"N")
    assert read(system, tmp_path / "folder" / "b") == b"New"
    assert old.read_at(0, 3) == b"old"
    assert not system.exists(tmp_path / "a")
    file.close()
    old.close()


def test_rename_of_a_file_onto_a_folder_is_refused(system: FileSystem, tmp_path: Path) -> None:
    system.make_folder(tmp_path / "folder")
    write(system, tmp_path / "a", b"")
    with pytest.raises(IsADirectoryError):
        system.rename(tmp_path / "a", tmp_path / "folder")
    write(system, tmp_path / "folder" / "b", b"")
    system.make_folder(tmp_path / "other")
    with pytest.raises(OSError) as refused:  # noqa: PT011
        system.rename(tmp_path / "other", tmp_path / "folder")
    assert refused.value.errno == errno.ENOTEMPTY


def test_link_gives_a_second_name_and_never_replaces(system: FileSystem, tmp_path: Path) -> None:
    write(system, tmp_path / "a", b"abc")
    write(system, tmp_path / "taken", b"")
    system.link(tmp_path / "a", tmp_path / "b")
    with pytest.raises(FileExistsError):
        system.link(tmp_path / "a", tmp_path / "taken")
    system.unlink(tmp_path / "a")
    assert read(system, tmp_path / "b") == b"abc"


def test_unlink_of_an_absent_name_is_fine_and_open_files_live_on(
    system: FileSystem, tmp_path: Path
) -> None:
    write(system, tmp_path / "a", b"abc")
    file = system.open(tmp_path / "a")
    system.unlink(tmp_path / "a")
    system.unlink(tmp_path / "a")
    assert file.read_at(0, 3) == b"abc"
    file.close()


def test_syncs_and_free_bytes_answer(system: FileSystem, tmp_path: Path) -> None:
    write(system, tmp_path / "a", b"abc")
    file = system.open(tmp_path / "a", writable=True)
    file.sync()
    assert file.read_cached(1, 9) in (b"bc", None)
    assert file.read_uncached(1, 9) == b"bc"
    file.forget_cached()
    assert file.read_cached(0, 3) in (None, b"abc")  # tmpfs is memory
    assert read_aside(file, 1, 9) == b"bc"
    assert file.read_at(0, 3) == b"abc"
    file.close()
    system.sync_folder(tmp_path)
    with pytest.raises(FileNotFoundError):
        system.sync_folder(tmp_path / "absent")
    assert system.free_bytes(tmp_path) > 0
    assert system.modified_ms(tmp_path / "a") > 0


def test_stat_tells_what_a_name_names(system: FileSystem, tmp_path: Path) -> None:
    write(system, tmp_path / "a", b"abc")
    found = system.stat(tmp_path / "a")
    assert found is not None
    assert (found.kind, found.size, found.is_link) == ("file", 3, False)
    assert found.modified_ms == system.modified_ms(tmp_path / "a")
    with closing(system.open(tmp_path / "a")) as file:
        system.rename(tmp_path / "a", tmp_path / "b")
        write(system, tmp_path / "a", b"other")
        moved, other = system.stat(tmp_path / "b"), system.stat(tmp_path / "a")
        assert moved is not None
        assert other is not None
        assert file.stat().identity == moved.identity == found.identity != other.identity
    folder = system.stat(tmp_path)
    assert folder is not None
    assert folder.kind == "folder"
    assert system.stat(tmp_path / "absent") is None
    assert system.stat(tmp_path / "a" / "below a file") is None


def test_what_is_no_file_is_told_and_its_opening_never_waits(tmp_path: Path) -> None:
    system = LocalFileSystem()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "nowhere").symlink_to("absent")
    (tmp_path / "up").symlink_to(tmp_path)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "socket"))
    kinds = {name: system.stat(tmp_path / name) for name in os.listdir(tmp_path)}
    assert {name: found and (found.kind, found.is_link) for name, found in kinds.items()} == {
        "pipe": ("pipe", False), "loop": None, "nowhere": None, "up": ("folder", True),
        "socket": ("socket", False),
    }  # fmt: skip
    device = system.stat(Path("/dev/null"))
    assert device is not None
    assert device.kind == "device"
    with closing(system.open(tmp_path / "pipe")) as pipe, pytest.raises(OSError, match="seek"):
        pipe.read_at(0, 1)


def test_read_aside_leaves_in_memory_what_was_there_and_nothing_else() -> None:
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:  # on a device, if the sources are
        path = Path(folder, "a")
        write(LocalFileSystem(), path, bytes(1 << 20))
        with closing(LocalFileSystem().open(path, writable=True)) as file:
            file.sync()
            file.forget_cached()
            places = [(70_000, 100_000), (170_000, 4096), (900_000, 1000)]
            was_here = [file.read_cached(*place) is not None for place in places]
            assert read_aside(file, *places[0]) == bytes(100_000)
            assert [file.read_cached(*place) is not None for place in places] == was_here
            file.read_at(*places[0])
            assert read_aside(file, *places[0]) == bytes(100_000)
            assert file.read_cached(*places[0]) == bytes(100_000)


def test_lock_is_exclusive_names_its_holder_and_ends_with_release(
    system: FileSystem, tmp_path: Path
) -> None:
    lock = system.lock(tmp_path / "LOCK", "pid 1 on host a")
    with pytest.raises(BlockingIOError):
        system.lock(tmp_path / "LOCK", "pid 2")
    assert read(system, tmp_path / "LOCK") == b"pid 1 on host a"
    lock.release()
    assert read(system, tmp_path / "LOCK") == b""
    system.lock(tmp_path / "LOCK", "pid 2").release()


def test_folder_left_by_a_killed_process_is_durable_once_it_is_asked_for() -> None:
    disk = SimulatedFileSystem()
    disk.make_folder(Path("/a"))  # killed here, before the sync of its parent
    make_durable_folder(disk, Path("/a/b/c"))
    states = list(disk.crash_states(limit=64, seed=1))
    assert states
    assert all(state.is_folder(Path("/a/b/c")) for state in states)


def test_parent_that_cannot_be_read_is_no_obstacle_to_a_folder_inside(tmp_path: Path) -> None:
    class Closed(LocalFileSystem):
        def sync_folder(self, path: Path) -> None:
            if path == tmp_path.parent:
                raise PermissionError(errno.EACCES, "closed", str(path))
            super().sync_folder(path)

    make_durable_folder(Closed(), tmp_path / "one" / "two")
    assert (tmp_path / "one" / "two").is_dir()
