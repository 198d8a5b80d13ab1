"""Opening: whose folder it is, what a failure leaves behind, what runs when the store is away."""

from __future__ import annotations

import threading

import pytest

from tests.compactor_steps import step
from tests.index_service.conftest import SMALL, offsets, put
from tierdex import Index
from tierdex.errors import (
    CorruptFileError,
    FolderInUseError,
    InvalidRequestError,
    OwnershipError,
    StoreUnavailableError,
)
from tierdex.lifecycle.paths import is_node_name
from tierdex.settings import node_of_host
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of


class Away(MemoryStore):
    """A memory store that can be switched off."""

    def __init__(self):
        super().__init__()
        self.is_away = False

    def _refuse_when_down(self):
        if self.is_away:
            raise StoreUnavailableError("away")

    def get(self, key, position=None, length=None):
        self._refuse_when_down()
        return super().get(key, position, length)

    def put(self, key, data):
        self._refuse_when_down()
        super().put(key, data)

    def put_if_absent(self, key, data):
        self._refuse_when_down()
        super().put_if_absent(key, data)

    def list(self, prefix, start_after=""):
        self._refuse_when_down()
        return super().list(prefix, start_after)

    def list_folders(self, prefix):
        self._refuse_when_down()
        return super().list_folders(prefix)


@pytest.fixture
def store():
    return Away()


def test_a_folder_keeps_its_node(make_index, tmp_path):
    index = make_index(node="a")
    put(index, "A", 1)
    index.close()
    assert (tmp_path / "data" / "NODE").read_text() == "a\n"
    index = make_index()
    assert [entry.node for entry in index.query("orders", key="A").entries] == ["a"]


def test_another_name_for_a_folder_is_refused_unless_it_is_adopted(make_index):
    index = make_index(node="a")
    put(index, "A", 1)
    index.close()
    with pytest.raises(InvalidRequestError, match="adopt") as caught:
        make_index(node="b")
    assert caught.value.field == "node"
    index = make_index(node="b", adopt=True)
    assert [entry.node for entry in index.query("orders", key="A").entries] == ["b"]
    index.close()
    assert components_of(make_index()).settings.node == "b"


def test_an_unreadable_node_name_is_told(make_index, tmp_path):
    make_index().close()
    (tmp_path / "data" / "NODE").write_bytes(b"\xff\n")
    with pytest.raises(CorruptFileError, match="node's name"):
        make_index()


def test_a_refused_opening_leaves_no_lock_and_no_threads(make_index, store):
    before = set(threading.enumerate())
    make_index(node="a").close()
    for _ in range(2):
        with pytest.raises(InvalidRequestError):
            make_index(node="b")
    make_index(node="a")
    with pytest.raises(FolderInUseError):
        make_index(node="a", store=store)
    assert set(threading.enumerate()) <= before


def test_a_shared_node_is_refused(make_index, store, clock, tmp_path):
    from tierdex.ids import SeededIds
    from tierdex.lifecycle.manifests.manifest import Change
    from tierdex.lifecycle.manifests.manifest_log import ManifestLog
    from tierdex.lifecycle.nodes.shared_node import SharedNode

    log = ManifestLog(store, "jobs", clock=clock, ids=SeededIds(9), checkpoint_every=8)
    SharedNode.open(log, SeededIds(8)).commit(lambda state: Change(streams={"t": 1}))
    for _ in range(2):
        with pytest.raises(OwnershipError, match="shared"):
            make_index(tmp_path / "w", node="jobs", store=store)


def test_a_store_that_is_away_at_start_is_claimed_later(make_index, store, clock):
    store.is_away = True
    index = make_index(store=store)
    put(index, "A", 1)
    answer = index.query("orders", key="A")
    assert (offsets(answer), answer.complete) == ([1], False)
    index.roll()
    with pytest.raises(StoreUnavailableError):
        index.run_compaction()
    assert [file.state for file in index.files()] == ["compacted"]
    store.is_away = False
    index.run_compaction()
    assert [file.state for file in index.files()] == ["uploaded"]
    assert index.query("orders", key="A").complete


