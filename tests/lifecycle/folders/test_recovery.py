from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lifecycle.dying_folders import (
    Died,
    DyingFileSystem,
    Repair,
    identify,
    make_file,
    make_folders,
    recover,
    tree,
)
from tierdex.errors import CorruptFileError
from tierdex.filesystem import LocalFileSystem
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.folders.folder_listing import list_folders
from tierdex.lifecycle.folders.recovery import plan_recovery
from tierdex.lifecycle.paths import DataPaths

S = FileState


@pytest.fixture
def paths(tmp_path):
    return make_folders(tmp_path / "data")


def test_new_data_folder_gets_its_folders(tmp_path):
    paths = DataPaths(tmp_path / "new" / "data")
    assert recover(paths)[1] == []
    assert all(folder.is_dir() for folder in paths.folders)


def test_clean_folder_is_left_as_it_is(paths):
    make_file(paths, S.COMPACTED, 1)
    make_file(paths, S.SEALED, 2)
    make_file(paths, S.UNSEALED, 3)
    before = tree(paths)
    recovered, files = recover(paths)
    assert files == [("compacted", 1), ("sealed", 2), ("unsealed", 3)]
    assert tree(paths) == before
    assert (recovered.removed, recovered.quarantined) == ([], [])


def test_temporary_files_and_the_ready_file_are_removed(paths):
    for state in (S.UNSEALED, S.SEALED, S.COMPACTED):
        paths.temporary(state, 1).write_text("half")
    paths.ready.write_text("empty")
    recovered, files = recover(paths)
    assert (files, tree(paths)) == ([], [])
    assert len(recovered.removed) == 4


def test_foreign_name_is_quarantined_and_reported(paths):
    (paths.folder(S.SEALED) / "notes.txt").write_text("hello")
    recovered, _ = recover(paths)
    assert tree(paths) == ["quarantine/sealed-notes.txt"]
    assert recovered.quarantined == [(paths.quarantine / "sealed-notes.txt", "not a name of ours")]


@pytest.mark.parametrize("state", [S.UNSEALED, S.SEALED, S.COMPACTED])
def test_file_that_does_not_open_is_quarantined(paths, state):
    paths.path_of(state, 5).write_text("noise")
    recovered, files = recover(paths)
    assert files == []
    assert [reason for _, reason in recovered.quarantined] == ["not an index file"]
    assert [name.split("/")[0] for name in tree(paths)] == ["quarantine"]


def test_quarantine_never_overwrites_what_lies_there(paths):
    for content in ("one", "two", "three"):
        (paths.folder(S.SEALED) / "x").write_text(content)
        recover(paths)
    assert sorted(p.read_text() for p in paths.quarantine.iterdir()) == ["one", "three", "two"]


@pytest.mark.parametrize(("earlier", "later"), [(S.SEALED, S.COMPACTED), (S.UNSEALED, S.SEALED)])
@pytest.mark.parametrize("good", [True, False])
def test_of_two_copies_the_later_wins_if_it_verifies(paths, earlier, later, good):
    make_file(paths, earlier, 5)
    make_file(paths, later, 5, good=good)
    _, files = recover(paths)
    kept = later if good or earlier is S.UNSEALED else earlier  # unsealed: sealed anew
    assert files == [(kept.value, 5)]
    assert tree(paths) == [f"{kept.value}/5"]


def test_later_copy_that_does_not_open_is_removed_beside_an_earlier(paths):
    make_file(paths, S.SEALED, 5)
    paths.path_of(S.COMPACTED, 5).write_text("noise")
    recovered, files = recover(paths)
    assert files == [("sealed", 5)]
    assert recovered.quarantined == []


def test_all_unsealed_but_the_newest_are_sealed(paths):
    for number in (1, 2, 3):
        make_file(paths, S.UNSEALED, number)
    _, files = recover(paths)
    assert files == [("sealed", 1), ("sealed", 2), ("unsealed", 3)]


def test_newest_unsealed_with_a_footer_is_sealed_by_its_rename(paths):
    make_file(paths, S.UNSEALED, 3, sealed=True)
    assert recover(paths)[1] == [("sealed", 3)]


def test_empty_unsealed_file_behind_a_newer_one_is_removed(paths):
    make_file(paths, S.UNSEALED, 1, items=0)
    make_file(paths, S.UNSEALED, 2, items=0)
    assert recover(paths)[1] == [("unsealed", 2)]
    assert tree(paths) == ["unsealed/2"]


def test_unsealed_file_that_cannot_be_sealed_is_quarantined(paths):
    make_file(paths, S.UNSEALED, 1, good=False)
    make_file(paths, S.UNSEALED, 2)
    recovered, files = recover(paths)
    assert files == [("unsealed", 2)]
    assert recovered.quarantined[0][1] == "the header is broken"


@pytest.mark.parametrize("state", [S.SEALED, S.COMPACTED])
def test_local_copy_of_a_published_file_is_dropped(paths, state):
    make_file(paths, state, 5)
    make_file(paths, state, 6)
    assert recover(paths, published=[5])[1] == [(state.value, 6)]


def test_both_copies_of_a_published_file_are_dropped(paths):
    make_file(paths, S.SEALED, 5)
    make_file(paths, S.COMPACTED, 5)
    assert recover(paths, published=[5])[1] == []
    assert tree(paths) == []


