"""A reader beside a live writer sees every entry in every state, and writes nothing."""

from __future__ import annotations

import errno
import os

import pytest

from tests.compactor_steps import step
from tests.index_service.conftest import offsets, put
from tierdex.errors import InvalidRequestError, NotFoundError, ReadOnlyError
from tierdex.filesystem import LocalFileSystem
from tierdex.index_service.view import folder_follower
from tierdex.index_service.view.local_recovery import open_local
from tierdex.testing.components import components_of


@pytest.fixture
def reader(make_index):
    """Return a factory of readers of the writer's folder."""
    return lambda **settings: make_index(read_only=True, **settings)


def listing(folder):
    return sorted((path, path.stat().st_mtime_ns) for path in folder.rglob("*"))


def test_every_state_is_seen_after_a_refresh(index, reader):
    put(index, "A", 1, durability="os")
    beside = reader()
    compactor = components_of(index).writing.compactor
    assert offsets(beside.query("orders", key="A")) == [1]
    put(index, "A", 2, durability="os")
    assert offsets(beside.query("orders", key="A")) == [1]
    seen = []
    index.roll()
    for _ in range(5):
        beside.refresh()
        answer = beside.query("orders", key="A")
        assert (offsets(answer), answer.complete) == ([2, 1], True)
        seen.append(beside.files()[0].state)
        step(compactor)
    assert seen[:3] == ["unsealed", "sealed", "compacted"]
    assert seen[-1] == "uploaded"


def test_a_published_file_never_leaves_the_view_in_between(index, reader):
    """Between looking at the folder and reading the manifest, the file is in neither."""
    put(index, "A", 1, durability="os")
    beside = reader()
    index.roll()
    index.run_compaction()
    parts = components_of(beside)
    vanished = parts.read_view.folder_follower.refresh()
    assert [handle.number for handle in vanished] == [
        components_of(index).table.snapshot().files[0].number
    ]
    assert offsets(beside.query("orders", key="A")) == [1]
    beside.refresh()
    assert [entry.state for entry in beside.query("orders", key="A").entries] == ["uploaded"]


def test_a_vanished_file_stays_until_the_manifest_can_be_read(index, reader, monkeypatch):
    from tierdex.errors import StoreUnavailableError

    put(index, "A", 1, durability="os")
    beside = reader()
    index.roll()
    index.run_compaction()
    log = components_of(beside).read_view.manifests.log_of(components_of(index).settings.node)

    def down():
        raise StoreUnavailableError("down")

    with monkeypatch.context() as patch:
        patch.setattr(log, "refresh", down)
        beside.refresh()
    assert offsets(beside.query("orders", key="A")) == [1]
    beside.refresh()
    assert [entry.state for entry in beside.query("orders", key="A").entries] == ["uploaded"]


def test_a_reader_writes_nothing(index, reader, tmp_path):
    put(index, "A", 1, durability="disk")
    index.roll()
    put(index, "A", 2, durability="disk")
    before = listing(tmp_path)
    beside = reader()
    beside.query("orders", key="A")
    with pytest.raises(ReadOnlyError):
        put(beside, "A", 3)
    with pytest.raises(ReadOnlyError):
        beside.run_compaction()
    with pytest.raises(ReadOnlyError):
        beside.expire(before=0)
    beside.close()
    assert listing(tmp_path) == before


def test_a_reader_takes_the_node_of_the_folder(make_index, tmp_path):
    writer = make_index(tmp_path / "d", store=str(tmp_path / "s"), node="a")
    put(writer, "A", 1, durability="os")
    beside = make_index(tmp_path / "d", store=str(tmp_path / "s"), read_only=True)
    before = beside.query("orders", key="A", max_count=1)
    assert before.entries[0].node == "a"
    writer.roll()
    writer.run_compaction()
    beside.refresh()
    assert [file.file_id for file in beside.files()] == [before.entries[0].file_id]
    with pytest.raises(InvalidRequestError) as caught:
        make_index(tmp_path / "d", store=str(tmp_path / "s"), read_only=True, node="b")
    assert caught.value.field == "node"


def test_a_damaged_file_and_a_quarantined_one_are_missing(index, reader, tmp_path):
    put(index, "A", 1, durability="os")
    index.roll()
    step(components_of(index).writing.compactor)
    (sealed,) = (tmp_path / "data" / "sealed").iterdir()
    sealed.write_bytes(b"nonsense")
    (tmp_path / "data" / "quarantine" / "sealed-7").write_bytes(b"x")
    answer = reader().query("orders", key="A")
    assert not answer.complete
    assert sorted(name for name, _ in answer.missing) == sorted(
        [f"sealed/{sealed.name}", "sealed-7"]
    )


def test_a_folder_that_is_not_there_is_no_empty_index(make_index, tmp_path):
    with pytest.raises(NotFoundError):
        make_index(tmp_path / "typo", read_only=True)
    assert not (tmp_path / "typo").exists()


def test_a_folder_that_cannot_be_listed_is_missing(index, reader, monkeypatch):
    put(index, "A", 1, durability="os")
    beside = reader()

    def fail(*_):
        raise PermissionError(13, "no")

    monkeypatch.setattr(folder_follower, "list_beside_writer", fail)
    beside.refresh()
    answer = beside.query("orders", key="A")
    assert (offsets(answer), answer.complete) == ([1], False)


def test_files_that_move_on_at_every_look_are_all_shown_in_the_end(index, reader, monkeypatch):
    """Twenty files, of which one moves on each time the folder was listed: none starts all again."""
    beside = reader()
    for number in range(20):
        put(index, "A", number, durability="os")
        index.roll()
    compactor = components_of(index).writing.compactor
    listed = folder_follower.list_beside_writer

    def list_and_let_one_move_on(*where):
        found = listed(*where)
        step(compactor)
        return found

    monkeypatch.setattr(folder_follower, "list_beside_writer", list_and_let_one_move_on)
    beside.refresh()
    answer = beside.query("orders", key="A")
    assert (offsets(answer), answer.complete) == (list(range(19, -1, -1)), True)


class _Moving(LocalFileSystem):
    """The writer moves a file between its opening and the look at its time."""

    def modified_ms(self, path):
        raise FileNotFoundError(errno.ENOENT, "moved", str(path))


def test_file_that_moves_while_it_is_opened_leaves_no_descriptor(index):
    put(index, "A", 1, durability="os")
    index.roll()
    compactor = components_of(index).writing.compactor
    while index.files()[0].state != "sealed":
        step(compactor)
    (handle,) = components_of(index).table.snapshot().files
    before = os.listdir("/proc/self/fd")
    with pytest.raises(FileNotFoundError):
        open_local(_Moving(), handle.node, handle.state, handle.number, handle.path)
    assert os.listdir("/proc/self/fd") == before
