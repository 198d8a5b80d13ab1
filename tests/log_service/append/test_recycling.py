"""Blocks of a journal that is needed no more are the next one's, and give nothing of their old life."""

from __future__ import annotations

from contextlib import closing, suppress
from typing import TYPE_CHECKING

import pytest

from tests.log_service.log_world import DATA, Model, open_log, seal_rolled
from tests.simulation.simulated_disk import ANY, SimulatedCrash, SimulatedFileSystem
from tierdex.errors import UnavailableError
from tierdex.filesystem import make_durable_folder
from tierdex.lifecycle.file_state import FileState
from tierdex.log_service.levels import Level
from tierdex.testing.components import components_of

if TYPE_CHECKING:
    from pathlib import Path

QUEUES = [("a", 0), ("a", 1), ("b", 0)]
READY = DATA / "log/unsealed/next.ready"


def give_up_oldest(log) -> Path:
    """Do what retention and compaction do with a journal that is needed no more."""
    handle = components_of(log).table.version.files.local()[0]
    assert handle.state is FileState.SEALED
    components_of(log).table.remove(handle)
    components_of(log).writing.next_journal.reuse(handle.path)
    return handle.path


class Story:
    """Journals that are filled, sealed and given up, the next ones made of their blocks."""

    def __init__(self) -> None:
        self.disk = SimulatedFileSystem()
        make_durable_folder(self.disk, DATA)
        self.model = Model()
        self.given_up: dict[tuple[str, int], int] = {}  # messages of each queue that may be gone

    def fill(self, log, name: str, count: int, durability: str = "disk") -> None:
        for i in range(count):
            for topic, queue_id in QUEUES:
                body = b"%s %d " % (name.encode(), i) + name.encode() * 300
                offset = self.model.hand_over((topic, queue_id), body)
                assert offset == log.append(
                    topic=topic, queue_id=queue_id, body=body, durability=durability
                )
                self.model.acknowledge_queues(Level[durability.upper()], [(topic, queue_id)])

    def give_up(self, log, count: int) -> None:
        """Give the oldest journal up, which holds `count` messages of each queue."""
        for queue in QUEUES:
            self.given_up[queue] = self.given_up.get(queue, 0) + count
        give_up_oldest(log)

    def run(self) -> None:
        log = open_log(self.disk)
        self.fill(log, "one", 3)
        log.roll()
        self.fill(log, "two", 2)
        seal_rolled(log)
        self.give_up(log, 3)
        log.roll()
        self.fill(log, "three", 1, "os")
        self.fill(log, "three again", 1)
        seal_rolled(log)
        self.give_up(log, 2)
        log.roll()
        self.fill(log, "four", 3)
        log.close()


def judge(disk: SimulatedFileSystem, story: Story, level: Level) -> None:
    """Recover, compare with the model from each queue's begin on, append, open once more."""
    for _ in range(2):
        log = open_log(disk)
        for topic, queue_id in QUEUES:
            handed = story.model.handed.setdefault((topic, queue_id), [])
            answer = log.read(topic, queue_id, 0, max_count=1000, visible="received")
            assert answer.complete, answer.missing
            least = story.model.acknowledged[level].get((topic, queue_id), 0)
            assert answer.begin_offset <= story.given_up.get((topic, queue_id), 0)
            assert least <= answer.end_offset <= len(handed)
            bodies = [message.body for message in answer.messages]
            assert bodies == handed[answer.begin_offset : answer.end_offset]
            del handed[answer.end_offset :]  # lost, and given again
            story.model.acknowledged[level][topic, queue_id] = len(handed)
            story.model.hand_over((topic, queue_id), b"later")
            offset = log.append(topic=topic, queue_id=queue_id, body=b"later")
            assert offset == len(handed) - 1
        log.close()
        level = Level.DISK
        story.model.acknowledge(level)


def copy_of(story: Story) -> Story:
    """Return a story of its own to judge one of several states by."""
    copied = Story()
    copied.model.handed = {queue: list(held) for queue, held in story.model.handed.items()}
    copied.model.acknowledged = {
        level: dict(held) for level, held in story.model.acknowledged.items()
    }
    copied.given_up = dict(story.given_up)
    return copied


