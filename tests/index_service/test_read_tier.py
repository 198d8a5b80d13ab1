"""Readers without state: what they keep over restarts, what an opening costs, how several answer alike."""

from __future__ import annotations

import gc
import itertools
import json
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx2
import pytest

from tests.index_service.conftest import offsets, put
from tests.lifecycle.rows import make_row
from tests.patience import wait_until
from tests.servers.tierdex_server import running_tierdex
from tierdex import Client, Index
from tierdex.clock import SystemClock
from tierdex.errors import StoreUnavailableError
from tierdex.ids import SeededIds
from tierdex.index_service.opening.sidecars_ahead import SidecarsAhead
from tierdex.lifecycle.manifests.manifest import Change, Draft, NodeKind
from tierdex.lifecycle.manifests.manifest_log import ManifestLog
from tierdex.lifecycle.topic_set import topic_set
from tierdex.storage_layer.local import LocalStore
from tierdex.storage_layer.memory import MemoryStore
from tierdex.storage_layer.metered import MeteredStore
from tierdex.testing.components import components_of

FILES = 6


@pytest.fixture(scope="module")
def store_folder(tmp_path_factory):
    """A store with files of two nodes; key A has an entry in each."""
    root = tmp_path_factory.mktemp("tier")
    for number, node in enumerate("ab"):
        folder = root / node
        with Index.open(
            folder, store=str(root / "store"), node=node, background=False, merge_min_files=99,
            slot_count=64, item_capacity=256,
        ) as index:  # fmt: skip
            for offset in range(FILES):
                put(index, "A", 100 * number + offset)
                index.roll()
            index.run_compaction()
    return root / "store"


def sidecar_requests(index):
    answer = index.query("orders", key="A", explain=True)
    assert len(answer.entries) == 2 * FILES
    return answer.explain.sidecar_requests


def test_sidecars_are_kept_over_restarts_of_a_reader(store_folder, tmp_path):
    options = {"background": False, "cache_dir": str(tmp_path / "cache")}
    with Index.open(store=str(store_folder), **options) as index:
        assert sidecar_requests(index) == 2 * FILES
    with Index.open(store=str(store_folder), **options) as index:
        assert sidecar_requests(index) == 0
    with Index.open(store=str(store_folder), background=False) as index:
        assert sidecar_requests(index) == 2 * FILES


def test_a_damaged_copy_is_fetched_again_and_changes_no_answer(store_folder, tmp_path):
    options = {"background": False, "cache_dir": str(tmp_path / "cache")}
    with Index.open(store=str(store_folder), **options) as index:
        sidecar_requests(index)
    for path in (tmp_path / "cache").iterdir():
        path.write_bytes(path.read_bytes()[:-3] + b"xyz")
    with Index.open(store=str(store_folder), **options) as index:
        assert sidecar_requests(index) == 2 * FILES


@pytest.mark.parametrize("has_folder", [True, False])
def test_the_newest_sidecars_are_fetched_ahead_as_far_as_they_are_kept(
    store_folder, tmp_path, has_folder
):
    with Index.open(store=str(store_folder), background=False) as index:
        sidecar_requests(index)
        sizes = [each.size for each in components_of(index).sidecars._open.values()]
    room = sum(sizes) // 2
    options = {"cache_dir": str(tmp_path / "cache"), "cache_bytes": room}
    if not has_folder:
        options = {"sidecar_memory_bytes": room}
    with Index.open(store=str(store_folder), background=False, **options) as index:
        components = components_of(index)
        worker = SidecarsAhead(components.table, components.sidecars)
        while worker.step() == 0:
            pass
        newest = index.query("orders", key="A", max_count=3, explain=True)
        assert newest.explain.sidecar_requests == 0
        with components.table.snapshot() as snapshot:
            kept = [components.sidecars.is_here(handle.row) for handle in snapshot.files]
        assert kept == sorted(kept, reverse=True)  # newest first
        assert 3 <= sum(kept) < len(kept)


def test_a_reader_is_ready_once_it_has_read_every_manifest(store_folder):
    class Down(LocalStore):
        is_down = True

        def list_folders(self, prefix):
            if self.is_down:
                raise StoreUnavailableError("down")
            return super().list_folders(prefix)

    store = Down(store_folder)
    with Index.open(store=store, background=False) as index:
        (reason,) = index.health()
        assert reason.reason == "unread"
        assert "down" in reason.detail
        store.is_down = False
        index.refresh()
        assert index.health() == []
        store.is_down = True
        index.refresh()
        assert index.health() == []  # stale answers are named as such


