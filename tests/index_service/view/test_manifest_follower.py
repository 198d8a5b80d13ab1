"""Every node's published files are shown as its manifest says, and how fresh that is is told."""

from __future__ import annotations

import pytest

from tests.index_service.conftest import offsets, put
from tierdex.compactor.upload import Target
from tierdex.errors import StoreUnavailableError
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.manifests.forgotten import NOTHING_FORGOTTEN
from tierdex.pipeline.jobs.publishing import JobNode
from tierdex.pipeline.merging.merge_task import merge_group
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of
from tierdex.testing.faulty_store import Fault, FaultyStore


class Flaky(MemoryStore):
    """A memory store whose requests below `broken` prefixes fail."""

    def __init__(self, clock):
        super().__init__(clock=clock)
        self.broken = ()
        self.before_get = None

    def _refuse_when_down(self, key):
        if any(key.startswith(prefix) for prefix in self.broken):
            raise StoreUnavailableError(f"{key}: down")

    def get(self, key, position=None, length=None):
        self._refuse_when_down(key)
        if self.before_get is not None:
            self.before_get(key)
        return super().get(key, position, length)

    def list(self, prefix, start_after=""):
        self._refuse_when_down(prefix)
        return super().list(prefix, start_after)

    def list_folders(self, prefix):
        self._refuse_when_down(prefix)
        return super().list_folders(prefix)


@pytest.fixture
def store(clock):
    return Flaky(clock)


@pytest.fixture
def make_node(make_index, store, tmp_path):
    def make(name, **settings):
        return make_index(tmp_path / name, store=store, node=name, **settings)

    return make


def publish(index, *numbers, key="A"):
    for offset in numbers:
        put(index, key, offset)
    index.roll()
    index.run_compaction()


def test_all_nodes_are_answered_from_after_a_refresh(make_node, make_index, store):
    first, second = make_node("a"), make_node("b")
    publish(first, 1)
    publish(second, 2)
    publish(make_node("c"), 3)
    first.refresh()
    answer = first.query("orders", key="A")
    assert sorted(offsets(answer)) == [1, 2, 3]
    assert {entry.node for entry in answer.entries} == {"a", "b", "c"}
    reader = make_index(None, store=store)
    assert offsets(reader.query("orders", key="A")) == offsets(answer)


def test_read_nodes_narrows_the_view(make_node, make_index, store):
    for number, name in enumerate("abc"):
        publish(make_node(name), number)
    reader = make_index(None, store=store, read_nodes=["a", "c"])
    assert sorted(offsets(reader.query("orders", key="A"))) == [0, 2]
    assert reader.watermark("orders", 0)["remote"] is None
    answer = reader.query("orders", key="A")
    assert answer.complete  # asking for a watermark makes no node followed
    reader.refresh()
    assert sorted(offsets(reader.query("orders", key="A"))) == [0, 2]


def test_merged_and_expired_files_leave_every_view(make_node, make_index, store, clock):
    writer = make_node("a", merge_min_files=2)
    reader = make_index(None, store=store)
    for offset in range(3):
        put(writer, "A", offset)
        writer.roll()
    writer.run_compaction()
    reader.refresh()
    assert len(reader.files()) == 1
    assert offsets(reader.query("orders", key="A")) == [2, 1, 0]
    clock.advance(1)
    writer.expire(before=clock.now_ms())
    reader.refresh()
    assert reader.files() == []


def test_a_node_that_cannot_be_read_is_missing_once_it_is_stale(
    make_node, make_index, store, clock
):
    writer = make_node("a")
    publish(writer, 1)
    reader = make_index(None, store=store, max_staleness=10)
    store.broken = ("nodes/a/manifest",)
    clock.advance(9)
    reader.refresh()
    answer = reader.query("orders", key="A")
    assert answer.complete
    assert answer.as_of == clock.now_ms() - 9000
    clock.advance(2)
    reader.refresh()
    answer = reader.query("orders", key="A")
    assert not answer.complete
    assert [name for name, _ in answer.missing] == ["node:a"]
    assert offsets(answer) == [1]
    store.broken = ()
    reader.refresh()
    assert reader.query("orders", key="A").complete


@pytest.mark.parametrize("batch", [False, True])
def test_query_after_a_pause_of_the_process_refreshes_first(
    make_node, make_index, store, clock, batch
):
    writer = make_node("a")
    publish(writer, 1)
    reader = make_index(None, store=store, max_staleness=10)
    clock.advance(11)  # stopped, or starved, and so was its refresh
    publish(writer, 2)
    if batch:
        answer = reader.query_batch([{"topic": "orders", "key": "A"}])[0]
    else:
        answer = reader.query("orders", key="A", explain=True)
        assert answer.explain.manifest_requests > 0
    assert answer.complete, answer.missing
    assert offsets(answer) == [2, 1]


