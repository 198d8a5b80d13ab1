"""The cache of sidecars: what is kept, what goes first, one fetch however many want it."""

from __future__ import annotations

import contextlib
import gc
import os
import threading

import pytest

from tests.index_service.conftest import offsets, put
from tests.patience import PATIENCE_S
from tierdex.errors import CorruptFileError, StoreUnavailableError
from tierdex.filesystem import LocalFileSystem
from tierdex.index_service.readers.sidecar_cache import SidecarCache
from tierdex.lifecycle.paths import DataPaths
from tierdex.testing.components import components_of


@pytest.fixture
def published(index, tmp_path):
    """Return (row, its sidecar's bytes) of four published files, oldest first."""
    for offset in range(4):
        put(index, f"K{offset}", offset)
        index.roll()
    index.run_compaction()
    state = components_of(index).read_view.manifests.state_of(components_of(index).settings.node)
    rows = sorted(state.files.values(), key=lambda row: row.number)
    store = components_of(index).store
    return [
        (row, store.get(row.object_key, row.sidecar_position, row.bytes - row.sidecar_position))
        for row in rows
    ]


class Fetches:
    """Counts fetches of one sidecar and answers from memory."""

    def __init__(self, data):
        self.data = data
        self.count = 0

    def __call__(self, position, length):
        self.count += 1
        assert length == len(self.data)
        return self.data


@pytest.fixture
def make_cache(tmp_path):
    paths = DataPaths(tmp_path / "cache")
    for folder in paths.folders:
        folder.mkdir(parents=True)

    def make(budget=1 << 30, **more):
        return SidecarCache(LocalFileSystem(), paths, budget, **more)

    return make


def copies(tmp_path):
    return sorted((tmp_path / "cache" / "uploaded").iterdir())


def test_a_sidecar_is_fetched_once_and_found_again_after_a_restart(published, make_cache):
    row, data = published[0]
    fetch = Fetches(data)
    cache = make_cache()
    assert cache.get(row, "default", fetch) is cache.get(row, "default", fetch)
    assert make_cache().get(row, "default", fetch).uuid == row.uuid
    assert fetch.count == 1


def test_two_threads_share_one_fetch(published, make_cache):
    row, data = published[0]
    cache, fetch, go = make_cache(), Fetches(data), threading.Event()

    def slowly(position, length):
        go.wait(PATIENCE_S)
        return fetch(position, length)

    found = []
    threads = [
        threading.Thread(target=lambda: found.append(cache.get(row, "default", slowly)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    go.set()
    for thread in threads:
        thread.join()
    assert fetch.count == 1
    assert len(set(map(id, found))) == 1


def test_the_least_recently_used_is_evicted(published, make_cache, tmp_path):
    budget = sum(len(data) for _, data in published[:3]) + 1
    cache = make_cache(budget)
    fetches = [Fetches(data) for _, data in published]
    for number in (0, 1, 2, 0, 3):
        cache.get(published[number][0], "default", fetches[number])
    kept = {path.name.split("-")[2] for path in copies(tmp_path)}
    assert kept == {published[number][0].uuid.hex() for number in (2, 0, 3)}
    for number in (0, 2, 3):
        cache.get(published[number][0], "default", fetches[number])
    assert [fetch.count for fetch in fetches] == [1, 1, 1, 1]


def test_keeping_a_copy_twice_counts_it_once(published, make_cache, tmp_path):
    budget = sum(len(data) for _, data in published[:2]) + 1
    cache = make_cache(budget)
    row, data = published[0]
    for _ in range(5):
        assert cache.keep(row, "default", data)
    assert cache.keep(*published[1][:1], "default", published[1][1])
    assert len(copies(tmp_path)) == 2


def test_a_copy_is_replaced_not_rewritten_under_a_mapping(published, make_cache):
    row, data = published[0]
    cache = make_cache()
    opened = cache.get(row, "default", Fetches(data))
    cache.keep(row, "default", data)
    assert opened.directory.damaged_blocks(row.uuid) == []


def test_without_room_a_sidecar_stays_in_memory(published, make_cache, tmp_path):
    cache = make_cache(0)
    fetches = [Fetches(data) for _, data in published[:2]]
    for number in (0, 0, 1, 1):
        cache.get(published[number][0], "default", fetches[number])
    assert copies(tmp_path) == []
    assert [fetch.count for fetch in fetches] == [1, 1]


def test_a_read_only_cache_writes_nothing(published, make_cache, tmp_path):
    row, data = published[0]
    fetch = Fetches(data)
    cache = make_cache(read_only=True)
    for _ in range(2):
        cache.get(row, "default", fetch)
    assert fetch.count == 1
    assert copies(tmp_path) == []


def test_bytes_of_another_file_are_refused(published, make_cache):
    (row, data), (_, _) = published[:2]
    with pytest.raises(CorruptFileError):
        make_cache().get(row, "default", lambda position, length: bytes(length))
    other = next(d for r, d in published if len(d) == len(data) and r is not row)
    with pytest.raises(CorruptFileError):
        make_cache().get(row, "default", Fetches(other))


def test_a_failed_fetch_is_tried_again_by_the_next(published, make_cache):
    row, data = published[0]
    cache = make_cache()

    def fail(position, length):
        raise StoreUnavailableError("down")

    with pytest.raises(StoreUnavailableError):
        cache.get(row, "default", fail)
    assert cache._fetching == {}
    assert cache.get(row, "default", Fetches(data)).uuid == row.uuid


def test_a_vanished_copy_is_fetched_anew(published, make_cache, tmp_path):
    row, data = published[0]
    fetch = Fetches(data)
    make_cache().get(row, "default", fetch)
    cache = make_cache()
    for path in copies(tmp_path):
        path.unlink()
    cache.get(row, "default", fetch)
    assert fetch.count == 2


def test_answers_are_the_same_however_small_the_cache(make_index, tmp_path):
    index = make_index(sidecar_cache_bytes=0, page_cache_bytes=0)
    for offset in range(6):
        put(index, "A", offset)
        index.roll()
    index.run_compaction()
    assert offsets(index.query("orders", key="A")) == [5, 4, 3, 2, 1, 0]
    assert list((tmp_path / "data" / "uploaded").iterdir()) == []


def test_closed_index_holds_no_descriptor(make_index, tmp_path):
    index = make_index()
    put(index, "A", 1)
    index.roll()
    index.run_compaction()
    assert index.query("orders", key="A").entries
    assert open_below(tmp_path / "data" / "uploaded")
    index.close()
    gc.collect()
    assert open_below(tmp_path) == []


def open_below(folder):
    """Return the files below a folder that this process has open; a mapping counts, too."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return [path for path in found if path.startswith(str(folder))]