def test_local_files_that_the_manifest_lists_are_dropped_by_a_late_claim(
    make_index, store, tmp_path
):
    import shutil

    index = make_index(store=store)
    put(index, "A", 1)
    index.roll()
    compactor = components_of(index).writing.compactor
    step(compactor)  # sealed
    shutil.copytree(tmp_path / "data" / "sealed", tmp_path / "kept")
    index.run_compaction()
    index.close()
    shutil.copytree(tmp_path / "kept", tmp_path / "data" / "sealed", dirs_exist_ok=True)
    store.is_away = True
    index = make_index(store=store)
    assert [file.state for file in index.files()] == ["sealed"]
    store.is_away = False
    index.run_compaction()
    assert [file.state for file in index.files()] == ["uploaded"]
    assert len(list(store.list("nodes/"))) == len({o.key for o in store.list("nodes/")})
    assert len([o for o in store.list("nodes/") if "/files/" in o.key]) == 1
    assert not list((tmp_path / "data" / "compacted").iterdir())
    assert offsets(index.query("orders", key="A")) == [1]


def test_an_old_copy_of_a_folder_that_went_on_is_not_dropped_as_published(
    make_index, store, tmp_path
):
    import shutil

    index = make_index(store=store)
    put(index, "A", 1, durability="disk")
    shutil.copytree(tmp_path / "data" / "unsealed", tmp_path / "kept")
    index.roll()
    index.run_compaction()
    index.close()
    shutil.copytree(tmp_path / "kept", tmp_path / "data" / "unsealed", dirs_exist_ok=True)
    store.is_away = True
    index = make_index(store=store)
    put(index, "A", 2, durability="os")
    store.is_away = False
    index.roll()
    index.run_compaction()
    answer = index.query("orders", key="A")
    assert offsets(answer) == [1]
    assert ["old copy" in reason for _, reason in answer.missing] == [True]


def test_background_threads_end_with_the_index(tmp_path):
    before = set(threading.enumerate())
    with Index.open(tmp_path, **{**SMALL, "background": True}) as index:
        put(index, "A", 1)
        assert offsets(index.query("orders", key="A")) == [1]
        assert len(set(threading.enumerate()) - before) >= 5
    left = set(threading.enumerate()) - before
    assert not [thread.name for thread in left if "tierdex-read" not in thread.name]


def test_the_node_that_a_data_folder_belongs_to_is_followed_whatever_is_read(make_index, tmp_path):
    store = str(tmp_path / "s")
    writer = make_index(node="a", store=store)
    put(writer, "A", 1)
    writer.roll()
    make_index(tmp_path / "other", node="b", store=store).close()
    reader = make_index(store=store, read_only=True, read_nodes=["b"])
    writer.run_compaction()
    reader.refresh()
    assert offsets(reader.query("orders", key="A")) == [1]


def test_a_fresh_folder_is_of_the_node_that_bears_the_hosts_name(make_index, tmp_path, monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "Build Host+7.example.COM")
    make_index().close()
    assert (tmp_path / "data" / "NODE").read_text() == "build-host-7.example.com\n"


def test_a_folder_that_moves_to_another_host_keeps_its_node(make_index, monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "first")
    index = make_index()
    put(index, "A", 1)
    index.close()
    monkeypatch.setattr("socket.gethostname", lambda: "second")
    index = make_index()
    assert [entry.node for entry in index.query("orders", key="A").entries] == ["first"]


@pytest.mark.parametrize(
    ("host", "node"),
    [
        ("laptop", "laptop"),
        ("ip-10-0-0-7", "ip-10-0-0-7"),
        ("Zoës Rechner", "zo-s-rechner"),
        ("-.a", "a"),
        ("", "local"),
        ("日本", "local"),
        ("h" * 200, "h" * 63),
    ],
)
def test_every_host_name_stands_for_a_legal_node(host, node):
    assert node_of_host(host) == node
    assert is_node_name(node)
