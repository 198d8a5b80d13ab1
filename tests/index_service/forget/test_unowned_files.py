"""Forgetting at once where no owner is at work: files of shared nodes and of closed owners."""

from __future__ import annotations

import pytest

from tests.index_service.conftest import SMALL, offsets, put
from tierdex import Index
from tierdex.clock import ManualClock
from tierdex.compactor.merged_file import open_published
from tierdex.compactor.upload import Target
from tierdex.ids import SeededIds
from tierdex.indexfile.hashing import key_hash
from tierdex.pipeline.jobs.publishing import JobNode
from tierdex.pipeline.jobs.snapshot import open_log, take_snapshot
from tierdex.pipeline.merging.merge_job import mergeable
from tierdex.pipeline.merging.merge_task import merge_group
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of

ASKED = [{"topic": "orders", "key": "K"}]


class World:
    """Node `a` whose owner is closed, node `jobs` with merged files of `b`, whose owner is idle."""

    def __init__(self, folder):
        self.folder = folder
        self.clock = ManualClock()
        self.store = MemoryStore(clock=self.clock)
        self.rows = []
        self.b = self.open("b")
        for node, index in (("a", self.open("a")), ("b", self.b)):
            for number in range(2):
                self.clock.advance(1)
                put(index, "K", number + 10 * (node == "b"))
                put(index, "other", number + 10 * (node == "b"))
                index.flush("remote")
            if node == "a":
                index.close()
        self.note_rows()
        self.merge("b")
        for _ in range(2):
            self.clock.advance(31)
            self.b.run_compaction()  # drops what was merged
        self.reader = Index.open(
            None, store=self.store, read_only=True, background=False, clock=self.clock,
            ids=SeededIds(7), grace_time=60.0,
        )  # fmt: skip

    def open(self, node, number=1, **more):
        rules = {"remote_interval": 0, "merge_min_files": 100, "grace_time": 60.0}
        return Index.open(
            self.folder / node, store=self.store, node=node, clock=self.clock,
            ids=SeededIds(number + 100 * ord(node)), **{**SMALL, **rules, **more},
        )  # fmt: skip

    def merge(self, node):
        """Merge the node's files into node `jobs`; return how many those were."""
        job, snapshot = JobNode(self.store, "jobs"), take_snapshot(self.store)
        files = mergeable(snapshot, job.shared.state.retention)
        group = [(file.node, file.row) for file in reversed(files) if file.node == node]
        if group:
            to = Target("jobs", job.shared.state.number, 16, snapshot.forgotten)
            assert job.merge([(merge_group(self.store, group, to), ())])
        return len(group)

    def forget(self):
        self.clock.advance(1)
        receipt = self.reader.forget(ASKED, now=True)
        self.b.run_compaction()
        return self.reader.resume_forgetting(receipt)

    def state(self, node):
        return open_log(self.store, node).load()

    def holders(self):
        """Return the objects of the bucket, listed or not, whose rows have the hash of K."""
        wanted, found = key_hash("orders", "K"), set()
        for row in {row.object_key: row for row in self.rows}.values():
            if row.object_key in {each.key for each in self.store.list("nodes/")}:
                file = open_published(self.store, row)
                hashes = [rows["key_hash"] for rows in file.rows_in_hash_order(100)]
                if any((some == wanted).any() for some in hashes):
                    found.add(row.object_key)
        return found

    def note_rows(self):
        """Remember every row that is listed now: an object is looked into by its row."""
        for node in ("a", "b", "jobs"):
            self.rows += self.state(node).files.values()


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    with world.b, world.reader:
        yield world


