"""Unclean stops of the log: killed and cut at calls, failing calls, failed syncs, full disks."""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest

from tests.log_service.log_world import DATA, Model, everything, judge, open_log, seal_rolled
from tests.simulation.simulated_disk import ANY, SimulatedCrash, SimulatedFileSystem
from tierdex.errors import BacklogFullError, OffsetsReusedError, UnavailableError
from tierdex.filesystem import make_durable_folder
from tierdex.log_service.levels import Level
from tierdex.testing.components import components_of

STEP = 11  # of all calls; tests/torture takes every one


class Story:
    """A run of a log through every kind of step; the model notes what is acknowledged on the way."""

    def __init__(self) -> None:
        self.disk = SimulatedFileSystem()
        make_durable_folder(self.disk, DATA)
        self.model = Model()

    def append(self, log, queue, body, durability) -> None:
        offset = self.model.hand_over(queue, body)
        assert log.append(
            topic=queue[0], queue_id=queue[1], body=body, durability=durability
        ) == offset  # fmt: skip
        self.model.acknowledge_queues(Level[durability.upper()], [queue])

    def batch(self, log, rows, durability) -> None:
        offsets = [self.model.hand_over(queue, body) for queue, body in rows]
        receipt = log.append_batch(
            topic=[queue[0] for queue, _ in rows],
            queue_id=[queue[1] for queue, _ in rows],
            body=[body for _, body in rows],
            durability=durability,
        )
        assert receipt.offsets.tolist() == offsets
        self.model.acknowledge_queues(Level[durability.upper()], {queue for queue, _ in rows})

    def run(self) -> None:
        log = open_log(self.disk)
        self.append(log, ("a", 0), b"first", "disk")
        self.append(log, ("a", 1), b"second", "os")
        self.append(log, ("b", 0), b"third", "received")
        rows = [
            ((t, q), b"%s %d %d" % (t.encode(), q, i))
            for i in range(9)
            for t in "abc"
            for q in (0, 5)
        ]
        self.batch(log, rows, "os")
        log.flush("disk")
        self.model.acknowledge(Level.DISK)
        assert log.roll()
        self.append(log, ("a", 0), b"in the second journal", "os")  # the first is unsealed still
        self.append(log, ("d", 0), b"new there", "disk")
        self.model.acknowledge(Level.DISK)
        assert log.run_compaction() == 2  # sealed, compacted
        large = [(("a", i % 3), bytes([i]) * 4000) for i in range(40)]  # more than a stage
        self.batch(log, large, "disk")
        self.append(log, ("b", 0), b"x" * 8000, "os")
        log.close()
        self.model.acknowledge(Level.DISK)
        log = open_log(self.disk)
        self.append(log, ("a", 0), b"after the close", "disk")
        log.roll()
        self.append(log, ("e", 7), b"third journal", "os")
        log.run_compaction()
        log.close()
        self.model.acknowledge(Level.DISK)


@pytest.fixture(scope="module")
def calls() -> int:
    story = Story()
    begun = len(story.disk.trace)
    story.run()
    count = len(story.disk.trace) - begun
    judge(story.disk, story.model, Level.DISK)
    return count


def crashed_before(nth: int) -> Story:
    story = Story()
    story.disk.crash_at(nth)
    with pytest.raises(SimulatedCrash):
        story.run()
    return story


def try_call(nth: int, states: int) -> None:
    """Stop the story around a call, and judge what a kill and power cuts leave."""
    story = crashed_before(nth)
    for survivor in story.disk.crash_states(limit=states, seed=nth):
        judge(survivor, story.model, Level.DISK)
    judge(story.disk.restart(), story.model, Level.OS)


def test_killed_or_cut_at_calls_keeps_what_was_acknowledged_and_a_prefix_of_each_queue(calls):
    assert calls > 100
    for nth in range(2, calls, STEP):
        try_call(nth, states=2)


def test_failing_calls_leave_a_log_that_recovers(calls):
    for nth in range(3, calls, STEP):
        story = Story()
        story.disk.fail(ANY, nth)
        with suppress(UnavailableError):
            story.run()
        story.disk.heal()
        judge(story.disk.restart(), story.model, Level.OS)


def test_generation_rises_only_after_an_unclean_stop():
    story = Story()
    log = open_log(story.disk)
    story.append(log, ("a", 0), b"1", "disk")
    log.close()
    log = open_log(story.disk)
    story.append(log, ("a", 0), b"2", "disk")
    assert {file.generation for file in log.files()} == {0}
    story.append(log, ("a", 0), b"seen, then lost", "received")
    reader = log.reader("a", 0, visible="received")
    assert [message.body for message in reader] == [b"1", b"2", b"seen, then lost"]

    log = open_log(story.disk.restart())
    assert log.append(topic="a", queue_id=0, body=b"another") == 2
    assert log.read("a", 0, 2).generation == 1
    later = log.reader("a", 0, reader.offset, generation=reader.generation)
    with pytest.raises(OffsetsReusedError) as told:
        list(later)
    assert (told.value.offset, told.value.generation) == (2, 1)
    assert next(iter(log.reader("a", 0, 2, generation=0))).body == b"another"


