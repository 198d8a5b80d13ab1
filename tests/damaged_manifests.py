"""Damages of one node's manifest in a folder store, each of which leaves the node unreadable."""

from __future__ import annotations

import shutil

from tests.index_service.conftest import SMALL, put
from tierdex import Index
from tierdex.lifecycle.paths import StorePaths


def write_two_nodes(folder):
    """Publish three commits' worth of entries of nodes a and b; return the store's folder."""
    for node in ("a", "b"):
        with Index.open(
            folder / f"data-{node}",
            store=str(folder / "store"),
            node=node,
            remote_interval=0,
            **SMALL,
        ) as index:
            for offset in range(3):
                put(index, f"{node}-{offset}", offset)
                index.flush("remote")
    return folder / "store"


def _manifests(store, node):
    return sorted((store / StorePaths(node).manifest_prefix).iterdir())


def _delete_a_middle_one(store):
    _manifests(store, "b")[1].unlink()


def _cut_the_newest(store):
    _manifests(store, "b")[-1].write_bytes(b"")


def _overwrite_the_newest_by_an_older(store):
    shutil.copy(_manifests(store, "b")[1], _manifests(store, "b")[-1])


def _put_another_nodes_in_place(store):
    folder = _manifests(store, "b")[0].parent
    shutil.rmtree(folder)
    shutil.copytree(_manifests(store, "a")[0].parent, folder)


DAMAGES = {
    "a middle one deleted": _delete_a_middle_one,
    "the newest cut to nothing": _cut_the_newest,
    "the newest overwritten by an older": _overwrite_the_newest_by_an_older,
    "another node's in its place": _put_another_nodes_in_place,
}
