"""A log goes on at another node's folder: handed over, taken after a crash, adopted; two owners at once."""

from __future__ import annotations

import contextlib

import pytest

from tests.log_service.keyed_world import TIMED, TINY_INDEX
from tests.log_service.log_world import DATA, SMALL, everything, open_log
from tests.log_service.store_listing import state_of
from tests.simulation.simulated_disk import SimulatedCrash
from tierdex.clock import ManualClock
from tierdex.errors import (
    FencedError,
    IncompleteAnswerError,
    LossyTakeoverError,
    NodeInUseError,
    OffsetsReusedError,
    OwnershipError,
    UnavailableError,
)
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.manifests.file_row import LOG_KIND, NOTES_KIND
from tierdex.lifecycle.paths import LOG_FOLDER, DataPaths, parse_sidecar_name
from tierdex.log_service.message_log import MessageLog
from tierdex.testing.components import components_of
from tierdex.testing.faulty_store import Fault

QUEUES = [("a", 0), ("a", 1), ("b", 7)]


def fill(world, log, count):
    for i in range(count):
        body = b"%d of %d" % (i, len(world.handed))
        world.append(log, QUEUES[i % 3], body * 5, [f"k{i % 7}"], f"id-{i % 11}", "os")


def test_log_that_was_handed_over_goes_on_elsewhere(world):
    log = world.open()
    fill(world, log, 40)
    log.roll()
    log.run_compaction()
    fill(world, log, 20)
    world.hold(log, 5_000_000, b"later", "disk")
    log.hand_over()
    with pytest.raises(FencedError, match="handed over"):
        log.append(topic="a", queue_id=0, body=b"too late")
    world.look(log)
    log.close()
    other = world.elsewhere()
    log = other.open()  # its owner ended with everything published
    other.look(log)
    fill(other, log, 30)  # `expect_offset` says that offsets go on
    other.look(log)
    other.look_at_timed(log, 2)
    log = other.open_after_a_kill()  # the folder is the owner's by now
    other.look(log)


def test_taken_over_index_goes_on_without_putting_anything_again(world):
    log = world.open()
    fill(world, log, 60)
    log.hand_over()
    held = sum(info.item_count for info in log.index.files())
    log.close()
    other = world.elsewhere()
    log = other.open(takeover=True)
    log.catch_up()
    assert sum(info.item_count for info in log.index.files()) == held


def test_crash_without_the_old_disk_needs_a_lossy_takeover_and_a_refusal_changes_nothing(
    world, caplog
):
    log = world.open()
    fill(world, log, 30)
    log.roll()
    log.run_compaction()
    kept = {queue: len(held) for queue, held in world.handed.items()}
    reader = log.reader("a", 0)
    assert len(list(reader)) == kept["a", 0]
    fill(world, log, 30)
    seen = log.reader("a", 0, visible="os")
    assert len(list(seen)) > kept["a", 0]
    before = state_of(world.store).number
    other = world.elsewhere()
    with pytest.raises(LossyTakeoverError, match='takeover="lossy"'):
        other.open(takeover=True)
    assert state_of(world.store).number == before
    fill(world, log, 3)  # its owner was not fenced
    for queue, count in kept.items():
        del other.handed[queue][count:]
    taken = other.open(takeover="lossy")
    assert other.disk.list_folder(DATA / "log" / "uploaded")  # the sidecar that it fetched is kept
    (lost,) = (record for record in caplog.records if "may be lost" in record.msg)
    assert list(map(bytes.fromhex, lost.outstanding))  # a line of a log that can be read
    other.look(taken)
    fill(other, taken, 60)
    other.look(taken)
    again = taken.reader("a", 0, kept["a", 0], generation=reader.generation, visible="os")
    assert [m.body for m in again] == [body for body, _, _ in other.handed["a", 0]][kept["a", 0] :]
    with pytest.raises(OffsetsReusedError):
        list(taken.reader("a", 0, seen.offset, generation=seen.generation))


@pytest.mark.parametrize("nth", [30, 75])
def test_lost_owner_that_had_crashed_before_shares_no_generation_with_the_next(world, nth):
    log = world.open()
    fill(world, log, 30)
    log.roll()
    log.run_compaction()
    kept = {queue: len(held) for queue, held in world.handed.items()}
    for _ in range(3):  # generations that were never published
        log = world.open_after_a_kill()
        fill(world, log, 6)
    seen = log.reader("a", 0, visible="os")
    list(seen)
    other = world.elsewhere()
    for queue, count in kept.items():
        del other.handed[queue][count:]
    other.disk.crash_at(nth)
    with pytest.raises(SimulatedCrash):
        other.open(takeover="lossy").close()
    other.disk = other.disk.restart()
    taken = other.open(takeover="lossy")
    fill(other, taken, 60)
    with pytest.raises(OffsetsReusedError):
        list(taken.reader("a", 0, seen.offset, generation=seen.generation))