def test_failed_sync_acknowledges_nothing_and_loses_nothing_that_was_written():
    story = Story()
    log = open_log(story.disk)
    story.append(log, ("a", 0), b"durable", "disk")
    story.disk.fail("sync")
    with pytest.raises(UnavailableError):
        log.append(topic="a", queue_id=0, body=b"written, not synced")
    story.model.hand_over(("a", 0), b"written, not synced")
    # The next append reads the journal back first, and goes on behind it in a new one.
    assert log.append(topic="a", queue_id=0, body=b"after", expect_offset=2) == 2
    story.model.hand_over(("a", 0), b"after")
    story.model.acknowledge(Level.DISK)
    assert everything(log, [("a", 0)]) == story.model.handed
    for survivor in story.disk.crash_states(limit=20, seed=1):
        judge(survivor, story.model, Level.DISK)


def test_rows_staged_when_a_sync_failed_are_dropped_and_their_offsets_given_again():
    story = Story()
    log = open_log(story.disk)
    story.append(log, ("a", 0), b"durable", "disk")
    story.append(log, ("a", 0), b"written", "os")
    journal = components_of(log).writing.active.journal
    real_sync = journal.sync

    def sync_beside_an_append():
        assert log.append(topic="a", queue_id=0, body=b"staged", durability="received") == 2
        return real_sync()

    journal.sync = sync_beside_an_append
    story.disk.fail("sync")
    with pytest.raises(UnavailableError):
        log.flush()
    assert log.end_offset("a", 0, level="received") == 3
    assert log.append(topic="a", queue_id=0, body=b"next", expect_offset=None) == 2
    assert everything(log, [("a", 0)])["a", 0] == [b"durable", b"written", b"next"]
    assert log.read("a", 0, 2).generation == 1, "a message at offset 2 was seen at `received`"


def test_full_disk_refuses_the_roll_and_nothing_else():
    story = Story()
    log = open_log(story.disk)
    story.append(log, ("a", 0), b"fits", "disk")
    log.roll()
    story.disk.fail("reserve", number=errno.ENOSPC)
    with pytest.raises(BacklogFullError, match="full"):
        log.append(topic="a", queue_id=0, body=b"no room")
    assert log.end_offset("a", 0, level="received") == 1
    story.append(log, ("a", 0), b"room again", "disk")
    log.close()
    judge(story.disk, story.model, Level.DISK)


@pytest.mark.parametrize("seed", range(6))
def test_power_cuts_one_after_another_show_two_messages_under_no_generation(seed):
    """The journal of each opening may be lost with all that a reader at `received` saw of it."""
    disk, seen = SimulatedFileSystem(), {}
    make_durable_folder(disk, DATA)
    for turn in range(5):
        log = open_log(disk)
        log.append(
            topic="a", queue_id=0, body=b"%d" % turn, durability=("disk", "received")[turn > 0]
        )
        offset = 0
        while len(answer := log.read("a", 0, offset, visible="received")):
            for message in answer.messages:
                place = message.offset, answer.generation
                assert seen.setdefault(place, message.body) == message.body, place
            offset = answer.next_offset
        *_, disk = disk.crash_states(limit=3, seed=seed * 10 + turn)
        if turn % 2:  # opened and closed in order, with nothing appended
            open_log(disk).close()
    assert len({offset for offset, _ in seen}) < len(seen), "no offset was given anew"


def test_failed_write_is_told_and_may_be_there_later_in_its_place():
    story = Story()
    log = open_log(story.disk)
    story.append(log, ("a", 0), b"fits", "disk")
    story.disk.fail("write", number=errno.EIO)
    with pytest.raises(UnavailableError, match="end offset"):
        log.append(topic="a", queue_id=0, body=b"late")
    story.model.hand_over(("a", 0), b"late")
    story.append(log, ("a", 0), b"next", "disk")
    assert everything(log, [("a", 0)], "disk") == story.model.handed
    log.close()
    judge(story.disk, story.model, Level.DISK)


def test_damaged_journal_is_named_never_skipped_and_gives_no_offset_twice(tmp_path):
    """Two messages of a sealed journal lie in a damaged block; what stands before it is answered."""
    story = Story()
    log = open_log(story.disk)
    for i in range(20):
        story.append(log, ("a", 0), bytes([i]) * 1000, "os")
    log.roll()
    seal_rolled(log)
    story.append(log, ("a", 0), b"behind", "disk")
    path = next(iter(components_of(log).table.version.files.local())).path
    log.close()
    file = story.disk.open(path, writable=True)
    file.write_at(3 * 4096, b"damage")
    file.sync()
    log = open_log(story.disk)
    answer = log.read("a", 0, 0, max_count=100)
    assert not answer.complete
    assert answer.missing[0].offset == answer.next_offset < 20
    assert [m.body for m in answer.messages] == story.model.handed["a", 0][: len(answer)]
    assert 0 < len(answer) < 12
    assert not log.read("a", 0, answer.next_offset).complete
    assert [m.body for m in log.read("a", 0, 20).messages] == [b"behind"]
    assert log.append(topic="a", queue_id=0, body=b"more") == 21


def test_journal_that_was_rolled_before_its_first_sync_has_a_durable_name_at_disk():
    """A flush finds no journal that takes appends: the rolled one's name is synced with its batches."""
    story = Story()
    log = open_log(story.disk)
    story.append(log, ("a", 0), b"x", "os")
    log.roll()
    log.flush("disk")
    story.model.acknowledge(Level.DISK)
    for survivor in story.disk.crash_states(limit=8, seed=1):
        judge(survivor, story.model, Level.DISK)
