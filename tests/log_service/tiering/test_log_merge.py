"""Merges of grouped files: same answers, what they leave out, what any crash leaves, who is worth it."""

from __future__ import annotations

import pytest

from tests.log_service.keyed_world import KeyedWorld
from tests.log_service.log_world import DATA, everything, open_log
from tests.log_service.recovery.test_crash import Story
from tests.log_service.tiering.test_log_retention import DAY, bodies, later
from tests.simulation.simulated_disk import SimulatedCrash
from tierdex.log_service.tiering.merge_plan import MergeCandidate, plan_merge
from tierdex.logfile.check import check_log_file
from tierdex.settings import load_settings
from tierdex.testing.components import components_of

QUEUES = [("a", 0), ("b", 7), ("größe", 2)]
FOUR = {"merge_min_files": 4}


def write_file(story, log, number, queues=QUEUES, count=6):
    """Fill one journal, and compact it; nothing is merged."""
    for i in range(count):
        story.append(log, queues[i % len(queues)], b"%d %d" % (number, i) * 20, "os")
    log.roll()
    writing = components_of(log).writing
    while writing.local.run_first(writing.units()):
        pass


def states(log) -> list[str]:
    return [info.state for info in log.files()]


@pytest.mark.parametrize("codec", ["zstd", "lz4", "plain"])
def test_small_neighbours_become_one_file_that_answers_alike(codec):
    story = Story()
    log = open_log(story.disk, cold_codec=codec, **FOUR)
    for number in range(5):
        write_file(story, log, number)
    newest = log.files()[0].file_id
    reader = open_log(story.disk.other_process(), read_only=True)
    assert everything(reader, story.model.handed, "disk") == story.model.handed
    assert log.run_compaction() == 1
    [file] = log.files()
    assert (file.file_id, file.message_count, file.state) == (newest, 30, "compacted")
    assert log.verify_file(file.file_id) == []
    assert log.run_compaction() == 0, "one large file is not merged again"
    assert everything(log, story.model.handed) == story.model.handed
    later(reader, 1)
    assert everything(reader, story.model.handed, "disk") == story.model.handed
    assert len(reader.files()) == 1
    log.close()
    log = open_log(story.disk)
    assert everything(log, story.model.handed) == story.model.handed
    [path] = story.disk.list_folder(DATA / "log/compacted")
    assert check_log_file(story.disk, DATA / "log/compacted" / path) == []


def test_read_that_began_before_a_merge_goes_on():
    story = Story()
    log = open_log(story.disk, **FOUR)
    for number in range(4):
        write_file(story, log, number)
    with components_of(log).table.snapshot() as snapshot:
        log.run_compaction()
        oldest = snapshot.files[-1].reader
        batch = oldest.file.read(b"a", 0, 0, max_count=9, max_bytes=1 << 20)
        assert [batch.body(i) for i in range(len(batch))] == story.model.handed["a", 0][:2]


def test_index_finds_messages_after_a_merge_and_after_the_next_opening():
    world = KeyedWorld()
    log = world.open(**FOUR)
    for number in range(8):
        world.append(log, ("a", number % 2), b"%d" % number, ["k", f"k{number}"])
        if number % 2:
            log.roll()
            log.run_compaction()
    assert len(log.files()) == 1
    world.look(log)
    world.append(log, ("a", 0), b"on", ["k"])
    world.look(log)
    log.close()
    log = world.open(**FOUR)
    world.look(log)
    found = log.index.query("a", key="k", max_count=999)
    assert len(found.entries) == 9, "nothing was put again"
    log = world.open_after_a_kill()
    world.look(log)


def test_reopening_puts_nothing_again_when_all_is_compacted():
    world = KeyedWorld()
    log = world.open()
    world.append(log, ("a", 0), b"x", ["k"])
    log.roll()
    log.run_compaction()
    log.close()
    log = world.open()
    log.catch_up()
    items = sum(file.item_count for file in log.index.files())
    assert items == 1