def test_queue_that_a_merge_left_out_since_the_notes_were_carried_goes_on_where_it_ended(world):
    settings = {"retention": 1000.0, "merge_min_files": 2}
    log = world.open(**settings)
    log.append(topic="a", queue_id=0, body=b"expires")
    log.append(topic="a", queue_id=1, body=b"waits", deliver_at=world.now_ms + 10**10)
    log.hand_over()  # carries the notes
    log.close()
    other = world.elsewhere()
    log = other.open(takeover=True, **settings)
    components_of(log).seams.clock.advance(1001)
    log.run_compaction()
    assert [(info.message_count, info.state) for info in log.files()] == [(1, "uploaded")]
    log = other.elsewhere().open(takeover="lossy", **settings)  # the disk is lost
    assert (log.begin_offset("a", 0), log.end_offset("a", 0)) == (1, 1)
    assert log.append(topic="a", queue_id=0, body=b"next") == 1


def test_stale_owner_stops_and_counts_what_it_alone_has(world):
    log = world.open()
    fill(world, log, 30)
    log.roll()
    log.run_compaction()
    kept = {queue: list(held) for queue, held in world.handed.items()}
    other = world.elsewhere()
    other.handed = dict(kept)
    taken = other.open(takeover="lossy")
    fill(world, log, 6)  # it does not know yet
    log.roll()
    objects = {each.key for each in world.store.list("nodes/n/files/")}
    with pytest.raises(FencedError):
        log.run_compaction()
    with pytest.raises(FencedError, match=r"6 messages .* adopt"):
        log.append(topic="a", queue_id=0, body=b"stopped")
    assert log.unpublished_count() == 6
    assert len(log.read("a", 0, 0).messages) == len(world.handed["a", 0])  # it only answers
    assert {row.object_key for row in state_of(world.store).files.values()} <= objects
    fill(other, taken, 9)
    other.look(taken)
    publish(taken)
    log.index.refresh()  # the node lists messages under the same offsets by now
    held = {queue: [body for body, _, _ in told] for queue, told in world.handed.items()}
    assert everything(log, held) == held
    reader = open_log(world.disk.other_process(), store=world.store, index=True, read_only=True)
    for queue, bodies in held.items():
        answer = reader.read(*queue, 0)
        assert not answer.complete
        assert "another owner" in answer.missing[0].reason
        mine = reader.read(*queue, len(kept[queue])).messages
        assert [message.body for message in mine] in ([], bodies[len(kept[queue]) :])


def test_stale_owner_counts_nothing_that_the_store_took_before_its_answer_was_lost(world):
    log = world.open()
    fill(world, log, 6)
    log.roll()
    world.store.fail("put_if_absent", nth=1, fault=Fault.FAIL_AFTER)
    with pytest.raises(UnavailableError):
        log.run_compaction()
    taken = world.elsewhere().open(takeover="lossy")
    assert [taken.end_offset(*queue) for queue in QUEUES] == [2, 2, 2]
    fill(world, log, 3)
    with pytest.raises(FencedError):
        log.run_compaction()
    with pytest.raises(FencedError, match=r"\. 3 messages .* adopt"):
        log.append(topic="a", queue_id=0, body=b"stopped")
    assert log.unpublished_count() == 3


def test_adopted_tail_is_a_log_of_its_own_with_its_entries(world):
    log = world.open()
    fill(world, log, 30)
    log.roll()
    log.run_compaction()
    begins = {queue: len(held) for queue, held in world.handed.items()}
    other = world.elsewhere()
    other.handed = {queue: list(held) for queue, held in world.handed.items()}
    taken = other.open(takeover="lossy")
    fill(world, log, 30)
    log.get("a", key="k1")
    log.close()
    with pytest.raises(NodeInUseError):
        world.open()
    with pytest.raises(OwnershipError, match="adopt"):
        world.open(takeover=True)
    world.elsewhere().open(node="used").close()
    with pytest.raises(NodeInUseError, match="unused"):
        world.open(adopt=True, node="used", takeover=True)
    world.expired = begins  # they are with the node that it was
    adopted = world.open(adopt=True, node="n2")
    world.look(adopted)
    adopted.roll()
    adopted.run_compaction()
    world.look(adopted)
    fill(world, adopted, 12)
    adopted.close()
    assert state_of(world.store, "n2").files_of(LOG_KIND)
    again = world.open(node="n2")
    world.look(again)
    fill(other, taken, 12)
    other.look(taken)