def test_query_leaves_a_store_that_is_ill_to_the_next_refresh(make_node, make_index, store, clock):
    publish(make_node("a"), 1)
    reader = make_index(None, store=store, max_staleness=10)
    clock.advance(11)
    store.broken = ("nodes/",)
    assert not reader.query("orders", key="A").complete
    asked = reader.query("orders", key="A", explain=True)
    assert not asked.complete
    assert asked.explain.manifest_requests == 0
    store.broken = ()
    reader.refresh()
    assert reader.query("orders", key="A").complete


def test_a_store_that_was_never_listed_is_missing(make_index, store):
    store.broken = ("",)
    reader = make_index(None, store=store)
    answer = reader.query("orders", key="A")
    assert not answer.complete
    assert [name for name, _ in answer.missing] == ["store"]


@pytest.mark.parametrize("batch", [False, True])
def test_what_no_listing_told_is_missing_from_every_answer(make_node, make_index, store, batch):
    """The store answers otherwise: only its nodes cannot be listed, from the opening on."""
    publish(make_node("a"), 1)

    def ask(reader):
        if batch:
            return reader.query_batch([{"topic": "orders", "key": "A"}])[0]
        return reader.query("orders", key="A")

    store = FaultyStore(store)
    store.fail("list_folders", fault=Fault.REFUSED, count=2)
    reader = make_index(None, store=store)
    for answer in (ask(reader), ask(reader)):
        assert not answer.complete
        assert [name for name, _ in answer.missing] == ["store"]
    reader.refresh()
    assert not ask(reader).complete
    reader.refresh()
    assert offsets(ask(reader)) == [1]
    assert ask(reader).complete


def test_nodes_that_were_not_listed_for_long_are_missing_though_the_known_ones_are_read(
    make_node, make_index, store, clock
):
    publish(make_node("a"), 1)
    store = FaultyStore(store)
    reader = make_index(None, store=store, max_staleness=10)
    assert reader.query("orders", key="B").complete  # its filter is here from now on
    store.fail("list_folders", fault=Fault.REFUSED, count=9)
    for _ in range(3):
        clock.advance(4)
        reader.refresh()
    answer = reader.query("orders", key="B")
    assert [name for name, _ in answer.missing] == ["store"]


def test_a_new_node_counts_from_the_listing_before_it(make_node, make_index, store, clock):
    publish(make_node("b"), 1)
    reader = make_index(None, store=store, max_staleness=10)
    publish(make_node("a"), 1)
    store.broken = ("nodes/a/",)
    clock.advance(5)
    reader.refresh()
    assert reader.query("orders", key="A").complete  # 5 s ago there was no such node
    clock.advance(6)
    assert not reader.query("orders", key="A").complete


def test_as_of_is_not_later_than_what_the_answer_was_made_from(make_node, make_index, store, clock):
    publish(make_node("a"), 1)
    reader = make_index(None, store=store)
    known = reader.query("orders", key="A").as_of

    def refresh_meanwhile(key):
        if "/files/" in key:
            store.before_get = None
            clock.advance(3)
            reader.refresh()

    components_of(reader).sidecars._open.clear()
    components_of(reader).pages.clear()
    store.before_get = refresh_meanwhile
    assert reader.query("orders", key="A").as_of == known


def replace_by_a_job(store, writer):
    """A job's merge replaces the node's files, and their owner drops them."""
    state = components_of(writer).writing.compactor.components.claim.get().state
    rows = sorted(state.files.values(), key=lambda row: row.number)
    job = JobNode(store, "jobs")
    to = Target("jobs", job.shared.state.number, 16, NOTHING_FORGOTTEN)
    merged = merge_group(store, [("a", row) for row in rows], to)
    job.merge([(merged, ())])
    writer.refresh()
    writer.run_compaction()
    assert not components_of(writer).writing.compactor.components.claim.get().state.files


