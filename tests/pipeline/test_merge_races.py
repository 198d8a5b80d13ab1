"""What a job plans with: every published entry once, whatever is merged while manifests are read."""

from __future__ import annotations

import pytest

from tierdex import Index
from tierdex.ids import SeededIds
from tierdex.pipeline.merge_task import merge_group
from tierdex.pipeline.publishing import JobNode
from tierdex.pipeline.snapshot import take_snapshot
from tierdex.storage_layer.memory import MemoryStore


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


@pytest.fixture
def owner(store, tmp_path):
    """An owner of node `a` with two published files."""
    index = Index.open(
        tmp_path / "a", store=store, node="a", ids=SeededIds(1), slot_count=64, item_capacity=1000,
        background=False, disk_reserve_bytes=0,
    )  # fmt: skip
    for offset in range(2):
        index.put(topic="t", keys=["K"], queue_id=0, offset=offset, size=1, timestamp=offset)
        index.roll()
        index.run_compaction()
    yield index
    index.close()


def merge_into_jobs(store, rows):
    job = JobNode(store, "jobs")
    number = job.shared.state.number
    parts = [("a", row) for row in sorted(rows, key=lambda row: row.number)]
    job.merge([(merge_group(store, parts, node="jobs", read_number=number, filter_bits=16), ())])


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