def test_expired_queues_go_on_where_they_ended_on_another_disk(world):
    log = world.open()
    fill(world, log, 30)
    log.roll()
    log.run_compaction()
    world.expire(log)
    ends = {queue: log.end_offset(*queue) for queue in QUEUES}
    assert state_of(world.store).files_of(NOTES_KIND)
    other = world.elsewhere()
    taken = other.open(takeover="lossy")
    assert {queue: taken.end_offset(*queue) for queue in QUEUES} == ends
    fill(other, taken, 9)
    other.look(taken)


def test_folder_that_had_the_node_before_is_as_good_as_an_empty_one(world):
    log = world.open()
    fill(world, log, 30)
    world.expired = {}
    log.hand_over()
    log.close()
    other = world.elsewhere()
    log = other.open(takeover=True)
    fill(other, log, 30)
    log.roll()
    log.run_compaction()
    other.expire(log)
    fill(other, log, 9)
    log.hand_over()
    log.close()
    back = other.elsewhere()
    back.disk = world.disk
    log = back.open(takeover=True)
    back.look(log)
    fill(back, log, 9)
    back.look(log)


def test_log_that_was_taken_over_opens_without_its_store_from_then_on(world):
    log = world.open()
    fill(world, log, 30)
    log.roll()
    log.run_compaction()
    log.index.roll()
    log.run_compaction()
    other = world.elsewhere()
    other.open(takeover="lossy").close()
    with world.store.outage():
        taken = other.open()
        fill(other, taken, 9)
        taken.close()
    taken = other.open()
    other.look(taken)


@pytest.mark.parametrize("nth", [3, 20, 44])
def test_power_cut_within_a_takeover_loses_nothing(world, nth):
    log = world.open()
    fill(world, log, 30)
    world.expire(log) if nth % 2 else None
    log.hand_over()
    log.close()
    other = world.elsewhere()
    other.disk.crash_at(nth, after=bool(nth % 3))
    with contextlib.suppress(SimulatedCrash):
        other.open(takeover=True)
    other.disk = other.disk.restart()
    taken = other.open(takeover=True)
    other.look(taken)
    fill(other, taken, 9)
    other.look(taken)
    other.look_at_timed(taken, 2)


def test_adoption_that_the_store_cuts_off_leaves_the_folder_its_node(world):
    log = world.open()
    fill(world, log, 30)
    log.roll()
    log.run_compaction()
    begins = {queue: len(held) for queue, held in world.handed.items()}
    fill(world, log, 9)
    log.close()
    with world.store.outage(), pytest.raises(UnavailableError):
        world.open(adopt=True, node="n2")
    adopted = world.open(adopt=True, node="n2")
    assert {queue: adopted.begin_offset(*queue) for queue in begins} == begins
    world.expired = begins  # they are with the node that it was
    world.look(adopted)


def test_log_is_fenced_by_whichever_of_its_workers_meets_the_store_first(world):
    world.settings = {"merge_min_files": 2}
    log = world.open()
    for _ in range(2):
        fill(world, log, 12)
        log.roll()
        log.run_compaction()
    world.elsewhere().open(takeover="lossy")
    with pytest.raises(FencedError):
        log.expire(before=components_of(log).seams.clock.now_ms() + 1)
    with pytest.raises(FencedError):
        log.append(topic="a", queue_id=0, body=b"stopped")


def publish(log):
    log.roll()
    log.run_compaction()


def test_messages_that_expired_unpublished_leave_no_gap_in_the_store(world):
    log = world.open()
    world.hold(log, 3_000_000, b"later", "disk")  # keeps the first file
    fill(world, log, 12)
    publish(log)
    with world.store.outage():
        fill(world, log, 12)
        log.roll()
        with contextlib.suppress(UnavailableError):
            log.run_compaction()
        world.expire(log)  # the second file is known to no owner
    fill(world, log, 12)
    publish(log)
    begins = {queue: log.begin_offset(*queue) for queue in QUEUES}
    assert all(begins.values())
    taken = world.elsewhere().open(takeover="lossy")
    assert {queue: taken.begin_offset(*queue) for queue in QUEUES} == begins
    world.look(taken)