def test_next_journal_takes_the_blocks_of_one_that_is_given_up():
    story = Story()
    begun = len(story.disk.trace)
    story.run()
    calls = story.disk.trace[begun:]
    removed = [call for call in calls if call.kind == "unlink" and call.path == str(READY)]
    assert len(removed) == 2, "the name is cleared for a new file twice; then blocks are taken over"
    moved = [c for c in calls if c.kind == "rename" and c.path.startswith("/data/log/sealed/")]
    assert len(moved) == 2
    assert not [c for c in calls if c.kind == "unlink" and c.path.startswith("/data/log/sealed/")]
    judge(story.disk, story, Level.DISK)


def test_killed_or_cut_at_every_call_keeps_what_was_acknowledged():
    story = Story()
    begun = len(story.disk.trace)
    story.run()
    count = len(story.disk.trace) - begun
    for nth in range(60, count, 9):
        story = Story()
        story.disk.crash_at(nth)
        with pytest.raises(SimulatedCrash):
            story.run()
        for survivor in story.disk.crash_states(limit=2, seed=nth):
            judge(survivor, copy_of(story), Level.DISK)
        judge(story.disk.restart(), story, Level.OS)


def test_failing_calls_leave_a_log_that_recovers():
    story = Story()
    begun = len(story.disk.trace)
    story.run()
    for nth in range(60, len(story.disk.trace) - begun, 13):
        story = Story()
        story.disk.fail(ANY, nth)
        with suppress(UnavailableError, OSError):
            story.run()
        story.disk.heal()
        judge(story.disk.restart(), story, Level.OS)


def test_journal_that_is_read_is_not_recycled():
    """In this process by a query that began before, in another that has it mapped."""
    story = Story()
    log = open_log(story.disk)
    story.fill(log, "old", 3)
    log.roll()
    seal_rolled(log)
    story.fill(log, "kept", 1)
    with components_of(log).table.snapshot() as snapshot:
        old = snapshot.file_list.local()[0].reader
        give_up_oldest(log)
        log.roll()
        story.fill(log, "new", 1)
        batch = old.journal.read(b"a", 0, 0, max_count=9, max_bytes=1 << 20)
        assert [m.body for m in batch] == story.model.handed["a", 0][:3]
    seal_rolled(log)
    other = open_log(story.disk.other_process(), read_only=True)
    with closing(other):
        assert other.read("a", 0, 3).batch.body(0) == story.model.handed["a", 0][3]
        with components_of(other).table.snapshot() as snapshot:
            old = snapshot.file_list.local()[0].reader
            give_up_oldest(log)
            log.roll()
            story.fill(log, "newer", 2)
            batch = old.journal.read(b"a", 0, 3, max_count=9, max_bytes=1 << 20)
            assert [m.body for m in batch] == story.model.handed["a", 0][3:4]
        other.refresh()
        bodies = [message.body for message in other.reader("a", 0, 4)]
        assert bodies == story.model.handed["a", 0][4:]


@pytest.mark.parametrize("is_sealed", [False, True])
def test_reader_of_another_process_never_takes_another_file_for_the_one_it_opens(is_sealed):
    """Between its look at the folder and its lock, the file is given up, recycled, filled, and sealed."""
    story = Story()
    log = open_log(story.disk)
    story.fill(log, "old", 3)
    log.roll()
    seal_rolled(log)
    story.fill(log, "kept", 1)
    log.roll()
    seal_rolled(log)
    system = story.disk.other_process()
    real_open = system.open
    once = []

    def open_late(path, **options):
        file = real_open(path, **options)
        if not once and path.parent.name == "sealed":
            once.append(path)
            give_up_oldest(log)
            story.fill(log, "new", 1)
            assert not system.exists(path)
            if is_sealed:  # a sealed journal lies in the very blocks that were opened
                log.roll()
                seal_rolled(log)
        return file

    system.open = open_late
    with closing(open_log(system, read_only=True)) as reader:
        assert once
        answer = reader.read("a", 0, 0)
        assert (answer.begin_offset, answer.complete) == (3, True)
        assert [m.body for m in answer.messages] == story.model.handed["a", 0][3:]
        assert len(reader.files()) == 2
