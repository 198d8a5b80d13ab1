"""Log files in the store: an object and a commit for all queues, in order, before the index that covers them.

Stops at calls of it, and stores that fail: `tests.torture.log_life`.
"""

from __future__ import annotations

import pytest

from tests.log_service.keyed_world import KeyedWorld
from tests.log_service.log_world import DATA, seal_rolled
from tests.log_service.store_listing import state_of
from tierdex.app.http.metrics import Metrics
from tierdex.errors import InvalidRequestError, UnavailableError
from tierdex.lifecycle.manifests.file_row import INDEX_KIND, LOG_KIND
from tierdex.log_service.levels import Level
from tierdex.testing.components import components_of
from tierdex.testing.faulty_store import Fault

NOTE = DATA / "log" / "PUBLISHED"


def kinds(world):
    """Return the kinds of the published files, in order of publication."""
    rows = state_of(world.store).files.values()
    return [row.kind for row in sorted(rows, key=lambda row: row.object_key)]


def fill(world, log, count, queues=6):
    for i in range(count):
        keys = [f"k{i % 7}", f"own-{i}"]
        world.append(log, ("ab"[i % 2], i % queues), b"%d" % i * 20, keys, f"id-{i}", "os")


def states(log):
    return [info.state for info in log.files()]


@pytest.mark.parametrize("queues", [1, 60])
def test_all_queues_of_a_file_go_up_as_one_object_and_one_commit(world, queues):
    log = world.open(item_capacity=10_000)
    log.run_compaction()
    fill(world, log, 120, queues)
    log.roll()
    before = {verb: world.store.calls(verb) for verb in ("put", "put_if_absent", "upload")}
    log.run_compaction()
    assert states(log) == ["uploaded"]
    assert world.store.calls("upload") == before["upload"] + 1
    assert world.store.calls("put_if_absent") == before["put_if_absent"] + 1
    assert world.store.calls("put") <= before["put"] + 1  # the hint: where the history ends
    world.look(log)


def test_published_messages_are_read_without_a_local_copy_by_owner_and_reader(world):
    log = world.open()
    fill(world, log, 60)
    writer, reading = world.disk, KeyedWorld()
    reading.disk, reading.store, reading.handed = (
        world.disk.other_process(), world.store, world.handed,
    )  # fmt: skip
    reader = reading.open(read_only=True)
    reading.look(reader)
    log.roll()
    log.run_compaction()
    for state in ("unsealed", "sealed", "compacted"):
        names = writer.list_folder(DATA / "log" / state)
        assert [name for name in names if name.isdigit()] == []
    world.look(log)
    reading.look(reader)
    assert reader.topics() == ["a", "b"]
    assert log.offset_at("a", 0, 0) == 0
    log.close()
    log = world.open()
    world.append(log, ("a", 0), b"goes on", ["k1"])
    world.look(log)
    reading.look(reader)


def test_index_files_are_published_after_the_log_files_that_they_cover(world):
    log = world.open()
    fill(world, log, 40)
    log.get("a", key="k1")
    log.index.roll()
    log.run_compaction()
    assert kinds(world) == []  # the journal grows: the index waits
    assert {info.state for info in log.index.files()} <= {"compacted", "unsealed"}
    log.roll()
    log.run_compaction()
    log.index.roll()
    log.run_compaction()
    found = kinds(world)
    assert found[0] == LOG_KIND
    assert INDEX_KIND in found
    world.look(log)


def test_dead_store_refuses_no_append_and_all_is_published_once_it_answers(world):
    log = world.open()
    with world.store.outage():
        for _ in range(6):
            fill(world, log, 10)
            log.flush("disk")
            log.roll()
            with pytest.raises(UnavailableError):
                log.run_compaction()
        assert states(log) == ["compacted"] * 6
        world.look(log)
    log.run_compaction()
    assert states(log) == ["uploaded"] * 6
    rows = state_of(world.store).files_of(LOG_KIND).values()
    numbers = [row.number for row in sorted(rows, key=lambda row: row.object_key)]
    assert numbers == sorted(numbers)
    world.look(log)


def test_files_go_up_strictly_in_order(world):
    log = world.open()
    for _ in range(3):
        fill(world, log, 10)
        log.roll()
    world.store.fail("upload", nth=1, fault=Fault.FAIL_AFTER)
    with pytest.raises(UnavailableError):
        log.run_compaction()
    assert states(log) == ["compacted"] * 3
    assert kinds(world) == []
    log.run_compaction()
    assert states(log) == ["uploaded"] * 3