def test_expiry_after_a_hand_over_leaves_the_node_released(world):
    log = world.open()
    fill(world, log, 12)
    log.hand_over()
    world.expire(log)
    log.close()
    other = world.elsewhere()
    other.look(other.open(takeover=True))


def test_held_message_outlives_a_disk_that_alone_had_its_delivery(world):
    log = world.open()
    world.hold(log, 40, b"later", "disk")
    publish(log)
    world.advance(log, 1000)
    assert log.deliver_due() == 1
    log.expire(before=world.now_ms + 1)  # the store has it as one that waits
    other = world.elsewhere()
    taken = other.open(takeover="lossy")
    taken.deliver_due()
    assert [message.body for message in taken.reader(*TIMED)] == [b"later"]


def test_late_claim_does_not_fence_a_log_for_a_file_that_lies_in_its_folder(world):
    log = world.open()
    fill(world, log, 12)
    log.roll()
    world.store.fail("put_if_absent", nth=1, fault=Fault.FAIL_AFTER)  # listed, and not noted
    with contextlib.suppress(UnavailableError):
        log.run_compaction()
    assert state_of(world.store).files_of(LOG_KIND)
    with world.store.outage():
        log = world.open_after_a_kill()
        fill(world, log, 3)
    publish(log)
    fill(world, log, 3)
    world.look(log)


def test_opening_that_the_store_cuts_off_anywhere_leaves_the_folder_free(world):
    log = world.open()
    fill(world, log, 30)
    publish(log)
    log.index.roll()
    log.run_compaction()
    world.elsewhere().open(
        takeover="lossy"
    )  # it was not handed over: the index's end is asked of the store
    refused = 0
    for nth in range(1, 40):
        other = world.elsewhere()
        world.store.fail("get", nth=nth, fault=Fault.FAIL_BEFORE)
        try:
            other.open(takeover="lossy").close()
        except UnavailableError:
            refused += 1
        world.store.cancel_faults()
        other.open(takeover="lossy").close()
    assert refused > 2


def test_local_file_that_goes_hides_no_held_message_that_the_store_alone_would_deliver(world):
    log = world.open()
    world.hold(log, 40, b"published", "disk")
    publish(log)
    world.hold(log, 50, b"local", "disk")
    with world.store.outage():
        log.roll()
        with contextlib.suppress(UnavailableError):
            log.run_compaction()
    world.advance(log, 1000)
    assert log.deliver_due() == 2
    log.expire(before=world.now_ms + 1)
    components_of(log).writing.kind.carry_notes()
    taken = world.elsewhere().open(takeover="lossy")
    taken.deliver_due()
    assert b"published" in [message.body for message in taken.reader(*TIMED)]


@pytest.mark.parametrize("goes_on", [True, False])
def test_adopted_queues_begin_and_go_on_where_their_folder_let_messages_go(world, goes_on):
    world.settings = {"topic_retention": {"a": 3600.0}, "merge_min_files": 99}
    with world.store.outage():
        log = world.open()
        fill(world, log, 30)
        log.roll()
        for i in range(12):
            world.append(log, QUEUES[0], b"only here %d" % i, ["k"])
        log.roll()
        for hours in (0, 2):
            world.advance(log, hours * 3_600_000)
            with contextlib.suppress(UnavailableError):
                log.run_compaction()
        assert len(log.files()) == 1, "the second one expired"
        if goes_on:
            fill(world, log, 9)
        log.flush("disk")
        bounds = {queue: (log.begin_offset(*queue), log.end_offset(*queue)) for queue in QUEUES}
        log.close()
    assert bounds[QUEUES[0]][0] == 22
    world.settings, bounds["a", 1] = {}, (0, bounds["a", 1][1])  # the rule alone hid them
    world.expired = {queue: begin for queue, (begin, _) in bounds.items()}
    with world.store.outage(), pytest.raises(UnavailableError):
        world.open(adopt=True, node="n2")
    adopted = world.open(adopt=True, node="n2")
    for log in (adopted, None):
        log = log or world.open(node="n2")
        found = {queue: (log.begin_offset(*queue), log.end_offset(*queue)) for queue in QUEUES}
        assert found == bounds
        assert log.read("a", 0, 0).begin_offset == 22
        world.look(log)
        fill(world, log, 3)
        log.flush("disk")
        bounds = {queue: (begin, end + 1) for queue, (begin, end) in bounds.items()}
        log.roll()
        log.run_compaction()
        world.look(log)
        log.close()


