"""Readers of an open log while its files change their state: each call answers, and misses nothing."""

from __future__ import annotations

import pytest

from tests.log_service.log_world import seal_rolled
from tests.log_service.recovery.test_takeover import QUEUES, fill
from tierdex.log_service import operations
from tierdex.log_service.files.log_file import LiveFile
from tierdex.log_service.forget import forgetting
from tierdex.log_service.levels import Level
from tierdex.log_service.read import many_reads
from tierdex.log_service.read.reads import place_of
from tierdex.log_service.read_policy import ReadLimits
from tierdex.log_service.recovery.log_recovery import seal_notes
from tierdex.testing.components import components_of


@pytest.fixture
def log(world):
    """A log with a rolled journal and one that grows, both written and not synced."""
    log = world.open()
    fill(world, log, 12)
    log.roll()
    fill(world, log, 12)
    return log


@pytest.mark.parametrize("many", [False, True])
def test_a_queue_begins_at_its_first_message_at_whatever_moment_it_is_synced(
    log, monkeypatch, many
):
    looks = []

    def then_sync(found):
        looks.append(found)
        if len(looks) == 1:
            log.flush("disk")
        return found

    part, extent = many_reads._part, LiveFile.extent
    monkeypatch.setattr(many_reads, "_part", lambda *asked: then_sync(part(*asked)))
    monkeypatch.setattr(LiveFile, "extent", lambda self, *asked: then_sync(extent(self, *asked)))
    if many:
        answer = log.read_many([(*QUEUES[0], 0)])[0]
    else:
        answer = components_of(log).reads.read_many(
            [place_of(*QUEUES[0], 0)], ReadLimits(100, 1 << 20, Level.DISK)
        )[0]
    assert looks
    assert (answer.begin_offset, answer.missing) == (0, ())
    assert [message.offset for message in answer.messages] == list(range(len(answer)))


def test_a_receipt_looks_at_files_that_compaction_closes_meanwhile(log, monkeypatch):
    log.roll()
    log.run_compaction()
    fill_again = [b"later"] * 5
    log.append_batch(topic="a", queue_id=0, body=fill_again, keys=[["K"]] * 5)
    log.roll()
    seal_rolled(log)
    has_any, looks = forgetting.has_any, []

    def look(handle, places):
        looks.append(handle)
        if len(looks) == 1:
            log.run_compaction()  # closes the sealed journal, which was listed before
        return has_any(handle, places)

    monkeypatch.setattr(forgetting, "has_any", look)
    receipt = log.forget("a", key="K")
    assert len(receipt.messages) == 5


def test_a_journal_that_is_sealed_while_it_is_verified_is_sound(log, monkeypatch):
    log.roll()
    log.flush("disk")
    (rolled, *_) = [
        handle
        for handle in components_of(log).table.version.files.local()
        if handle.state.value == "unsealed"
    ]
    rolled.reader.journal.seal(seal_notes(rolled.reader.journal, components_of(log).seams.clock))
    cut = ["12880 bytes: sealed, or cut"]  # as a look finds that began before the seal
    monkeypatch.setattr(operations, "check_log_file", lambda *_: cut)
    assert log.verify_file(rolled.file_id) == []


def test_a_follower_whose_file_was_merged_before_it_was_walked_looks_anew(world, log):
    follower = world.open(read_only=True)
    assert follower.get("a", key="k0").complete
    dispatcher = components_of(follower).followed_index._dispatcher
    dispatcher._walk.uuid, dispatcher._walk.has_ended = b"another file    ", False
    found = follower.get("a", key="k0", visible="os")
    assert found.missing == ()
    assert len(found) > 0


def test_a_node_that_is_made_now_makes_no_answer_incomplete(log):
    manifests = components_of(log.index).read_view.manifests
    manifests.log_of("made-now")
    assert manifests.missing() == []
    assert log.index.query("a", key="k0").complete


def test_a_follower_sees_a_published_merge_before_it_has_seen_its_copies_go(world):
    log = world.open(merge_min_files=2)
    for _ in range(2):
        fill(world, log, 12)
        log.roll()
        log.catch_up()
        writing = components_of(log).writing
        while writing.local.run_first(writing.units()):
            pass  # sealed and compacted, and not published
    follower = world.open(read_only=True)
    assert "uploaded" not in {info.state for info in follower.files()}
    assert follower.get("a", key="k0").complete
    log.run_compaction()
    log.run_compaction()
    assert [info.state for info in log.files() if info.message_count] == ["uploaded"]
    components_of(follower).followed_index.index.refresh()  # the manifests, and not yet the folder
    manifests = components_of(follower.index).read_view.manifests
    assert manifests.missing() == []
    assert [info.state for info in follower.files() if info.message_count] == ["uploaded"]
    found = follower.get("a", key="k0", max_count=100)
    assert found.missing == ()
    assert len(found) == len(log.get("a", key="k0", max_count=100))
    for queue in QUEUES:
        bodies = [message.body for message in follower.reader(*queue)]
        assert bodies == [message.body for message in log.reader(*queue)]