def test_offsets_go_on_while_the_store_cannot_be_reached(world):
    log = world.open()
    fill(world, log, 60)
    log.roll()
    log.run_compaction()
    log.close()
    with world.store.outage():
        log = world.open()
        for queue in list(world.handed):
            world.append(log, queue, b"without the store", ["k0"])
        answer = log.read("a", 0, 0)
        assert not answer.complete  # named, never skipped
        assert len(log.read("a", 0, 10)) == 1
    log.run_compaction()
    world.look(log)


@pytest.mark.parametrize("damage", [None, b"damage"])
def test_note_of_published_files_that_is_lost_is_made_anew_from_the_store(world, damage):
    log = world.open()
    fill(world, log, 60)
    log.roll()
    log.run_compaction()
    log.close()
    if damage is None:
        world.disk.unlink(NOTE)
    else:
        world.disk.open(NOTE, writable=True).write_at(30, damage)
        with world.store.outage(), pytest.raises(UnavailableError, match="does not verify"):
            world.open()
    log = world.open()
    world.append(log, ("a", 0), b"goes on", ["k0"])
    world.look(log)
    log = world.open_after_a_kill()
    world.look(log)


def test_published_log_is_not_opened_without_its_store(world):
    log = world.open()
    fill(world, log, 10)
    log.roll()
    log.run_compaction()
    log.close()
    for read_only in (False, True):
        with pytest.raises(InvalidRequestError, match="published"):
            world.open(index=False, read_only=read_only)
    world.look(world.open())


def test_old_copy_of_a_folder_gives_no_offset_twice(world):
    log = world.open()
    fill(world, log, 10)
    log.flush("disk")
    world.acknowledge(Level.DISK)
    old = next(iter(world.disk.crash_states(limit=1, seed=1)))
    fill(world, log, 20)
    log.roll()
    log.run_compaction()
    log.close()
    world.disk = old
    log = world.open()
    assert log.end_offset("a", 0) == len(world.handed["a", 0])
    world.append(log, ("a", 0), b"goes on", ["k0"])
    answer = log.read("a", 0, 0, max_count=1000)
    assert [m.body for m in answer.messages] == [body for body, _, _ in world.handed["a", 0]]
    assert [each.file[:10] for each in answer.missing] == ["quarantine"]  # the old journal


def test_index_that_was_lost_is_made_anew_from_published_messages(world):
    log = world.open(item_capacity=10_000)
    fill(world, log, 60)
    log.roll()
    log.run_compaction()
    fill(world, log, 10)
    log.close()
    for state in ("unsealed", "sealed", "compacted"):
        for name in world.disk.list_folder(DATA / state):
            world.disk.unlink(DATA / state / name)
    with world.store.outage(), pytest.raises(UnavailableError):
        world.open()
    log = world.open()
    world.look(log)


def test_index_goes_on_behind_what_is_published_of_it(world):
    log = world.open()
    fill(world, log, 60)
    log.roll()
    log.run_compaction()
    log.index.roll()
    log.run_compaction()
    held = sum(info.item_count for info in log.index.files())
    log.close()
    log = world.open()
    log.catch_up()
    assert sum(info.item_count for info in log.index.files()) == held  # nothing was put again
    fill(world, log, 10)
    world.look(log)


def test_damaged_journal_holds_up_no_publication(world):
    log = world.open()
    for _ in range(3):
        fill(world, log, 20)
        log.roll()
    log.get("a", key="k0")  # indexed
    seal_rolled(log)
    first = components_of(log).table.version.files.local()[0].path
    log.close()
    world.disk.open(first, writable=True).write_at(4096 + 300, b"damage")
    log = world.open()
    log.run_compaction()
    assert sorted(states(log)) == ["sealed", "uploaded", "uploaded"]


def test_metrics_tell_what_of_the_log_waits_for_the_store(world):
    log = world.open()
    fill(world, log, 60)
    log.roll()
    world.append(log, ("a", 0), b"in the next journal", [], None, "os")
    world.advance(log, 90_000)
    sealed, active = log.files()[1].bytes, log.files()[0].bytes

    def shown():
        text = Metrics(lambda: log.index, "0", log).render().decode()
        lines = (line.split(" ") for line in text.splitlines() if line.startswith("tierdex_log_"))
        return {name.removeprefix("tierdex_log_"): float(value) for name, value in lines}

    seen = shown()
    assert seen["compaction_backlog_files"] == 1
    assert seen["compaction_backlog_bytes"] == sealed
    assert seen["compaction_oldest_unpublished_age_seconds"] >= 90
    assert seen["disk_waiting_bytes"] == sealed + active
    assert seen["disk_reserve_bytes"] == 288 << 10  # one journal; `disk_reserve_bytes` is 0 here
    log.run_compaction()
    seen = shown()
    assert (seen["compaction_backlog_files"], seen["disk_waiting_bytes"]) == (0, active)
    log.roll()
    log.run_compaction()
    assert shown()["compaction_oldest_unpublished_age_seconds"] == 0
