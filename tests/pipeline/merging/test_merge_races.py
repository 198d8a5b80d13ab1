"""Merges of jobs beside owners and other jobs: nothing is hidden, nothing expired comes back."""

from __future__ import annotations

import pytest

from tierdex import Index
from tierdex.clock import ManualClock
from tierdex.compactor.upload import Target
from tierdex.ids import SeededIds
from tierdex.lifecycle.manifests.manifest import RemoveReason
from tierdex.lifecycle.retention import KEEP_FOR_EVER, make_retention
from tierdex.pipeline.jobs.publishing import JobNode
from tierdex.pipeline.jobs.snapshot import open_log, read_forgotten, take_snapshot
from tierdex.pipeline.merging.merge_job import mergeable
from tierdex.pipeline.merging.merge_task import merge_group
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of


class Watched(MemoryStore):
    """A store that lets something happen before a request for a node's manifest."""

    def __init__(self):
        super().__init__()
        self.before_reading: dict[str, object] = {}  # node -> what happens, once

    def get(self, key, position=None, length=None):
        happens = self.before_reading.pop(key.split("/")[1], None)
        if happens is not None:
            happens()
        return super().get(key, position, length)


@pytest.fixture
def store():
    return Watched()


def open_owner(folder, store, clock, **settings):
    return Index.open(
        folder, store=store, node="a", clock=clock, ids=SeededIds(1),
        slot_count=64, item_capacity=1000, background=False, disk_reserve_bytes=0, **settings,
    )  # fmt: skip


@pytest.fixture
def owner(store, tmp_path):
    """An owner of node `a` with two published files."""
    clock = ManualClock()
    index = open_owner(tmp_path / "a", store, clock)
    for offset in range(2):
        clock.advance(1)
        index.put(topic="t", keys=["K"], queue_id=0, offset=offset, size=1, timestamp=offset)
        index.roll()
        index.run_compaction()
    yield index
    index.close()


@pytest.fixture
def later(owner):
    """Let the owner do what is due once the grace time has passed."""

    def run():
        components_of(owner).clock.advance(100 * components_of(owner).settings.grace_time)
        owner.run_compaction()

    return run


def merge_into_jobs(store, rows, meanwhile=lambda: None):
    """Merge the files of node `a` into the shared node `jobs`; return what is listed there then."""
    job = JobNode(store, "jobs")
    number = job.shared.state.number
    parts = [("a", row) for row in sorted(rows, key=lambda row: row.number)]
    forgotten = read_forgotten(store)
    merged = merge_group(store, parts, Target("jobs", number, 16, forgotten))
    meanwhile()
    return job.merge([(merged, ())])


def items_by_node(snapshot):
    found: dict[str, int] = {}
    for file in snapshot.files:
        found[file.node] = found.get(file.node, 0) + file.row.item_count
    return found


def test_a_merge_while_manifests_are_read_hides_nothing(store, owner):
    rows = [file.row for file in take_snapshot(store).files]

    def meanwhile():
        merge_into_jobs(store, rows)
        owner.refresh()
        owner.run_compaction()  # and drops what was merged

    store.before_reading["a"] = meanwhile  # after the nodes were listed, before this one is read
    snapshot = take_snapshot(store)
    assert not store.before_reading
    assert items_by_node(snapshot) == {"jobs": 2}


def test_a_file_dropped_for_a_merge_that_nobody_reads_costs_one_more_look(store, owner):
    merge_into_jobs(store, [file.row for file in take_snapshot(store).files])
    owner.refresh()
    owner.run_compaction()
    assert items_by_node(take_snapshot(store, ["a"])) == {}
    assert items_by_node(take_snapshot(store, ["a", "jobs"])) == {"jobs": 2}


def test_a_merge_does_not_bring_back_what_expired_while_it_ran(store, owner):
    rows = [file.row for file in take_snapshot(store).files]

    def expire_the_older():
        (expired,) = owner.expire(before=max(row.sealed_at_ms for row in rows))
        assert expired.item_count == 1

    assert not merge_into_jobs(store, rows, expire_the_older)
    assert items_by_node(take_snapshot(store)) == {"a": 1}
    assert len(merge_into_jobs(store, [file.row for file in take_snapshot(store).files])) == 1


def test_files_are_not_merged_into_a_node_that_keeps_them_for_another_time(store, owner, tmp_path):
    assert len(mergeable(take_snapshot(store), KEEP_FOR_EVER)) == 2
    assert mergeable(take_snapshot(store), make_retention(60.0)) == []
    owner.close()
    a_long_time = 1e9
    open_owner(tmp_path / "b", store, ManualClock(), retention=a_long_time).close()
    assert mergeable(take_snapshot(store), KEEP_FOR_EVER) == []
    assert len(mergeable(take_snapshot(store), make_retention(a_long_time))) == 2


def test_a_replaced_file_is_named_until_its_owner_has_forgotten_it(store, owner, later):
    rows = [file.row for file in take_snapshot(store).files]
    merge_into_jobs(store, rows)
    job = JobNode(store, "jobs")
    for _ in range(2):
        assert {ref.uuid for ref in job.shared.state.replaced} == {row.uuid for row in rows}
        job.collect()  # it is listed still; then dropped, and not yet forgotten
        owner.refresh()
        owner.run_compaction()
    later()
    job.collect()
    assert job.shared.state.replaced == frozenset()
    assert items_by_node(take_snapshot(store)) == {"jobs": 2}


class CallBack(MemoryStore):
    """A store that lets something happen before or after its nth request of a merge."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.calls, self.at, self.happens = inner, 0, None, None

    def __getattribute__(self, name):
        if name not in ("get", "put", "put_if_absent", "list", "head", "upload", "delete"):
            return super().__getattribute__(name)
        call = getattr(self.inner, name)

        def counted(*arguments, **more):
            self.calls += 1
            if self.calls == self.at:
                self.happens()
            return call(*arguments, **more)

        return counted


@pytest.mark.parametrize("is_first", [True, False])
def test_an_expiry_at_any_request_of_a_merge_never_comes_back(tmp_path, is_first):
    """Whether the shared node exists before the merge or is made by it."""
    at = 0
    while True:
        at += 1
        inner = Watched()
        clock = ManualClock()
        owner = open_owner(tmp_path / str(at), inner, clock)
        for offset in range(2 if is_first else 3):
            clock.advance(1)
            owner.put(topic="t", keys=["K"], queue_id=0, offset=offset, size=1, timestamp=offset)
            owner.roll()
            owner.run_compaction()
        rows = sorted((f.row for f in take_snapshot(inner).files), key=lambda row: row.number)
        if not is_first:
            merge_into_jobs(inner, rows[2:])
            rows = rows[:2]
        store = CallBack(inner)
        expired = []

        def expire_the_older(owner=owner, rows=rows, expired=expired):
            expired.extend(owner.expire(before=rows[1].sealed_at_ms))

        store.at, store.happens = at, expire_the_older
        merge_into_jobs(store, rows)
        reader = Index.open(None, store=inner, read_only=True, background=False)
        found = {entry.offset for entry in reader.query("t", key="K").entries}
        reader.close()
        owner.close()
        if store.calls < at:
            break
        state = open_log(inner, "a").load()
        dropped = state.dropped.get(rows[0].uuid)
        went = dropped is not None and dropped.reason is RemoveReason.EXPIRED
        assert went == bool(expired), at
        assert (0 in found) != went, at  # expired for good, or in the merged file and not expired
        assert expired or JobNode(inner, "jobs").shared.state.replaced
        assert 1 in found
    assert at > 10