def test_hidden_topics_are_left_out_and_their_queues_go_on():
    story = Story()
    settings = {"topic_retention": {"a": DAY}, **FOUR}
    log = open_log(story.disk, **settings)
    for number in range(4):
        write_file(story, log, number)
    later(log, 2 * DAY)
    log.run_compaction()
    [file] = log.files()
    assert file.message_count == 16
    assert (log.begin_offset("a", 0), log.end_offset("a", 0)) == (8, 8)
    for _ in range(2):
        assert story.append(log, ("a", 0), b"on", "disk") is None
        assert bodies(log, "a", 0)[-1] == b"on"
        assert bodies(log, "b", 7) == story.model.handed["b", 7]
        log.close()
        log = open_log(story.disk, **FOUR)  # kept for ever from now on: nothing comes back
    assert log.begin_offset("a", 0) == 8


def test_file_half_of_which_is_hidden_is_written_anew_alone():
    story = Story()
    log = open_log(story.disk, topic_retention={"a": DAY})
    write_file(story, log, 0, queues=[("a", 0), ("b", 0)])
    write_file(story, log, 1, queues=[("b", 0), ("b", 1), ("b", 2), ("b", 3), ("a", 0)])
    later(log, 2 * DAY)
    before = {file.file_id: file.message_count for file in log.files()}
    assert sorted(before.values()) == [6, 6]
    log.run_compaction()
    assert sorted(file.message_count for file in log.files()) == [3, 6], "a sixth is not worth it"
    assert log.begin_offset("a", 0) == 4
    assert bodies(log, "b", 0) == story.model.handed["b", 0]


def test_merge_cut_off_at_any_call_loses_and_doubles_nothing():
    """After each call on the disk, hence before the next; states that a power cut leaves."""

    def prepare():
        story = Story()
        log = open_log(story.disk, topic_retention={"b": DAY}, **FOUR)
        for number in range(4):
            write_file(story, log, number, count=3)
        later(log, 2 * DAY)
        return story, log

    story, log = prepare()
    begun = len(story.disk.trace)
    assert log.run_compaction() == 1
    calls = len(story.disk.trace) - begun
    kept = {queue: held for queue, held in story.model.handed.items() if queue[0] != "b"}
    for nth in range(1, calls + 1):  # the disk after a call is that before the next
        story, log = prepare()
        story.disk.crash_at(nth, after=True)
        with pytest.raises(SimulatedCrash):
            log.run_compaction()
        for survivor in [story.disk.restart(), *story.disk.crash_states(limit=4, seed=nth)]:
            log = open_log(survivor, topic_retention={"b": DAY}, **FOUR)
            assert everything(log, kept) == kept
            assert log.end_offset("b", 7) == 4
            later(log, 3 * DAY)
            log.run_compaction()
            assert everything(log, kept) == kept
            assert (log.begin_offset("b", 7), log.end_offset("b", 7)) == (4, 4)
            assert sum(file.message_count for file in log.files()) == 8


def candidate(size=100, queues=1, generation=0, at=0, retention=None, hidden=0) -> MergeCandidate:
    return MergeCandidate(size, size, queues, generation, at, at, retention, size, hidden)