def test_unsealed_file_of_an_old_copy_of_the_folder_is_not_gone_on_with(paths):
    make_file(paths, S.UNSEALED, 5)
    recovered, files = recover(paths, published=[5])
    assert files == []
    assert "old copy" in recovered.quarantined[0][1]


def test_parts_beside_a_sound_merge_are_removed(paths):
    make_file(paths, S.COMPACTED, 1)
    make_file(paths, S.SEALED, 2)
    make_file(paths, S.COMPACTED, 3, uuid=30, parts=(1, 2, 3))
    make_file(paths, S.COMPACTED, 4)
    assert recover(paths)[1] == [("compacted", 3), ("compacted", 4)]
    assert tree(paths) == ["compacted/3", "compacted/4"]


def test_merge_that_does_not_verify_is_quarantined_and_its_parts_stay(paths):
    make_file(paths, S.COMPACTED, 1)
    make_file(paths, S.SEALED, 2)
    make_file(paths, S.COMPACTED, 2)
    make_file(paths, S.COMPACTED, 3, uuid=30, parts=(1, 2, 3), good=False)
    recovered, files = recover(paths)
    assert files == [("compacted", 1), ("compacted", 2)]
    assert len(recovered.quarantined) == 1


def test_sealed_copy_of_a_part_whose_number_the_merge_took_is_removed(paths):
    make_file(paths, S.SEALED, 3)
    make_file(paths, S.COMPACTED, 3, uuid=30, parts=(1, 2, 3))
    assert recover(paths)[1] == [("compacted", 3)]
    assert tree(paths) == ["compacted/3"]


def test_strangers_with_one_number_are_told_apart(paths):
    make_file(paths, S.SEALED, 3)
    make_file(paths, S.COMPACTED, 3, uuid=30)
    recovered, files = recover(paths)
    assert files == [("compacted", 3)]
    assert "another file has its number" in recovered.quarantined[0][1]


def test_disk_that_cannot_be_read_ends_the_recovery(paths):
    make_file(paths, S.SEALED, 3)

    def unreadable(state, path):
        raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        list_folders(LocalFileSystem(), paths, unreadable)
    assert tree(paths) == ["sealed/3"]


def test_plan_of_an_empty_folder_is_empty(paths):
    assert plan_recovery(list_folders(LocalFileSystem(), paths, identify), lambda _: True) == []


def make_everything(paths):
    make_file(paths, S.UNSEALED, 9)
    make_file(paths, S.UNSEALED, 8)
    make_file(paths, S.SEALED, 7)
    make_file(paths, S.COMPACTED, 7)
    make_file(paths, S.SEALED, 6)
    make_file(paths, S.COMPACTED, 6, good=False)
    make_file(paths, S.COMPACTED, 5)
    make_file(paths, S.COMPACTED, 2)
    make_file(paths, S.COMPACTED, 3, uuid=30, parts=(2, 3))
    paths.path_of(S.SEALED, 1).write_text("noise")
    paths.ready.write_text("")
    paths.temporary(S.COMPACTED, 8).write_text("half")


WANTED = [("compacted", 3), ("sealed", 6), ("compacted", 7), ("sealed", 8), ("unsealed", 9)]


def test_everything_at_once(paths):
    make_everything(paths)
    recovered, files = recover(paths, published=[5])
    assert files == WANTED
    assert len(recovered.quarantined) == 1


def test_recovery_cut_off_at_any_call_is_finished_by_the_next(tmp_path):
    for last in range(200):
        paths = make_folders(tmp_path / str(last))
        make_everything(paths)
        try:
            recover(paths, published=[5], filesystem=DyingFileSystem(last))
        except Died:
            assert recover(paths, published=[5])[1] == WANTED, last
            continue
        assert last > 20
        return
    raise AssertionError("recovery never ended")


def test_recovery_twice_changes_nothing(paths):
    make_everything(paths)
    recover(paths, published=[5])
    before = tree(paths)
    assert recover(paths, published=[5])[1] == WANTED
    assert tree(paths) == before


cells = st.sampled_from([None, "good", "bad", "noise"])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(cells, cells, cells), max_size=4), st.sets(st.integers(1, 4)))
def test_good_file_is_never_lost_and_none_is_left_twice(tmp_path_factory, table, published):
    paths = make_folders(tmp_path_factory.mktemp("data"))
    good: set[int] = set()
    for number, row in enumerate(table, 1):
        for state, cell in zip((S.UNSEALED, S.SEALED, S.COMPACTED), row, strict=True):
            if cell == "noise":
                paths.path_of(state, number).write_text("noise")
            elif cell is not None:
                make_file(paths, state, number, good=cell == "good")
                good |= {number} if cell == "good" else set()
    _, files = recover(paths, published=published)
    numbers = [number for _, number in files]
    assert len(set(numbers)) == len(numbers)
    kept_in_quarantine = {int(p.name.split("-")[1][:20]) for p in paths.quarantine.iterdir()}
    assert good <= set(numbers) | published | kept_in_quarantine
    assert recover(paths, published=published)[1] == files


def test_fakes_agree_with_the_protocol(paths):
    bad = make_file(paths, S.UNSEALED, 1, good=False)
    assert Repair().verify(S.UNSEALED, bad) != []
    with pytest.raises(CorruptFileError):
        Repair().seal(bad)
    assert len(list(product(S, repeat=2))) == 25
