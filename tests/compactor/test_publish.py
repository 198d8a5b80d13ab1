"""One file is listed once, whatever fails on its way, and the local copy goes only after that."""

from __future__ import annotations

import shutil

import pytest

from tests.compactor_steps import step
from tests.index_service.conftest import offsets, put
from tierdex.errors import FloorError, StoreUnavailableError
from tierdex.lifecycle.manifests.manifest import Change
from tierdex.testing.components import components_of


@pytest.fixture
def index(make_index, store):
    """An index with one compacted file that waits to be published."""
    index = make_index(store=store)
    put(index, "A", 1)
    index.roll()
    for _ in range(2):
        step(components_of(index).writing.compactor)
    assert [file.state for file in index.files()] == ["compacted"]
    return index


def owned(index):
    return components_of(index).writing.compactor.components.claim.get()


@pytest.mark.parametrize("verb", ["upload", "put_if_absent", "get"])
def test_a_failure_before_the_commit_leaves_the_local_file(index, store, verb, tmp_path):
    store.broken = {verb}
    with pytest.raises(StoreUnavailableError):
        index.run_compaction()
    assert len(list((tmp_path / "data" / "compacted").iterdir())) == 1
    store.broken = set()
    index.run_compaction()
    assert list((tmp_path / "data" / "compacted").iterdir()) == []
    assert len(owned(index).state.files) == 1
    assert offsets(index.query("orders", key="A")) == [1]


def test_a_commit_whose_answer_was_lost_is_not_made_twice(index, store, monkeypatch):
    node = owned(index)
    real = node.publish

    def publish_then_fail(rows, **more):
        real(rows, **more)
        raise StoreUnavailableError("the answer was lost")

    with monkeypatch.context() as patch:
        patch.setattr(node, "publish", publish_then_fail)
        with pytest.raises(StoreUnavailableError):
            index.run_compaction()
    index.run_compaction()
    assert len(owned(index).state.files) == 1
    assert len(store.objects()) == 1
    assert [file.state for file in index.files()] == ["uploaded"]


def test_a_floor_that_rose_during_the_upload_makes_a_fresh_name(index, store, monkeypatch):
    node, real, first = owned(index), store.upload, []

    def upload(key, source, length):
        real(key, source, length)
        if not first:
            first.append(key)
            node.commit(lambda state: Change(floor=state.number + 1))

    monkeypatch.setattr(store, "upload", upload)
    index.run_compaction()
    (row,) = node.state.files.values()
    assert row.object_key != first[0]
    assert offsets(index.query("orders", key="A")) == [1]


def test_a_floor_that_always_rises_is_an_error_in_the_end(index, store, monkeypatch):
    node, real = owned(index), store.upload

    def upload(key, source, length):
        real(key, source, length)
        node.commit(lambda state: Change(floor=state.number + 1))

    monkeypatch.setattr(store, "upload", upload)
    with pytest.raises(FloorError):
        index.run_compaction()
    assert [file.state for file in index.files()] == ["compacted"]


def test_the_sidecar_is_cut_from_the_local_file(index, store):
    index.run_compaction()
    store.calls.clear()
    answer = index.query("orders", key="A", explain=True)
    assert (answer.explain.sidecar_requests, answer.explain.requests) == (0, 1)
    assert [verb for verb, _ in store.calls] == ["get"]


ALL_VERBS = {"get", "list", "put_if_absent", "upload", "delete"}


def watch(index, monkeypatch):
    """Ask after every change of the file table; return what was found each time."""
    table, seen = components_of(index).table, []
    change = table.change

    def change_and_ask(**what):
        change(**what)
        seen.append(offsets(index.query("orders", key="A")))

    monkeypatch.setattr(table, "change", change_and_ask)
    return seen


def test_a_superseded_local_copy_and_its_successor_are_never_both_unseen(
    make_index, store, tmp_path, monkeypatch
):
    """An old copy of a folder, whose newest file was published and merged since, under its number."""
    owner = make_index(store=store, node="n", merge_min_files=2)
    put(owner, "B", 0)
    owner.roll()
    owner.run_compaction()
    put(owner, "A", 1)
    owner.roll()
    for _ in range(2):
        step(components_of(owner).writing.compactor)
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    owner.run_compaction()
    assert [file.state for file in owner.files()] == ["uploaded"]
    owner.close()

    store.broken = ALL_VERBS
    copy = make_index(tmp_path / "copy", store=store, node="n", merge_min_files=2)
    assert [file.state for file in copy.files()] == ["compacted"]
    store.broken = set()
    seen = watch(copy, monkeypatch)
    copy.run_compaction()
    assert [file.state for file in copy.files()] == ["uploaded"]
    assert seen
    assert all(found == [1] for found in seen), seen


@pytest.mark.parametrize("state", ["unsealed", "sealed", "compacted"])
def test_a_file_that_lost_its_name_is_published_all_the_same(make_index, store, tmp_path, state):
    index = make_index(store=store)
    put(index, "A", 1)
    index.roll()
    for _ in range(["unsealed", "sealed", "compacted"].index(state)):
        step(components_of(index).writing.compactor)
    (path,) = (tmp_path / "data" / state).iterdir()
    path.unlink()
    put(index, "A", 2)
    index.roll()
    index.run_compaction()
    assert [file.state for file in index.files()] == ["uploaded", "uploaded"]
    assert offsets(index.query("orders", key="A")) == [2, 1]
    assert [index.verify_file(file.file_id) for file in index.files()] == [[], []]
