"""Forgetting beside a merge of other nodes' files, at every request of either: nothing shows again."""

from __future__ import annotations

import pytest

from tests.index_service.conftest import SMALL, offsets, put
from tierdex import Index
from tierdex.clock import ManualClock
from tierdex.compactor.upload import Target
from tierdex.errors import NotFoundError
from tierdex.ids import SeededIds
from tierdex.pipeline.jobs.publishing import JobNode
from tierdex.pipeline.jobs.snapshot import open_log, take_snapshot
from tierdex.pipeline.merging.merge_job import commit_merges, mergeable
from tierdex.pipeline.merging.merge_task import merge_group
from tierdex.storage_layer.memory import MemoryStore

ASKED = [{"topic": "orders", "key": "K"}]
GRACE_S = 5.0
STRIDE = 5  # of the requests at which the other side comes in; make torture takes every one


class Interrupted(MemoryStore):
    """A store that lets something happen before a request, once."""

    left = None  # requests until then; None: never
    happens = staticmethod(lambda: None)

    def interrupt(self, left, happens):
        self.left, self.happens = left, happens

    def _count(self):
        if self.left is None:
            return
        self.left -= 1
        if self.left < 0:
            self.left = None
            self.happens()

    def get(self, key, position=None, length=None):
        self._count()
        return super().get(key, position, length)

    def put(self, key, data):
        self._count()
        super().put(key, data)

    def put_if_absent(self, key, data):
        self._count()
        return super().put_if_absent(key, data)

    def upload(self, key, source, size):
        self._count()
        super().upload(key, source, size)

    def list_folders(self, prefix):
        self._count()
        return super().list_folders(prefix)


class World:
    """An owner with three published files, an idle reader, a job that merges them into node `jobs`."""

    def __init__(self, folder):
        self.clock = ManualClock()
        self.store = Interrupted(clock=self.clock)
        self.owner = Index.open(
            folder, store=self.store, node="a", clock=self.clock, ids=SeededIds(1),
            **SMALL, remote_interval=0, merge_min_files=100, grace_time=GRACE_S,
        )  # fmt: skip
        for key in ("K", "other", "K"):
            self.clock.advance(1)
            put(self.owner, key, len(self.owner.files()))
            self.owner.flush("remote")

    def merge(self):
        """Merge the owner's files as `tierdex merge` and Spark do; return how many."""
        target = JobNode(self.store, "jobs")
        snapshot = take_snapshot(self.store)
        rules = target.shared.state.retention
        files = [file for file in mergeable(snapshot, rules) if file.node == "a"]
        group = [(file.node, file.row) for file in reversed(files)]
        if len(group) < 2:
            return 0
        to = Target("jobs", target.shared.state.number, 16, snapshot.forgotten)
        try:
            rows = merge_group(self.store, group, to)
        except NotFoundError:
            return 0  # a source was written anew, and the grace time is over
        return commit_merges(
            self.store, target, len(group), [(group, rows)], collect=False
        ).files_merged

    def forget(self, *, now):
        self.clock.advance(1)
        receipt = self.owner.forget(ASKED, now=now)
        for _ in range(3):
            if receipt.is_complete:
                break
            self.owner.run_compaction()
            receipt = self.owner.resume_forgetting(receipt)
        assert receipt.is_complete, receipt
        return receipt

    def end(self):
        """Let everything be deleted that is not read any more, and requests end with it."""
        for _ in range(2):
            self.clock.advance(31)  # housekeeping is due, and the grace time over
            self.owner.run_compaction()

    def check(self):
        """K is forgotten and was not put since; a reader and the owner agree; a later put shows."""
        self.owner.refresh()
        reader = Index.open(
            None, store=self.store, read_only=True, background=False, clock=self.clock,
            ids=SeededIds(5),
        )  # fmt: skip
        with reader:
            for index in (self.owner, reader):
                found = {key: index.query("orders", key=key) for key in ("K", "other")}
                assert all(answer.complete for answer in found.values())
                assert {key: offsets(answer) for key, answer in found.items()} == {
                    "K": [],
                    "other": [1],
                }
            put(self.owner, "K", 0)  # the same location
            self.owner.flush("remote")
            for index in (self.owner, reader):
                index.refresh()
                assert offsets(index.query("orders", key="K")) == [0]


@pytest.mark.parametrize("ends", [False, True])
def test_what_is_forgotten_within_a_merge_stays_forgotten(tmp_path, ends):
    requests = 0
    while True:
        world = World(tmp_path / str(requests))
        with world.owner:

            def meanwhile(world=world):
                world.forget(now=ends)
                if ends:
                    world.end()
                    assert world.owner.forgettings() == []

            world.store.interrupt(requests, meanwhile)
            world.merge()
            is_over = world.store.left is not None
            world.store.left = None
            if is_over:
                break
            world.check()
            world.forget(now=True)  # what was put again, and what the merge took with it
            world.end()
            rows = open_log(world.store, "jobs").load().files.values()
            assert sum(row.item_count for row in rows) <= 1, "a live object holds it"
        requests += STRIDE
    assert requests > 15


def test_what_a_merge_takes_within_a_request_is_forgotten_with_it(tmp_path):
    requests = 0
    while True:
        world = World(tmp_path / str(requests))
        with world.owner:
            merged = []
            world.store.interrupt(requests, lambda w=world, m=merged: m.append(w.merge()))
            world.forget(now=True)
            is_over = world.store.left is not None
            world.store.left = None
            if is_over:
                break
            world.check()
            assert merged
        requests += STRIDE
    assert requests > 15
