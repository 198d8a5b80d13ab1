import pytest

from tests.lifecycle.dying_folders import (
    Died,
    DyingFileSystem,
    make_file,
    make_folders,
    recover,
    tree,
)
from tierdex.errors import CorruptFileError
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.folders.transition import move_by_rename, swap_in

S = FileState


@pytest.fixture
def paths(tmp_path):
    return make_folders(tmp_path / "data")


def compact(filesystem, paths, *, good=True, verify=None):
    """Write file 7 compacted in place of the sealed one."""

    def write(temporary):
        filesystem.open(temporary, create=True).close()
        scratch = make_file(paths, S.COMPACTED, 7_777, uuid=7, good=good)
        temporary.write_text(scratch.read_text())
        scratch.unlink()
        return "summary"

    return swap_in(
        filesystem,
        target=paths.path_of(S.COMPACTED, 7),
        old=[paths.path_of(S.SEALED, 7)],
        write=write,
        verify=verify or (lambda path: []),
    )


def test_rename_moves_the_file_and_syncs_both_folders(paths):
    filesystem = DyingFileSystem()
    source = make_file(paths, S.UNSEALED, 7, sealed=True)
    move_by_rename(filesystem, source, paths.path_of(S.SEALED, 7))
    assert filesystem.calls == ["rename", "sync_folder", "sync_folder"]
    assert tree(paths) == ["sealed/7"]


def test_rename_done_again_is_harmless(paths):
    source, target = make_file(paths, S.UNSEALED, 7), paths.path_of(S.SEALED, 7)
    for _ in range(2):
        move_by_rename(DyingFileSystem(), source, target)
    assert tree(paths) == ["sealed/7"]


def test_rename_of_nothing_is_an_error(paths):
    with pytest.raises(FileNotFoundError):
        move_by_rename(DyingFileSystem(), paths.path_of(S.UNSEALED, 7), paths.path_of(S.SEALED, 7))


def test_swap_goes_through_its_steps_in_order(paths):
    filesystem = DyingFileSystem()
    make_file(paths, S.SEALED, 7)
    assert compact(filesystem, paths) == "summary"
    assert tree(paths) == ["compacted/7"]
    wanted = ["unlink", "open", "open", "rename", "sync_folder", "sync_folder", "unlink"]
    assert filesystem.calls == [*wanted, "sync_folder"]


def test_file_that_does_not_verify_is_not_swapped_in(paths):
    make_file(paths, S.SEALED, 7)
    with pytest.raises(CorruptFileError, match="page 3"):
        compact(DyingFileSystem(), paths, verify=lambda path: ["page 3 is bad"])
    assert tree(paths) == ["sealed/7"]


def test_merge_may_take_the_place_of_one_of_its_parts(paths):
    old = [make_file(paths, S.COMPACTED, number) for number in (1, 2)]
    swap_in(
        DyingFileSystem(), target=old[1], old=old, write=lambda p: p.write_text("merged"),
        verify=lambda path: [],
    )  # fmt: skip
    assert tree(paths) == ["compacted/2"]
    assert old[1].read_text() == "merged"


@pytest.mark.parametrize("step", range(4))
def test_crash_at_each_step_of_a_rename_leaves_exactly_one_file(paths, step):
    source = make_file(paths, S.UNSEALED, 7, sealed=True)
    make_file(paths, S.UNSEALED, 8)
    try:
        move_by_rename(DyingFileSystem(step), source, paths.path_of(S.SEALED, 7))
    except Died:
        assert step < 3
    _, files = recover(paths)
    assert files == [("sealed", 7), ("unsealed", 8)]
    assert tree(paths) == ["sealed/7", "unsealed/8"]


@pytest.mark.parametrize("step", range(9))
def test_crash_at_each_step_of_a_swap_leaves_exactly_one_file(paths, step):
    make_file(paths, S.SEALED, 7)
    try:
        compact(DyingFileSystem(step), paths)
    except Died:
        assert step < 8
    _, files = recover(paths)
    assert files == [("compacted" if step >= 4 else "sealed", 7)]
    assert len(tree(paths)) == 1


@pytest.mark.parametrize("step", range(4, 9))
def test_crash_after_a_swap_that_went_bad_falls_back_to_the_sealed_copy(paths, step):
    make_file(paths, S.SEALED, 7)
    try:
        compact(DyingFileSystem(step), paths, good=False)
    except Died:
        assert step < 8
    recovered, files = recover(paths)
    if step < 7:  # the sealed file is still there
        assert files == [("sealed", 7)]
        assert recovered.quarantined == []
    else:  # the only copy: kept, and found out when it is used
        assert files == [("compacted", 7)]
