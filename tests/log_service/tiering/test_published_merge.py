"""Merges of published log files: one object and one commit, same answers, whatever fails or crashes."""

from __future__ import annotations

import pytest

from tests.log_service.keyed_world import KeyedWorld, copy_of
from tests.log_service.log_world import DATA, everything
from tests.log_service.store_listing import state_of
from tests.log_service.tiering.test_log_retention import DAY
from tests.log_service.tiering.test_publish import states
from tests.simulation.simulated_disk import SimulatedCrash
from tierdex.clock import ManualClock
from tierdex.errors import FencedError, UnavailableError
from tierdex.fileparts.layout import Part
from tierdex.ids import SeededIds
from tierdex.lifecycle.manifests.file_row import LOG_KIND
from tierdex.lifecycle.manifests.manifest_log import ManifestLog
from tierdex.lifecycle.nodes.claim_terms import ClaimTerms
from tierdex.lifecycle.nodes.ownership import OwnedNode
from tierdex.log_service.files.whole_object import check_object, open_grouped_tail
from tierdex.log_service.levels import Level
from tierdex.testing.components import components_of
from tierdex.testing.faulty_store import Fault, FaultyStore

FOUR = {"merge_min_files": 4}
DAY_MS = round(DAY * 1000)
QUEUES = [("a", 0), ("b", 7), ("größe", 2)]


def publish_file(world, log, number, queues=QUEUES, count=6):
    """Fill one journal and publish it; published files are not merged yet."""
    for i in range(count):
        queue = queues[i % len(queues)]
        world.append(log, queue, b"%d %d" % (number, i) * 20, ["k", f"k{number}"], None, "os")
    log.roll()
    publish(log)


def publish(log):
    writing = components_of(log).writing
    while True:
        writing.log_index.catch_up()
        if not writing.local.run_first(writing.units()):
            break
    log.index.run_compaction()


def log_rows(world):
    return sorted(state_of(world.store).files_of(LOG_KIND).values(), key=lambda row: row.number)


def written(store):
    return {verb: store.calls(verb) for verb in ("put", "put_if_absent", "upload", "delete")}


def merge(log) -> int:
    """Do the merge that is worth it, and nothing else; return how many files went into it."""
    writing = components_of(log).writing
    writing.merging.look_at_everything()
    return writing.housekeeping.run_first(writing.merging.units())


@pytest.mark.parametrize("codec", ["zstd", "plain"])
def test_published_neighbours_become_one_object_by_one_commit(world, codec):
    log = world.open(cold_codec=codec, **FOUR)
    for number in range(4):
        publish_file(world, log, number)
    reading = KeyedWorld()
    reading.disk, reading.store, reading.handed = (
        world.disk.other_process(), world.store, world.handed,
    )  # fmt: skip
    reader = reading.open(read_only=True)
    reading.look(reader)
    newest, sources = log.files()[0].file_id, log_rows(world)
    before = written(world.store)
    assert merge(log)
    after = written(world.store)
    assert after["upload"] == before["upload"] + 1
    assert after["put_if_absent"] == before["put_if_absent"] + 1
    assert after["put"] <= before["put"] + 1  # the hint: where the history ends
    [file] = log.files()
    assert (file.file_id, file.message_count, file.state) == (newest, 24, "uploaded")
    [row] = log_rows(world)
    assert {part.uuid for part in row.parts} == {source.uuid for source in sources}
    assert check_object(world.store, row) == []
    assert not merge(log), "one file is not merged again"
    world.look(log)
    # The sources' objects are there for the grace time: who knows the old list reads on.
    with components_of(reader).table.snapshot() as snapshot:
        assert {handle.uuid for handle in snapshot.files} == {source.uuid for source in sources}
    assert everything(reader, world.handed, "disk") == everything(log, world.handed, "disk")
    reading.advance(reader, 60_000)
    reading.look(reader)
    assert len(reader.files()) == 1
    log.close()
    log = world.open(**FOUR)
    world.append(log, ("a", 0), b"goes on", ["k"])
    world.look(log)
    held = sum(info.item_count for info in log.index.files())
    assert held == 2 * 24 + 1, "nothing was put again"
    assert world.disk.list_folder(DATA / "log/compacted") == []


@pytest.mark.parametrize("queues", [1, 1000])
def test_a_merge_sends_as_many_requests_for_few_queues_as_for_many(world, queues):
    log = world.open(item_capacity=100_000, journal_bytes=16 << 20, **FOUR)
    for number in range(4):
        for _ in range(2):
            log.append_batch(
                topic="t", queue_id=[i % queues for i in range(2000)],
                body=[b"%d" % number * 50] * 2000, durability="os",
            )  # fmt: skip
        log.roll()
        publish(log)
    before, gets = written(world.store), world.store.calls("get")
    assert merge(log)
    after = written(world.store)
    assert [after[verb] - before[verb] for verb in after] == [1, 1, 1, 0]
    assert world.store.calls("get") - gets == 4, "a source is read by windows, its sidecar is here"
    assert sum(file.message_count for file in log.files()) == 16_000