def test_services_without_state_answer_alike_and_share_cursors(store_folder, tmp_path):
    arguments = ("--store", str(store_folder), "--read-only")
    options = {"cache_dir": str(tmp_path / "cache")}
    with ExitStack() as stack:
        servers = [
            stack.enter_context(running_tierdex(None, *arguments, **options)) for _ in range(2)
        ]
        clients = [stack.enter_context(Client(server.url)) for server in servers]
        for server in servers:
            wait_until(lambda url=server.url: httpx2.get(url + "/readyz").status_code == 200)
        answers = [client.query("orders", key="A") for client in clients]
        assert len({json.dumps(offsets(answer)) for answer in answers}) == 1
        assert all(answer.complete for answer in answers)
        whole, paged, cursor = offsets(answers[0]), [], None
        for turn in range(len(whole)):
            page = clients[turn % 2].query("orders", key="A", max_count=5, cursor=cursor)
            paged += offsets(page)
            cursor = page.next_cursor
            if cursor is None:
                break
        assert paged == whole
        body = {
            "topic": "orders",
            "key": "B",
            "queue_id": 0,
            "offset": 1,
            "size": 1,
            "timestamp": 0,
        }
        refused = httpx2.post(servers[0].url + "/v1/entries", json={"entries": [body]})
        assert refused.status_code >= 400
    assert not (tmp_path / "tierdex-data").exists()


def test_two_readers_fill_one_cache_at_a_time(store_folder, tmp_path):
    options = {"background": False, "cache_dir": str(tmp_path / "cache"), "cache_bytes": 20_000}
    with ExitStack() as stack:
        readers = [
            stack.enter_context(Index.open(store=str(store_folder), **options)) for _ in range(2)
        ]

        def work(index):
            for _ in range(10):
                assert len(index.query("orders", key="A").entries) == 2 * FILES
                components_of(index).sidecars.close()  # opens them again

        with ThreadPoolExecutor(2) as threads:
            assert list(threads.map(work, readers)) == [None, None]


def test_requests_are_counted_by_what_they_are_for(store_folder):
    with Index.open(store=str(store_folder), background=False) as index:
        opened = index.store_requests()
        assert opened["manifests"]["get"] >= 3
        assert opened["lookups"] == opened["other"] == {}
        assert index.query("orders", key="A").entries
        asked = index.store_requests()
        assert asked["manifests"] == opened["manifests"]
        assert asked["lookups"]["get"] >= FILES
        index.refresh()
        followed = index.store_requests()
        assert followed["lookups"] == asked["lookups"]
        assert followed["manifests"]["get"] > opened["manifests"]["get"]


NODES = 20
TOPICS = topic_set([f"topic-{number}" for number in range(20)])


def store_of_many(files, since):
    """Return a store of 20 nodes that list so many files: a checkpoint, and `since` commits behind it."""
    store, numbers = MemoryStore(), itertools.count(1)
    for name in (f"n{number:02d}" for number in range(NODES)):
        ids = SeededIds(int(name[1:]))
        for commits, files_each, every in ((1, files // NODES - since, 1), (since, 1, 64)):
            log = ManifestLog(store, name, clock=SystemClock(), ids=ids, checkpoint_every=every)
            for _ in range(commits):
                rows = tuple(
                    make_row(next(numbers), node=name, topics=TOPICS) for _ in range(files_each)
                )
                draft = Draft(NodeKind.SHARED, 0, bytes(16), Change(add=rows))
                log.commit(lambda _, draft=draft: draft)
    return store


def test_an_opening_costs_the_same_few_requests_a_node_however_many_files():
    files = 10_000
    store = MeteredStore(store_of_many(files, since=31))
    with store.measure() as counts, Index.open(store=store, background=False) as index:
        assert len(index.files()) == files
    assert counts.by_verb["list_folders"] == 1
    assert counts.by_verb["time"] == 1
    assert counts.by_verb["list"] == NODES
    assert counts.gets == NODES * 3  # a hint, a checkpoint, and the newest commit, which repeats 30


def test_a_file_without_its_sidecar_takes_at_most_4_kib_of_memory():
    files, store = 2_000, store_of_many(2_000, 25)
    Index.open(store=store_of_many(400, 2), background=False).close()  # what is imported is
    gc.collect()
    tracemalloc.start()
    try:
        with Index.open(store=store, background=False) as index:
            gc.collect()
            assert tracemalloc.get_traced_memory()[0] <= 4096 * files
            assert len(components_of(index).table) == files
    finally:
        tracemalloc.stop()