@pytest.mark.parametrize("is_open", [True, False])
def test_a_merge_by_a_node_not_yet_read_hides_nothing(make_node, make_index, store, is_open):
    writer = make_node("a")
    publish(writer, 1)
    publish(writer, 2)
    reader = make_index(None, store=store) if is_open else None

    def meanwhile(key):
        if key.startswith("nodes/a/") and components_of(writer).writing is not None:
            store.before_get = None
            replace_by_a_job(store, writer)

    store.before_get = meanwhile  # after the nodes were listed, before this one is read
    if is_open:
        reader.refresh()
    else:
        reader = make_index(None, store=store)
    assert store.before_get is None
    answer = reader.query("orders", key="A")
    assert (sorted(offsets(answer)), answer.complete) == ([1, 2], True)


def test_a_replaced_file_answers_until_what_replaced_it_is_known(make_node, make_index, store):
    writer = make_node("a")
    publish(writer, 1)
    publish(writer, 2)
    reader = make_index(None, store=store)
    replace_by_a_job(store, writer)
    nodes = components_of(reader).read_view.manifests
    nodes.log_of("a").refresh()  # as an owner's commit does, which asks for no other node
    nodes.show()
    assert sorted(offsets(reader.query("orders", key="A"))) == [1, 2]
    reader.refresh()
    answer = reader.query("orders", key="A")
    assert sorted(offsets(answer)) == [1, 2]
    assert {entry.node for entry in answer.entries} == {"jobs"}


def test_a_gone_object_makes_the_query_plan_again(make_node, make_index, store, clock):
    writer = make_node("a", merge_min_files=2, grace_time=0.0)
    reader = make_index(None, store=store, page_cache_bytes=0)
    for offset in range(4):
        put(writer, "A", offset)
        if offset == 1:
            writer.roll()
            writer.run_compaction()
    writer.roll()
    reader.refresh()
    first = reader.query("orders", key="A", max_count=1)
    assert offsets(first) == [1]
    writer.run_compaction()  # merges both
    clock.advance(100)
    writer.run_compaction()  # and collects the parts
    answer = reader.query("orders", key="A", explain=True)
    assert (offsets(answer), answer.complete) == ([3, 2, 1, 0], True)
    assert answer.explain.manifest_requests > 0


def test_a_gone_object_under_the_cursor_makes_the_query_plan_again(
    make_node, make_index, store, clock
):
    writer = make_node("a", merge_min_files=2, grace_time=0.0)
    reader = make_index(None, store=store, page_cache_bytes=0)
    publish(writer, 0, 1)
    reader.refresh()
    first = reader.query("orders", key="A", max_count=1)
    publish(writer, 2, 3, key="B")
    clock.advance(100)
    writer.run_compaction()
    second = reader.query("orders", key="A", cursor=first.next_cursor)
    assert (offsets(second), second.complete) == ([0], True)


def test_a_published_file_under_a_local_ones_number_is_named_until_it_is_shown(
    make_index, store, tmp_path, clock
):
    before = make_index(tmp_path / "a", store=store, node="n")
    publish(before, 1)
    number = components_of(before).table.snapshot().files[0].number
    before.close()
    store.broken = ("nodes/",)
    clock.step(number - clock.now_ms())  # the clock was set back, the disk is new, the store away
    index = make_index(tmp_path / "b", store=store, node="n", takeover=True)
    put(index, "A", 2, durability="os")
    assert components_of(index).table.snapshot().files[0].number == number
    store.broken = ()
    index.refresh()
    answer = index.query("orders", key="A")
    assert (offsets(answer), answer.complete) == ([2], False)
    index.roll()
    index.run_compaction()
    answer = index.query("orders", key="A")
    assert (offsets(answer), answer.complete) == ([2, 1], True)
    assert [file.state for file in index.files()] == ["uploaded", "uploaded"]


def test_a_file_published_while_the_table_is_brought_up_stays(make_node):
    index = make_node("a")
    put(index, "A", 1)
    index.roll()
    index.run_compaction()
    nodes, table = components_of(index).read_view.manifests, components_of(index).table
    with table.snapshot() as snapshot:
        assert [handle.state for handle in snapshot.files] == [FileState.UPLOADED]
    nodes.show()
    assert offsets(index.query("orders", key="A")) == [1]


def test_owner_that_claims_late_knows_nothing_before_its_files_are_shown(make_node, store):
    """The claim reads the manifest and commits to it; the table shows what it lists a little later."""
    first = make_node("a")
    publish(first, 1)
    first.close()
    store.broken = ("nodes/a/",)
    index = make_node("a", max_staleness=10)
    store.broken = ()
    components_of(index).writing.compactor.components.claim.get()
    answer = index.query("orders", key="A")
    assert offsets(answer) == [1] or not answer.complete
    index.refresh()
    answer = index.query("orders", key="A")
    assert (offsets(answer), answer.complete) == ([1], True)