def test_topics_past_their_retention_are_given_back_without_waiting_for_the_longest(world):
    log = world.open(topic_retention={"a": DAY, "b": 9 * DAY}, **FOUR)
    for number in range(4):
        publish_file(world, log, number)
    world.advance(log, 2 * DAY_MS)
    assert merge(log)
    [row] = log_rows(world)
    assert row.item_count == 16
    world.expired["a", 0] = 8
    assert (log.begin_offset("a", 0), log.end_offset("a", 0)) == (8, 8)
    totals = components_of(log).writing.housekeeping._components.progress.totals
    assert totals.merged_bytes == row.bytes
    assert totals.given_back_bytes > 0
    world.append(log, ("a", 0), b"on", ["k"])
    log.close()
    log = world.open(topic_retention={}, **FOUR)  # kept for ever from now on: nothing comes back
    assert log.begin_offset("a", 0) == 8
    assert [m.body for m in log.read("a", 0, 0).messages] == [b"on"]
    table = open_grouped_tail(world.store, row).queue_table()
    assert table is not None, "the object says where the queues end that it lacks"


def test_file_half_of_which_is_hidden_is_written_anew_alone(world):
    log = world.open(topic_retention={"a": DAY})
    publish_file(world, log, 0, queues=[("a", 0), ("b", 0)])
    publish_file(world, log, 1, queues=[("b", 0), ("b", 1), ("b", 2), ("b", 3), ("a", 0)])
    world.advance(log, 2 * DAY_MS)
    assert merge(log)
    assert [row.item_count for row in log_rows(world)] == [3, 6], "a sixth is not worth it"
    world.expired["a", 0] = 4
    assert not merge(log)
    assert log.begin_offset("a", 0) == 4
    world.look(log)


def test_hour_that_waits_is_never_left_out(world):
    log = world.open(topic_retention={"a": DAY}, retention=DAY, **FOUR)
    world.hold(log, 30 * DAY_MS, b"later", "os")
    for number in range(4):
        publish_file(world, log, number, queues=[("a", 0)])
    world.advance(log, 2 * DAY_MS)
    log.run_compaction()
    assert [hour.message_count for hour in log.timers()] == [1]
    world.advance(log, 40 * DAY_MS)
    assert log.deliver_due() == 1
    assert log.read("timed", 3, 0).messages[0].body == b"later"


def test_objects_that_were_merged_go_after_the_grace_time(world):
    log = world.open(grace_time=600.0, **FOUR)
    for number in range(4):
        publish_file(world, log, number)
    sources = [row.object_key for row in log_rows(world)]
    log.run_compaction()
    [row] = log_rows(world)
    there = {found.key for found in world.store.list("nodes/n/files/")}
    assert there >= {row.object_key, *sources}
    world.advance(log, 601_000)
    log.run_compaction()
    there = {found.key for found in world.store.list("nodes/n/files/")}
    assert row.object_key in there
    assert not there.intersection(sources)
    world.look(log)


def prepare(**settings):
    world = KeyedWorld()
    world.store = FaultyStore(world.store)
    log = world.open(topic_retention={"b": DAY}, **FOUR, **settings)
    for number in range(4):
        publish_file(world, log, number, count=3)
    world.advance(log, 2 * DAY_MS)
    world.expired["b", 7] = 4
    world.acknowledge(Level.DISK)
    return world, log


def look_and_finish(world, disk, store):
    """Open what a crash left, and let the work be done: nothing is lost or doubled, the merge is there."""
    again = KeyedWorld()
    again.disk, again.store, again.now_ms = disk, store, world.now_ms
    again.handed.update({queue: list(held) for queue, held in world.handed.items()})
    again.expired = dict(world.expired)
    log = again.open(topic_retention={"b": DAY}, **FOUR)
    again.look(log)
    log.run_compaction()
    again.look(log)
    rows = log_rows(again)
    assert [row.item_count for row in rows] == [8]
    assert check_object(store, rows[0]) == []
    assert (log.begin_offset("b", 7), log.end_offset("b", 7)) == (4, 4)
    again.append(log, ("a", 0), b"goes on", ["k"])
    log.close()


