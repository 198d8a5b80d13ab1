"""A node that cannot be read is named, and a store without any node is not an empty one."""

from __future__ import annotations

import pytest

from tests.damaged_manifests import DAMAGES, write_two_nodes
from tests.index_service.conftest import SMALL, offsets, put
from tierdex import Index
from tierdex.errors import InvalidRequestError, NotFoundError
from tierdex.storage_layer.memory import MemoryStore


@pytest.mark.parametrize("damage", DAMAGES)
def test_node_whose_manifest_is_damaged_is_listed_with_its_problem(tmp_path, damage):
    store = write_two_nodes(tmp_path)
    DAMAGES[damage](store)
    with Index.open(store=str(store), **SMALL) as index:
        sound, broken = index.nodes()
        assert (sound.node, sound.files, sound.problem) == ("a", 3, None)
        assert broken.node == "b"
        assert "manifest" in broken.problem
        assert not index.query("orders", key="b-0").complete


def test_store_whose_nodes_cannot_be_listed_says_so(make_index, tmp_path):
    store = tmp_path / "store"
    index = make_index(store=str(store), node="local")
    put(index, "K", 1)
    index.flush("disk")
    (store / "nodes").rename(store / "gone")
    (store / "nodes").symlink_to(store / "nodes")  # a loop: an error of the disk
    index.refresh()
    assert [node.node for node in index.nodes()] == ["", "local"]
    assert "cannot be listed" in index.nodes()[0].problem


@pytest.mark.parametrize("place", ["empty", "absent", "with other things"])
def test_store_without_a_manifest_is_not_found(tmp_path, place):
    store = tmp_path / "store"
    if place != "absent":
        store.mkdir()
    if place == "with other things":
        (store / "nodes" / "spark" / "files").mkdir(parents=True)
        (store / "nodes" / "spark" / "files" / "1-a").write_bytes(b"x")
    with pytest.raises(NotFoundError, match="no manifest"):
        Index.open(store=str(store), **SMALL)


def test_data_folder_over_a_mistyped_store_is_refused_unless_it_is_new(make_index, tmp_path):
    put(make_index(store=str(tmp_path / "store")), "K", 1)
    with pytest.raises(InvalidRequestError, match=r"belongs to store .*, not .*storr"):
        Index.open(tmp_path / "data", store=str(tmp_path / "storr"), read_only=True)
    with Index.open(tmp_path / "other", store=str(tmp_path / "storr"), **SMALL) as index:
        assert offsets(index.query("orders", key="K")) == []


def test_folder_that_is_no_data_folder_is_not_found(tmp_path):
    with pytest.raises(NotFoundError, match="no data folder"):
        Index.open(tmp_path, read_only=True)


def test_mistyped_node_is_not_found(tmp_path):
    store = write_two_nodes(tmp_path)
    with pytest.raises(NotFoundError, match="no node c"):
        Index.open(store=str(store), read_nodes=["a", "c"], **SMALL)
    with Index.open(store=str(store), read_nodes=["a"], **SMALL) as index:
        assert [node.node for node in index.nodes()] == ["a"]


def test_store_that_cannot_be_reached_is_no_mistyped_one(make_index, tmp_path):
    class Down(MemoryStore):
        def list_folders(self, prefix):
            raise OSError("down")

    with Index.open(store=Down(), **SMALL) as index:
        assert not index.query("orders", key="K").complete


def test_damaged_and_quarantined_files_are_listed_by_a_reader_too(make_index, tmp_path):
    index = make_index()
    for offset in range(2):
        put(index, "K", offset)
        index.roll()
    index.close()
    first, second = sorted((tmp_path / "data" / "unsealed").iterdir())[:2]
    first.rename(tmp_path / "data" / "quarantine" / f"unsealed-{first.name}")
    second.write_bytes(b"x" * 10)
    with Index.open(tmp_path / "data", read_only=True, background=False) as reader:
        assert [bool(file.reason) for file in reader.files()].count(True) == 2