def test_folder_that_gets_its_log_back_keeps_nothing_of_files_that_went_meanwhile(world):
    log = world.open()
    fill(world, log, 30)
    log.hand_over()
    log.close()
    kept = kept_tails(world)
    assert kept == {
        row.uuid for row in state_of(world.store).files.values() if row.kind != NOTES_KIND
    }
    other = world.elsewhere()
    log = other.open(takeover=True)
    other.expire(log)
    log.run_compaction()
    log.hand_over()
    log.close()
    assert not state_of(world.store).files_of(LOG_KIND)
    back = other.elsewhere()
    back.disk = world.disk
    with world.store.outage(), contextlib.suppress(UnavailableError):
        back.open(takeover=True)  # no answer says what is listed
    assert kept_tails(back) == kept
    log = back.open(takeover=True)
    log.index.refresh()
    assert kept_tails(back) <= state_of(world.store).files.keys()
    back.look(log)


def kept_tails(world):
    """Return the uuids of files of which the folder keeps the filter and directory."""
    folders = [DataPaths(root).folder(FileState.UPLOADED) for root in (DATA, DATA / LOG_FOLDER)]
    names = [parse_sidecar_name(name) for each in folders for name in world.disk.list_folder(each)]
    return {name.uuid for name in names if name is not None}


def test_files_that_cannot_say_what_they_hold_move_no_end_and_are_not_passed_over(world):
    log = world.open()
    fill(world, log, 30)
    log.hand_over()
    log.close()
    other = world.elsewhere()
    log = other.open(takeover=True)
    reader = log.reader("a", 0)
    with world.store.outage():
        ends = {queue: log.end_offset(*queue) for queue in QUEUES}
        assert ends == dict.fromkeys(QUEUES, 10)
        for _ in range(2):
            with pytest.raises(UnavailableError):
                log.begin_offset("a", 0)
            with pytest.raises(IncompleteAnswerError):
                next(iter(reader))
            fill(other, log, 3)  # local files have the queue by now, and it does not begin there
        log.append(topic="a", queue_id=0, body=b"staged", durability="received")
        assert [log.end_offset("a", 0, level=level) for level in ("os", "disk")] == [12, 10]
        log.roll()
        with pytest.raises(UnavailableError):
            log.end_offset("a", 1, level="remote")
    other.handed["a", 0].append((b"staged", (), None))
    log.flush("disk")
    assert len(list(reader)) == 13
    other.look(log)


@pytest.mark.parametrize("fault", [None, Fault.FAIL_AFTER])
def test_adopted_queue_of_which_all_was_published_goes_on_behind_it(world, fault):
    log = world.open()
    fill(world, log, 6)
    log.roll()
    if fault is not None:  # listed, and no owner heard so
        world.store.fail("put_if_absent", nth=1, fault=fault)
    with contextlib.suppress(UnavailableError):
        log.run_compaction()
    world.append(log, QUEUES[0], b"only here", ["k"])
    log.close()
    adopted = world.open(adopt=True, node="n2")
    found = {queue: (adopted.begin_offset(*queue), adopted.end_offset(*queue)) for queue in QUEUES}
    assert found == {QUEUES[0]: (2, 3), QUEUES[1]: (2, 2), QUEUES[2]: (2, 2)}
    assert adopted.append(topic="b", queue_id=7, body=b"on") == 2


def test_file_of_messages_keeps_its_number_which_another_kind_of_file_has_too(world):
    log = world.open()
    fill(world, log, 12)
    publish(log)
    world.expire(log)
    (notes,) = state_of(world.store).files_of(NOTES_KIND).values()
    log.close()
    with world.store.outage():  # no store tells the number, and the clock was set back
        log = MessageLog.open(
            DATA, filesystem=world.disk, store=world.store, clock=ManualClock(notes.number), node="n",
            disk_reserve_bytes=0, **SMALL | TINY_INDEX,
        )  # fmt: skip
        for _ in range(2):
            fill(world, log, 3)
            log.roll()
    log.run_compaction()
    rows = state_of(world.store).files_of(LOG_KIND).values()
    assert notes.number in [row.number for row in rows]
    other = world.elsewhere()
    other.look(other.open(takeover="lossy"))