def test_merge_cut_off_at_a_call_on_the_disk_loses_and_doubles_nothing():
    """Some of its calls; all of them, and many lives: `tests.torture.log_life`."""
    world, log = prepare()
    begun = len(world.disk.trace)
    assert merge(log)
    calls = len(world.disk.trace) - begun
    for nth in range(1, calls + 1, 5):
        world, log = prepare()
        world.disk.crash_at(nth, after=nth % 2 == 0)
        with pytest.raises(SimulatedCrash):
            merge(log)
        for survivor in world.disk.crash_states(limit=1, seed=nth):
            look_and_finish(world, survivor, copy_of(world.store.inner))


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.FAIL_AFTER])
@pytest.mark.parametrize("verb", ["get", "upload", "put_if_absent"])
def test_merge_whose_request_fails_is_done_by_the_next(verb, fault):
    world, log = prepare()
    world.store.fail(verb, nth=1, fault=fault)
    with pytest.raises(UnavailableError):
        merge(log)
    world.look(log)
    for survivor in world.disk.crash_states(limit=2, seed=1):
        look_and_finish(world, survivor, copy_of(world.store.inner))
    merge(log)
    world.look(log)
    assert [row.item_count for row in log_rows(world)] == [8]


def test_merge_of_an_owner_that_was_taken_over_is_refused_and_changes_nothing():
    world, log = prepare()
    before = log_rows(world)
    node = ManifestLog(world.store, "n", clock=ManualClock(0), ids=SeededIds(2), checkpoint_every=8)
    OwnedNode.open(node, SeededIds(3), ClaimTerms(takeover=True))
    with pytest.raises(FencedError):
        merge(log)
    assert log_rows(world) == before


def test_file_whose_publication_nobody_heard_of_is_not_merged_here_and_listed_twice(world):
    """The commit is made, its answer is lost, the store goes away: local files wait and are merged."""
    log = world.open(**FOUR)
    for number in range(9):
        if number == 1:
            world.store.fail("put_if_absent", nth=1, fault=Fault.FAIL_AFTER)
        elif number == 2:
            outage = world.store.outage()
            outage.__enter__()
        try:
            publish_file(world, log, number)
        except UnavailableError:
            assert number
        if number > 1:
            merge(log)
    assert "compacted" in states(log)
    outage.__exit__(None, None, None)
    log.run_compaction()
    assert sum(row.item_count for row in log_rows(world)) == 9 * 6
    world.look(log)


def test_lost_or_damaged_source_stops_no_other_merge(world):
    log = world.open(merge_min_files=3)
    for number in range(9):
        publish_file(world, log, number)
    rows = log_rows(world)
    world.store.delete(rows[0].object_key)
    damaged = bytearray(world.store.get(rows[4].object_key))
    damaged[4096 + 60] ^= 1
    world.store.inner.put(rows[4].object_key, bytes(damaged))
    log.run_compaction()
    assert [row.item_count for row in log_rows(world)] == [6, 18, 6, 24]


def test_index_keeps_its_entries_after_a_merged_file_has_expired(world):
    """Its batches come from journals in the merged file: these are gone by their age, not lost."""
    log = world.open(item_capacity=10_000, grace_time=600.0, **FOUR)
    for number in range(4):
        publish_file(world, log, number)
    assert merge(log)
    world.advance(log, 1000)
    log.expire(before=world.now_ms)
    assert log_rows(world) == []
    world.advance(log, 601_000)
    log.run_compaction()  # the sources are known no more
    publish_file(
        world, log, 5
    )  # what is published is noted anew: without files that no manifest lists
    held = [info.item_count for info in log.index.files()]
    log.close()
    log = world.open(item_capacity=10_000, **FOUR)
    assert [info.item_count for info in log.index.files()] == held
    assert log.end_offset("a", 0) == 10


def test_scrubber_drops_a_damaged_sidecar_and_the_next_read_fetches_it(world):
    log = world.open(scrub_interval=60.0)
    publish_file(world, log, 0)
    [row] = log_rows(world)
    tails, scrubber = components_of(log).tier.tails, components_of(log).writing.scrubber
    path = DATA / "log/uploaded" / f"{log.files()[0].file_id}-{row.uuid.hex()}"
    scrubber.step()
    assert world.disk.exists(path)
    # Of a block that its opening does not look at: the filter's.
    begin = tails.kept(row).footer.part(Part.FILTER, path).position - row.sidecar_position
    file = world.disk.open(path, writable=True)
    file.write_at(begin, bytes(each ^ 255 for each in file.read_at(begin, 8)))
    tails.close()  # as the next process finds it
    world.advance(log, 61_000)
    scrubber.step()
    assert not world.disk.exists(path)
    gets = world.store.calls("get")
    world.look(log)
    assert world.store.calls("get") > gets
    assert world.disk.exists(path)


def test_kept_copies_are_merged_without_a_get_and_the_merged_file_is_kept(world):
    log = world.open(keep_local_bytes=1 << 20, **FOUR)
    for number in range(4):
        publish_file(world, log, number)
    gets = world.store.calls("get")
    assert merge(log)
    assert world.store.calls("get") == gets
    [row] = log_rows(world)
    world.look(log)
    kept = [
        name for name in world.disk.list_folder(DATA / "log/uploaded") if name.endswith(".kept")
    ]
    assert [name for name in kept if row.uuid.hex() in name] == kept
    assert len(kept) == 1
