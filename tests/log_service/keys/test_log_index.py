"""The index beside the log: keys find their messages, the log leads, a crash leaves no entry without one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.log_service.keyed_world import KeyedWorld, copy_of
from tests.log_service.log_world import DATA, open_log, seal_rolled
from tests.log_service.tiering.test_log_retention import DAY
from tierdex.clock import ManualClock
from tierdex.errors import InvalidRequestError, UnavailableError
from tierdex.ids import SeededIds
from tierdex.index_service.index import Index
from tierdex.indexfile.columns import ItemColumns
from tierdex.indexfile.hashing import key_hash
from tierdex.indexfile.source import Source
from tierdex.log_service.keys.dispatcher import DispatcherTending
from tierdex.log_service.levels import Level
from tierdex.testing.components import components_of


def run_story(world: KeyedWorld) -> None:
    """Append under keys at every level, roll log and index, seal, compact, close, go on."""
    log = world.open()
    world.append(log, ("a", 0), b"first", ["k0"], "id-0")
    world.append(log, ("b", 7), b"second", ["k0", "k1"], durability="os")
    for i in range(30):
        world.append(log, ("a", i % 3), b"body %d" % i, [f"k{i % 5}"], f"id-{i}", durability="os")
        if i % 11 == 10:
            log.run_compaction()  # dispatches, while the log is not synced
            log.index.flush("disk")  # the index may be durable before the log: recovery cuts it
    assert len(log.get("a", key="k1")) >= 0
    log.flush("disk")
    world.acknowledge(Level.DISK)
    log.roll()
    for i in range(30):  # more than an index file holds
        world.append(log, ("a", 0), b"more %d" % i, ["k3", f"own-{i}"], durability="received")
    log.run_compaction()
    world.append(log, ("c", 1), b"x" * 6000, ["k0"])
    world.acknowledge(Level.DISK)
    log.close()
    log = world.open()
    world.append(log, ("a", 1), b"after the close", ["k1"], "id-0", durability="os")
    log.index.roll()
    log.run_compaction()
    world.append(log, ("a", 1), b"last", ["k1"])
    world.acknowledge(Level.DISK)
    log.close()


def test_story_of_log_and_index_agrees_with_the_model():
    """Stops at its calls, and calls that fail: `tests.torture.log_life`."""
    world = KeyedWorld()
    run_story(world)
    world.judge(world.disk, Level.DISK)


def test_index_that_was_durable_before_the_log_is_cut_to_what_the_log_has():
    world = KeyedWorld()
    log = world.open()
    world.append(log, ("a", 0), b"durable", ["k"])
    for i in range(3):
        world.append(log, ("a", i), b"only written", ["k", "k2"], "id", durability="os")
        log.get("a", key="k")
    log.index.flush("disk")
    cut = 0
    for survivor in world.disk.crash_states(limit=12, seed=1):
        world.judge(survivor, Level.DISK)
        cut += 1
    assert cut > 1


def test_index_file_is_sealed_only_once_its_messages_are_durable():
    world = KeyedWorld()
    log = world.open()
    world.append(log, ("a", 0), b"durable", ["k"])
    world.append(log, ("a", 0), b"only written", ["k"], durability="os")
    log.get("a", key="k")
    log.index.roll()
    log.index.run_compaction()
    assert {info.state for info in log.index.files()} == {"compacted"}
    assert log.end_offset("a", 0, level="disk") == 2
    for survivor in world.disk.crash_states(limit=12, seed=1):
        world.judge(survivor, Level.DISK)


def test_batch_that_was_cut_off_is_found_by_nobody_again():
    """It verifies, so a reader that knows nothing of the log would take it."""
    world = KeyedWorld()
    log = world.open()
    world.append(log, ("a", 0), b"durable", ["k"])
    log.get("a", key="k")
    log.index.flush("disk")
    world.append(log, ("a", 0), b"only written", ["k"], durability="os")
    log.get("a", key="k")
    log.index.flush("disk")
    found = set()
    for survivor in world.disk.crash_states(limit=12, seed=1):
        after = KeyedWorld()
        after.disk, after.store = survivor, copy_of(world.store)
        log = after.open()
        held = log.end_offset("a", 0)
        disk = survivor.restart()
        reader = Index.open(DATA, filesystem=disk, store=after.store, read_only=True, node="n")
        assert len(reader.query("a", key="k").entries) <= held
        found.add(held)
    assert found == {1, 2}, "the power cuts took nothing"


def test_keys_are_found_in_every_state_of_index_and_journal():
    world = KeyedWorld()
    log = world.open()
    for i in range(12):
        world.append(log, ("größe", i % 2), b"%d" % i, ["schlüssel", f"k{i}"], f"id-{i}")
    world.look(log)
    log.roll()
    log.run_compaction()  # the journal is published
    world.look(log)
    log.index.roll()
    log.run_compaction()  # the index file is published
    assert {info.state for info in log.index.files()} == {"uploaded"}
    world.append(log, ("größe", 0), b"later", ["schlüssel"])
    world.look(log)
    newest = log.get("größe", key="schlüssel", max_count=2)
    assert [m.body for m in newest] == [b"later", b"11"]
    rest = log.get("größe", key="schlüssel", cursor=newest.next_cursor)
    assert len(rest) == 11


def test_log_written_without_its_index_is_indexed_by_the_next_opening_with_it():
    world = KeyedWorld()
    log = world.open(index=False)
    world.append(log, ("a", 0), b"one", ["k"])
    with pytest.raises(InvalidRequestError, match="index=True"):
        log.get("a", key="k")
    log.roll()
    log.run_compaction()
    world.append(log, ("a", 0), b"two", ["k"])
    log.close()
    log = world.open()
    world.look(log)
    log.close()
    log = world.open(index=False)
    world.append(log, ("a", 1), b"three", ["k"], durability="os")
    log = world.open_after_a_kill()  # while the index knows nothing of it
    world.look(log)


def test_end_offsets_of_the_index_are_those_of_the_log():
    world = KeyedWorld()
    log = world.open()
    for i in range(20):
        world.append(log, ("a", i % 3), b"body of some size", [f"k{i}"])
    for _ in range(2):
        log.get("a", key="k1")  # what is written is dispatched first
        for queue_id in range(3):
            end = log.index.watermark("a", queue_id)["os"]
            assert end == log.end_offset("a", queue_id)
        log.index.roll()
        log.run_compaction()
        log.close()
        log = world.open()
    log.close()


def test_entry_of_another_message_is_never_shown_as_the_answer():
    world = KeyedWorld()
    log = world.open()
    world.append(log, ("a", 0), b"of another key", ["other"])
    hashes = np.array([key_hash("a", "wanted")], np.uint64)  # as if the two keys had one hash
    zero = np.zeros(1, np.int64)
    fields = {"offset": zero, "size": zero, "queue_id": zero}
    item = ItemColumns(topics="a", timestamp=zero, fields=fields, hashes=hashes)
    log_index = components_of(log).writing.log_index
    log_index.catch_up()
    put = components_of(log_index._index).writing.writer.append_led
    put([item], Source(bytes(16), 0, 0))
    assert len(log.index.query("a", key="wanted").entries) == 1
    found = log.get("a", key="wanted")
    assert found.complete
    assert found.messages == ()


def test_what_the_index_cannot_take_makes_answers_incomplete_and_appends_go_on():
    world = KeyedWorld()
    log = world.open()
    world.append(log, ("a", 0), b"one", ["k"])
    world.look(log)
    log_index = components_of(log).writing.log_index
    put, log_index._dispatcher._put = log_index._dispatcher._put, refuse
    world.append(log, ("a", 0), b"two", ["k"])
    found = log.get("a", key="k")
    assert [m.body for m in found] == [b"one"]
    assert not found.complete
    assert "not indexed yet" in found.missing[0].reason
    log_index._dispatcher._put = put
    world.look(log)


def refuse(items, source):
    raise UnavailableError("the disk of the index is full")


def test_visible_holds_for_messages_found_by_key():
    world = KeyedWorld()
    log = world.open()
    world.append(log, ("a", 0), b"durable", ["k"])
    world.append(log, ("a", 0), b"written", ["k"], durability="os")
    world.append(log, ("a", 0), b"staged", ["k"], durability="received")
    assert [m.body for m in log.get("a", key="k")] == [b"durable"]
    assert [m.body for m in log.get("a", key="k", visible="os")][-1] == b"durable"
    assert len(log.get("a", key="k", visible="received")) == 3


def test_log_and_index_share_one_folder_or_refuse_each_other():
    world = KeyedWorld()
    log = world.open()
    world.append(log, ("a", 0), b"one", ["k"])
    with pytest.raises(InvalidRequestError, match="append the message to the log"):
        log.index.put(topic="a", keys=["k"], queue_id=0, offset=9, size=1, timestamp=0)
    with pytest.raises(InvalidRequestError, match="append the message to the log"):
        log.index.put_batch(topic="a", keys=["k"], queue_id=0, offset=9, size=1, timestamp=[0])
    log.close()
    with pytest.raises(InvalidRequestError, match=r"MessageLog\.open"):
        Index.open(DATA, filesystem=world.disk, store=world.store)
    world.open(index=False).close()  # its lock is free again

    other = KeyedWorld()
    Index.open(DATA, filesystem=other.disk, store=other.store, background=False).close()
    with pytest.raises(InvalidRequestError, match="a folder of its own"):
        other.open()
    with pytest.raises(InvalidRequestError, match="a folder of its own"):
        open_log(other.disk)
    Index.open(DATA, filesystem=other.disk, store=other.store, background=False).close()


def test_reader_of_another_process_finds_what_is_indexed_and_what_is_not_yet():
    world = KeyedWorld()
    log = world.open()
    for i in range(20):
        world.append(log, ("ab"[i % 2], i % 3), b"%d" % i, ["k", f"k{i % 4}"], f"id-{i}")
        if i == 8:
            log.roll()
            log.run_compaction()
    writer, world.disk = world.disk, world.disk.other_process()
    reader = world.open(read_only=True)
    world.look(reader)
    for i in range(20, 40):  # not dispatched before a reader asks the writer
        world.append(log, ("a", i % 3), b"%d" % i, ["k", f"k{i % 4}"], f"id-{i}")
    world.look(reader)
    assert reader.index.query("a", key="k", max_count=99).entries != []
    log.get("a", key="k")
    world.look(reader)
    log.roll()
    log.index.roll()
    log.run_compaction()
    world.append(log, ("a", 0), b"last", ["k"])
    world.look(reader)
    newest = reader.get("a", key="k", max_count=3)
    assert newest.messages[0].body == b"last"
    reader.close()
    log.close()
    world.disk = writer
    with pytest.raises(InvalidRequestError, match="index=True"):
        world.open(read_only=True, index=False).get("a", key="k")
    alone = KeyedWorld()
    alone.open(index=False).close()
    with pytest.raises(InvalidRequestError, match="has no index"):
        alone.open(read_only=True).get("a", key="k")


def test_reader_after_a_crash_finds_what_the_writer_did_not_index():
    world = KeyedWorld()
    log = world.open()
    world.append(log, ("a", 0), b"indexed", ["k"])
    log.get("a", key="k")
    world.append(log, ("a", 0), b"not indexed", ["k"])
    world.disk = world.disk.restart()
    world.look(world.open(read_only=True))


def test_failed_sync_that_loses_messages_takes_their_entries_along():
    world = KeyedWorld()
    log = world.open()
    world.append(log, ("a", 0), b"durable", ["k"])
    world.look(log)
    log_index = components_of(log).writing.log_index
    before = log.index
    world.disk.fail("sync")
    with pytest.raises(UnavailableError):
        log.append(topic="a", queue_id=0, body=b"written", keys=["k"])
    world.handed["a", 0].append((b"written", ("k",), None))
    log_index.note_loss()
    world.append(log, ("a", 0), b"next", ["k"])
    assert log.index is not before
    world.look(log)


def test_journal_that_was_indexed_is_not_indexed_again_once_it_is_compacted():
    world = KeyedWorld()
    log = world.open(item_capacity=1000)
    for n in range(30):
        world.append(log, ("a", 0), b"%d" % n, [f"k{n}"])
    log.roll()
    log.run_compaction()
    world.look(log)
    assert sum(file.item_count for file in log.index.files()) == 30
    log.close()


def test_index_file_that_was_sealed_before_its_journal_stays_as_long_as_the_messages():
    world = KeyedWorld()
    log = world.open(retention=DAY)
    world.append(log, ("a", 0), b"x", ["k"])
    log.catch_up()
    log.index.roll()
    log.run_compaction()
    world.advance(log, 3_600_000)
    log.roll()
    log.run_compaction()
    assert {file.state for file in log.index.files() if file.item_count} == {"uploaded"}
    world.advance(log, round(DAY * 1000) - 60_000)
    assert log.index.expire(before=world.now_ms - round(DAY * 1000), dry_run=True) == []
    log.run_compaction()
    assert log.begin_offset("a", 0) == 0
    assert [m.body for m in log.get("a", key="k")] == [b"x"]
    world.advance(log, 120_000)
    log.run_compaction()
    assert log.begin_offset("a", 0) == 1
    assert [file for file in log.index.files() if file.state == "uploaded"] == []


def test_reader_of_the_index_shows_no_entry_that_a_power_cut_left_without_its_message():
    world = KeyedWorld()
    log = world.open()
    for i in range(30):
        world.append(log, ("a", i % 3), b"%d" % i * 20, ["k"], durability="os")
        if i == 10:
            log.flush("disk")
    log.catch_up()
    log.index.flush("disk")  # it may outlive what it names
    lost = 0
    for state in world.disk.crash_states(limit=12, seed=1):
        with Index.open(
            DATA, filesystem=state.other_process(), store=world.store, clock=ManualClock(),
            ids=SeededIds(9), read_only=True, background=False,
        ) as index:  # fmt: skip
            entries = index.query("a", key="k", max_count=999).entries
        after = KeyedWorld()
        after.disk, after.store = state, copy_of(world.store)
        with after.open() as recovered:
            ends = {queue_id: recovered.end_offset("a", queue_id) for queue_id in range(3)}
            held = len(recovered.index.query("a", key="k", max_count=999).entries)
        assert all(entry.offset < ends[entry.queue_id] for entry in entries)
        assert len(entries) <= held <= sum(ends.values())
        lost += sum(ends.values()) < 30
    assert lost


def test_reader_of_the_index_shows_all_that_the_log_holds_in_any_state():
    world = KeyedWorld()
    log = world.open(item_capacity=1000)
    for state in ("unsealed", "sealed", "compacted", "merged", "uploaded", "expired"):
        world.append(log, ("a", 0), state.encode(), ["k"])
        log.catch_up()
        if state != "unsealed":
            log.roll()
        if state == "sealed":
            seal_rolled(log)
        elif state == "expired":
            world.expire(log)
        elif state in ("compacted", "uploaded", "merged"):
            writing = components_of(log).writing
            while writing.local.run_first(writing.units()):
                log.catch_up()
            if state == "merged":
                writing.housekeeping.run_first(writing.chores())
            elif state == "uploaded":
                log.run_compaction()
        with Index.open(
            DATA, filesystem=world.disk.other_process(), store=world.store, clock=ManualClock(),
            ids=SeededIds(9), read_only=True, background=False,
        ) as index:  # fmt: skip
            found = index.query("a", key="k", max_count=999)
            own = log.index.query("a", key="k", max_count=999)
        assert [e.offset for e in found.entries] == [e.offset for e in own.entries] != []


def test_damage_after_a_kill_leaves_no_entry_of_what_is_gone_and_loses_none_of_what_is_not():
    """Offsets of a journal in quarantine are given again: its keys lead nowhere, and say why."""
    world = KeyedWorld()
    log = world.open()
    for i in range(10):
        world.append(log, ("a", 0), b"kept %d" % i, [f"kept{i}"])
    log.roll()
    log.run_compaction()
    ends = []
    for i in range(30):
        world.append(log, ("a", 0), b"gone %d" % i + bytes(400), [f"gone{i}"])
        ends.append(components_of(log).writing.active.journal.bytes_used)
    disk = world.disk = world.disk.restart()
    folder = DATA / "log/unsealed"
    (name,) = (n for n in disk.list_folder(folder) if n != "next.ready")
    file = disk.open(folder / name, writable=True)
    file.write_at(ends[2] + 200, bytes([file.read_at(ends[2] + 200, 1)[0] ^ 1]))
    file.sync()
    file.close()
    for _ in range(2):
        log = world.open()
        assert log.end_offset("a", 0) == log.append(
            topic="a", queue_id=0, body=b"later", keys=["later"]
        )
        for i in range(10):
            assert [m.body for m in log.get("a", key=f"kept{i}")] == [b"kept %d" % i]
        assert b"later" in [m.body for m in log.get("a", key="later")]
        for i in range(30):
            answer = log.get("a", key=f"gone{i}")
            assert not len(answer)
            assert not answer.complete
            assert name in answer.missing[0].file
            assert not list(log.index.query("a", key=f"gone{i}").entries)
        log.close()


def test_commits_that_follow_each_other_are_dispatched_together():
    rounds, woken = [], []
    tending = DispatcherTending(lambda: rounds.append(1))
    tending.wake = lambda: woken.append(1)
    tending.note_written()
    pause = tending.step()
    for _ in range(50):  # while it gathers
        tending.note_written()
    assert (len(rounds), len(woken)) == (1, 1)
    assert tending.step() == pause
    assert tending.step() > pause  # nothing came: it sleeps until it is woken
    tending.note_written()
    assert (len(rounds), len(woken)) == (2, 2)
    tending.step()
    assert len(rounds) == 3


def test_a_message_written_while_others_are_dispatched_is_dispatched_next():
    woken = []
    tending = DispatcherTending(lambda: tending.note_written() if not woken[1:] else None)
    tending.wake = lambda: woken.append(1)
    tending.note_written()
    tending.step()
    assert len(woken) == 2
