"""A quarantined file is kept, and named in every answer until the operator takes it away."""

from __future__ import annotations

import pytest

from tierdex.filesystem import LocalFileSystem
from tierdex.index_service.view.quarantine import Quarantine
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.paths import DataPaths
from tierdex.lifecycle.table.file_handle import FileHandle
from tierdex.lifecycle.table.file_table import FileTable


class Files(LocalFileSystem):
    """Calls `before_rename`, which may fail, ahead of every rename."""

    def before_rename(self):
        pass

    def rename(self, source, target):
        self.before_rename()
        super().rename(source, target)


@pytest.fixture
def files():
    return Files()


@pytest.fixture
def paths(tmp_path):
    paths = DataPaths(tmp_path)
    for folder in paths.folders:
        folder.mkdir()
    return paths


@pytest.fixture
def handle(paths):
    path = paths.path_of(FileState.SEALED, 7)
    path.write_bytes(b"damaged")
    return FileHandle(number=7, node="n", uuid=bytes(16), state=FileState.SEALED, path=path)


@pytest.fixture
def table(handle):
    table = FileTable()
    table.insert(handle)
    return table


def names(quarantine):
    return [name for name, _ in quarantine.missing()]


NAME = "sealed-00000000000000000007"


def test_a_file_is_moved_and_named_with_its_reason(files, paths, table, handle):
    quarantine = Quarantine(files, paths, table)
    quarantine.put(handle, "bad page")
    assert quarantine.missing() == [(NAME, "bad page")]
    assert (paths.quarantine / NAME).read_bytes() == b"damaged"
    assert not handle.path.exists()
    assert len(table) == 0
    quarantine.refresh()
    assert quarantine.missing() == [(NAME, "bad page")]


def test_a_restart_still_names_it_and_removal_by_hand_ends_it(files, paths, table, handle):
    Quarantine(files, paths, table).put(handle, "bad page")
    quarantine = Quarantine(files, paths, table)
    assert names(quarantine) == [NAME]
    (paths.quarantine / NAME).unlink()
    quarantine.refresh()
    assert names(quarantine) == []


def test_it_is_named_while_it_moves(files, paths, table, handle):
    quarantine = Quarantine(files, paths, table)
    seen = []

    def look():
        quarantine.refresh()
        seen.append((names(quarantine), len(table)))

    files.before_rename = look
    quarantine.put(handle, "bad page")
    assert seen == [([NAME], 0)]


def test_it_stays_named_when_it_cannot_be_moved(files, paths, table, handle):
    quarantine = Quarantine(files, paths, table)

    def fail():
        raise OSError(5, "no")

    files.before_rename = fail
    with pytest.raises(OSError, match="no"):
        quarantine.put(handle, "bad page")
    quarantine.refresh()
    assert names(quarantine) == [NAME]
