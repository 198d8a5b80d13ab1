"""Grouped files in the service: the same answers in every state, what pins a journal, what damage does."""

from __future__ import annotations

import pytest

from tests.log_service.keyed_world import KeyedWorld
from tests.log_service.log_world import DATA, everything, open_log, seal_rolled
from tests.log_service.recovery.test_crash import Story
from tierdex.errors import UnavailableError
from tierdex.lifecycle.file_state import FileState
from tierdex.testing.components import components_of


def states(log) -> list[str]:
    return [info.state for info in log.files()]


@pytest.fixture
def filled():
    story = Story()
    log = open_log(story.disk)
    for name in range(3):
        for i in range(40):
            story.append(log, ("ab"[i % 2], i % 3), b"%d %d" % (name, i) * 50, "os")
        log.roll()
    return story, log


def test_compacted_sealed_and_unsealed_files_answer_alike(filled):
    story, log = filled
    before = {
        at: log.read(*at, visible="os").batch.body_offsets.tolist()
        for at in [("a", 0, 0), ("a", 2, 7), ("b", 1, 19)]
    }
    assert states(log) == ["unsealed"] * 3
    assert seal_rolled(log) == 3
    assert everything(log, story.model.handed) == story.model.handed
    assert log.run_compaction() == 3
    assert states(log) == ["compacted"] * 3
    assert everything(log, story.model.handed) == story.model.handed
    for at, offsets in before.items():
        assert log.read(*at).batch.body_offsets.tolist() == offsets
    assert log.topics() == ["a", "b"]
    story.append(log, ("a", 0), b"goes on", "disk")
    log.close()
    log = open_log(story.disk)
    assert states(log) == ["unsealed", *["compacted"] * 3]
    assert everything(log, story.model.handed) == story.model.handed
    story.append(log, ("a", 0), b"and on", "disk")
    reader = open_log(story.disk.other_process(), read_only=True)
    assert everything(reader, story.model.handed, "disk") == story.model.handed
    assert reader.topics() == ["a", "b"]


def test_blocks_of_a_compacted_journal_become_the_next_one(filled):
    story, log = filled
    log.run_compaction()
    begun = len(story.disk.trace)
    story.append(log, ("a", 0), b"next", "disk")
    calls = story.disk.trace[begun:]
    assert not story.disk.list_folder(DATA / "log/sealed")
    assert [call for call in calls if call.kind == "rename" and call.path.endswith("next.ready")]


def test_damaged_journal_stays_sealed_and_its_sound_part_is_answered(filled):
    story, log = filled
    seal_rolled(log)
    path = components_of(log).table.version.files.local()[0].path
    log.close()
    file = story.disk.open(path, writable=True)
    file.write_at(2 * 4096, b"damage")
    file.sync()
    log = open_log(story.disk)
    log.run_compaction()
    assert states(log) == ["compacted", "compacted", "sealed"]
    assert log.run_compaction() == 0
    answer = log.read("a", 0, 0, max_count=1000)
    assert not answer.complete
    assert [m.body for m in answer.messages] == story.model.handed["a", 0][: len(answer)]
    assert len(answer) > 0
    log.close()
    assert open_log(story.disk).end_offset("a", 0) == len(story.model.handed["a", 0])


def test_damaged_page_of_a_compacted_file_is_named_and_not_skipped(filled):
    story, log = filled
    log.run_compaction()
    path = components_of(log).table.version.files.local()[0].path
    log.close()
    file = story.disk.open(path, writable=True)
    file.write_at(4096 + 100, b"damage")
    file.sync()
    log = open_log(story.disk)
    answer = log.read("a", 0, 0, max_count=1000)
    assert not answer.complete
    assert answer.missing[0].offset == answer.next_offset == 0
    last = len(story.model.handed["a", 0]) - 1
    assert [m.body for m in log.read("a", 0, last).messages] == [story.model.handed["a", 0][last]]


def test_journal_that_is_not_in_the_index_is_not_compacted():
    world = KeyedWorld()
    log = world.open()
    world.append(log, ("a", 0), b"one", ["k"])
    log.roll()
    put = components_of(log).writing.log_index._dispatcher

    def refuse(items, source):
        raise UnavailableError("full")

    real, put._put = put._put, refuse
    with pytest.raises(UnavailableError):
        log.run_compaction()
    writing = components_of(log).writing
    seal_rolled(log)
    assert [unit.job for unit in writing.units()] == []
    assert states(log) == ["sealed"]
    put._put = real
    log.run_compaction()
    assert states(log) == ["uploaded"]
    world.look(log)


def test_index_that_was_lost_is_made_anew_from_files_of_every_state():
    world = KeyedWorld()
    log = world.open()
    for i in range(60):
        world.append(
            log, ("ab"[i % 2], i % 3), b"%d" % i, [f"k{i % 7}", f"own-{i}"], f"id-{i}", "os"
        )
        if i % 20 == 19:
            log.roll()
        if i == 30:
            log.run_compaction()
    seal_rolled(log)
    world.append(log, ("a", 0), b"last", ["k1"])
    assert sorted(states(log)) == ["sealed", "sealed", "unsealed", "uploaded"]
    log.close()
    for state in (FileState.UNSEALED, FileState.SEALED, FileState.COMPACTED):
        for name in world.disk.list_folder(DATA / state.value):
            world.disk.unlink(DATA / state.value / name)
    log = world.open()
    world.look(log)
    log.index.roll()
    log.run_compaction()
    world.look(log)