GIB = 1 << 30


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ([candidate()] * 7, range(0)),
        ([candidate()] * 8, range(8)),
        ([candidate()] * 100, range(64)),
        ([candidate()] * 7 + [candidate(1000)], range(0)),  # large beside the others: later
        ([candidate(9000), *[candidate()] * 8], range(1, 9)),
        ([*[candidate()] * 9, candidate(9000)], range(9)),
        ([candidate(GIB)] * 9, range(0)),  # long extents: nothing is won
        ([candidate(GIB, queues=1_000_000)] * 9, range(4)),  # 4 M queues in memory
        ([candidate(GIB, queues=100_000)] * 9, range(8)),  # as `merge_max_bytes` has it
        ([candidate()] * 4 + [None] + [candidate()] * 8, range(5, 13)),
        ([candidate(generation=1)] * 4 + [candidate(generation=2)] * 8, range(4, 12)),
        ([candidate(at=i * 100, retention=1000) for i in range(16)], range(0)),
        ([candidate(at=i * 10, retention=1000) for i in range(16)], range(11)),
        ([candidate(GIB), candidate(GIB, hidden=GIB // 2)], range(1, 2)),
        ([candidate(GIB), candidate(GIB, hidden=GIB // 3)], range(0)),
    ],
)
def test_plan_takes_the_oldest_run_that_is_worth_it(files, wanted):
    assert plan_merge(files, load_settings()) == wanted


def test_messages_are_rewritten_a_logarithmic_number_of_times():
    settings = load_settings(merge_min_files=2)
    files, rewritten = [], 0
    for _ in range(512):
        files.append(candidate(1))
        while found := plan_merge(files, settings):
            merged = sum(file.bytes for file in files[found.start : found.stop])
            rewritten += merged
            files[found.start : found.stop] = [candidate(merged)]
    assert len(files) <= 10
    assert rewritten <= 512 * 9


def damage(disk, path, at=4096 + 60):
    file = disk.open(path, writable=True)
    byte = file.read_at(at, 1)
    file.write_at(at, bytes([byte[0] ^ 1]))
    file.sync()


def test_damaged_file_is_left_out_of_merges_and_the_others_go_on():
    story = Story()
    log = open_log(story.disk, merge_min_files=2)
    for number in range(6):
        write_file(story, log, number)
    oldest, second, *_ = sorted(story.disk.list_folder(DATA / "log/compacted"))
    damage(story.disk, DATA / "log/compacted" / second)
    log.run_compaction()
    *others, left, first = log.files()
    assert (first.file_id[:20], left.file_id[:20]) == (oldest, second)
    assert left.reason == "checksum of page 0 differs"
    assert [file.reason for file in others] == [None]
    answer = log.read("b", 7, 0, max_count=100)
    assert [m.body for m in answer.messages] == story.model.handed["b", 7][:2]
    assert answer.missing[0].offset == 2


def test_scrubber_finds_damage_and_says_so_in_the_list_of_files():
    story = Story()
    log = open_log(story.disk, scrub_interval=60.0)
    for number in range(2):
        write_file(story, log, number)
    [oldest, _] = sorted(story.disk.list_folder(DATA / "log/compacted"))
    damage(story.disk, DATA / "log/compacted" / oldest)
    scrubber = components_of(log).writing.scrubber
    for _ in range(2):
        scrubber.step()
        later(log, 60)
    assert [file.reason for file in log.files()] == [None, "checksum of page 0 differs"]


def test_merges_around_an_expired_file_take_no_sound_file_for_damaged_and_end(caplog):
    caplog.set_level("INFO")
    world = KeyedWorld()
    log = world.open(index=False, merge_min_files=50)
    for held in (True, True, False, True, True):
        world.append(log, ("a", 0), b"plain", ["k"])
        if held:
            world.hold(log, 900_000_000, b"waits", "disk")
        log.roll()
        log.run_compaction()
    world.expire(log)
    log.close()
    log = world.open(index=False, merge_min_files=2)
    log.run_compaction()
    assert not components_of(log).writing.kind.damaged
    assert len(log.files()) == 2, "those on either side of it"
    told = caplog.text.count("merged with nothing older")
    assert told == 2, "of the file behind it, and of what that became"
    for _ in range(3):
        world.advance(log, 2 * 3_600_000)
        log.run_compaction()
    assert caplog.text.count("merged with nothing older") == told
    assert "not merged" not in caplog.text
    assert len(log.read("a", 0, 0)) == 2
    assert len(log.timers()) == 1