def test_files_without_an_owner_are_written_anew_and_deleted_by_whoever_asks(world):
    before = [e.file_id for e in world.reader.query("orders", key="other").entries]
    epoch = world.state("a").epoch
    world.note_rows()
    assert len(world.holders()) == 5  # with two that were merged into another one
    receipt = world.forget()
    assert receipt.is_complete
    assert receipt.holding == []
    assert sorted(entry.offset for entry in receipt.entries) == [0, 1, 10, 11]
    assert sorted(file.node for file in receipt.rewritten) == ["a", "a", "jobs"]
    assert {each.object_key for each in receipt.lingering} == world.holders()
    world.note_rows()
    listed = {
        row.object_key for node in ("a", "b", "jobs") for row in world.state(node).files.values()
    }
    assert not world.holders() & listed
    assert {file.object_key for file in receipt.rewritten} == listed
    # Everything else is where it was: files, their order, the node's owner, that it is closed.
    other = world.reader.query("orders", key="other")
    assert [entry.file_id for entry in other.entries] == before
    assert (offsets(other), other.complete) == ([11, 10, 1, 0], True)
    assert offsets(world.reader.query("orders", key="K")) == []
    (standing,) = (info.standing for info in world.reader.nodes() if info.node == "a")
    assert (standing, world.state("a").epoch) == ("closed", epoch)
    # Once the grace time is over the objects are deleted, and the request ends.
    assert world.reader.forgettings() == [receipt.forgetting]
    world.clock.advance(61)
    world.b.run_compaction()  # its own
    assert world.reader.forgettings() == []
    assert world.holders() == set()


def test_owner_that_comes_back_goes_on_with_what_was_written_in_its_name(world):
    assert world.forget().is_complete
    with world.open("a", 2) as a:  # no take-over: no other folder has had the node
        assert offsets(a.query("orders", key="K")) == []
        assert [o for o in offsets(a.query("orders", key="other")) if o < 10] == [1, 0]
        put(a, "K", 0)
        a.flush("remote")
        for _ in range(3):
            world.clock.advance(61)
            a.run_compaction()
        assert a.watermark("orders", 0)["remote"] == 11
        assert all(a.verify_file(info.file_id) == [] for info in a.files())
        world.reader.refresh()
        assert offsets(world.reader.query("orders", key="K")) == [0]


def test_owner_that_comes_back_meanwhile_is_left_to_do_it_itself(world, monkeypatch):
    unowned = components_of(world.reader).forgetter._unowned
    back, write_anew = [], type(unowned).write_anew

    def come_back(self, handle, forgotten):
        if not back:
            back.append(world.open("a", 2))
        return write_anew(self, handle, forgotten)

    monkeypatch.setattr(type(unowned), "write_anew", come_back)
    receipt = world.forget()
    (a,) = back
    with a:
        assert not receipt.is_complete
        (node, held, reason) = receipt.waiting[0].file, receipt.holding, receipt.waiting[-1].reason
        assert {file.node for file in held} == {"a"}, node
        assert "node a" in reason
        a.run_compaction()
        receipt = world.reader.resume_forgetting(receipt)
        assert receipt.is_complete
        assert receipt.holding == []


def test_merge_of_an_owner_that_has_not_heard_of_a_request_shows_nothing_again(world):
    world.merge("a")
    b = world.b
    put(b, "K", 20)
    b.flush("remote")
    world.clock.advance(1)
    receipt = world.reader.forget(ASKED)
    assert [missing.file for missing in receipt.waiting] == ["node:b"]
    world.clock.advance(61)
    components_of(b).writing.sign.step()  # it says that it lives, and has read nothing since
    assert world.reader.resume_forgetting(receipt).is_complete
    put(b, "K", 20)
    put(b, "new", 21)
    b.roll()
    parts = components_of(b).writing.compactor
    parts.run_all()
    state = parts.components.claim.get().state
    from tierdex.compactor.merge import merge_published

    merge_published(parts.components, sorted(state.files.values(), key=lambda row: row.number))
    world.reader.refresh()
    assert offsets(world.reader.query("orders", key="new")) == [21]
    assert offsets(world.reader.query("orders", key="K")) == []


def test_files_of_a_node_that_has_not_acknowledged_are_not_merged_with_others(world):
    b = world.b
    put(b, "K", 20)
    world.clock.advance(1)
    receipt = world.reader.forget(ASKED)
    assert not receipt.is_complete
    components_of(b).writing.writer.roll()
    components_of(b).writing.compactor.run_all()  # publishes, and has not heard of the request
    assert world.merge("b") == 0
    b.run_compaction()
    world.clock.advance(1)
    receipt = world.reader.resume_forgetting(receipt)
    assert receipt.is_complete
    assert 20 in [entry.offset for entry in receipt.entries]
    world.reader.refresh()
    assert offsets(world.reader.query("orders", key="K")) == []
    assert world.merge("b") == 1
