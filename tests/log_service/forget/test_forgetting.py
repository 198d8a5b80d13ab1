"""Messages that are forgotten by key: who sees them no more, what stays, what is left, what crashes leave."""

from __future__ import annotations

import errno
from contextlib import closing, suppress
from hashlib import sha512

import pytest

from tests.log_service.keyed_world import TIMED, TINY_INDEX, KeyedWorld
from tests.log_service.log_world import DATA, open_log, seal_rolled
from tests.simulation.simulated_disk import SimulatedCrash, SimulatedFileSystem
from tierdex.clock import ManualClock
from tierdex.errors import (
    InvalidRequestError,
    NotFoundError,
    ReadOnlyError,
    UnavailableError,
)
from tierdex.filesystem import make_durable_folder
from tierdex.log_service.levels import Level
from tierdex.logfile.forgotten import NOWHERE, ForgottenPlaces
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of
from tierdex.testing.faulty_store import FaultyStore

HOUR_MS = 3_600_000
QUEUE = ("orders", 0)
SECRET = sha512(b"a body that no reader may read again").digest()  # no codec makes it shorter


def shown(log, queue=QUEUE):
    """Return (body, is forgotten) of a queue as every door of the library reads it: all agree."""
    answers = [
        log.read(*queue, 0),
        log.read(*queue, 0, max_bytes=1 << 29),  # on the general path
        log.read_many([(*queue, 0)])[0],
        log.read_many([(*queue, 0), ("none", 1, 0)])[0],
    ]
    found = [[(m.body, m.is_forgotten) for m in answer.messages] for answer in answers]
    found.append([(m.body, m.is_forgotten) for m in log.reader(*queue)])
    table = log.read_arrow(*queue, 0).to_pydict()
    found.append(list(zip(table["body"], table["is_forgotten"], strict=True)))
    assert all(each == found[0] for each in found), found
    for answer in answers:
        assert [m.offset for m in answer.messages] == list(range(len(answer)))
        for message in answer.messages:
            if message.is_forgotten:
                assert (message.keys, message.message_id, message.headers) == ((), None, ())
    return found[0]


def bodies_of(log, key):
    found = log.get("orders", key=key)
    assert found.complete, found.missing
    return [message.body for message in found]


def holders(world):
    """Return the names of all files and objects in whose bytes SECRET stands, recycled blocks with them."""
    disk, found = world.disk, []
    for folder in ("unsealed", "sealed", "compacted", "uploaded", "quarantine"):
        for name in disk.list_folder(DATA / "log" / folder):
            with closing(disk.open(DATA / "log" / folder / name)) as file:
                if SECRET in file.read_at(0, file.size()):
                    found.append(f"{folder}/{name}")
    return found + [key for key, data in objects_of(world.store).items() if SECRET in data]


def objects_of(store):
    return {each.key: store.get(each.key) for each in store.list("")}


@pytest.fixture
def world():
    return KeyedWorld()


def fill(world, log, count=6):
    """Append messages of which every third has the key SECRET, all have ALL."""
    for i in range(count):
        is_secret = i % 3 == 1
        keys = ["ALL", f"k{i}", *(["SECRET"] if is_secret else [])]
        world.append(log, QUEUE, b"%d " % i + (SECRET if is_secret else b"open"), keys, f"id{i}")


WANTED = [(b"%d open" % i, False) if i % 3 != 1 else (b"", True) for i in range(6)]


@pytest.mark.parametrize("state", ["growing", "rolled", "sealed", "compacted"])
def test_messages_of_a_forgotten_key_are_empty_in_every_read_whatever_file_holds_them(world, state):
    log = world.open()
    fill(world, log)
    if state != "growing":
        log.roll()
    if state == "sealed":
        seal_rolled(log)
    if state == "compacted":
        log.run_compaction()
    receipt = log.forget("orders", key="SECRET")
    assert [each.offset for each in receipt.messages] == [1, 4]
    assert receipt.is_complete
    assert shown(log) == WANTED
    assert (bodies_of(log, "SECRET"), bodies_of(log, "k4")) == ([], [])
    assert bodies_of(log, "ALL") == [b"5 open", b"3 open", b"2 open", b"0 open"]
    assert list(log.get(message_id="id1")) == []
    assert log.index.query("orders", key="k1").entries == []
    log.run_compaction()
    assert shown(log) == WANTED
    log.close()
    log = world.open()
    assert shown(log) == WANTED
    world.append(log, QUEUE, b"again", ["SECRET"])
    assert bodies_of(log, "SECRET") == [b"again"]
    log.close()


def test_message_id_is_forgotten_under_all_keys_of_its_message_and_no_other_goes(world):
    log = world.open()
    fill(world, log)
    receipt = log.forget(message_id="id2")
    assert [tuple(each) for each in receipt.messages] == [("orders", 0, 2)]
    assert shown(log)[2] == (b"", True)
    assert bodies_of(log, "k2") == []
    assert len(bodies_of(log, "ALL")) == 5
    assert len(bodies_of(log, "SECRET")) == 2
    log.close()


def test_message_that_waits_for_its_hour_is_not_delivered_and_one_that_came_is_hidden(world):
    log = world.open()
    for delay_ms, key in ((HOUR_MS, "early"), (2 * HOUR_MS, "late"), (2 * HOUR_MS, "kept")):
        log.append(
            topic=TIMED[0], queue_id=TIMED[1], body=key.encode(), keys=[key],
            deliver_at=world.now_ms + delay_ms,
        )  # fmt: skip
    world.advance(log, HOUR_MS + 1)
    assert log.deliver_due() == 1
    assert log.forget(TIMED[0], key="early").held_count == 1  # the copy that waited
    late = log.forget(TIMED[0], key="late")
    assert (late.messages, late.held_count) == ([], 1)
    log.close()
    log = world.open()
    world.advance(log, 2 * HOUR_MS)
    log.deliver_due()
    assert shown(log, TIMED) == [(b"", True), (b"kept", False)]
    assert log.timers() == []
    log.close()


def test_reader_in_another_process_sees_it_at_its_next_look(world):
    log = world.open()
    fill(world, log)
    log.catch_up()
    reader = world.open(read_only=True)
    assert shown(reader)[1][0].endswith(SECRET)
    log.forget("orders", key="SECRET")
    reader.refresh()
    assert shown(reader) == WANTED
    assert bodies_of(reader, "SECRET") == []
    with pytest.raises(ReadOnlyError):
        reader.forget("orders", key="k0")
    reader.close()
    log.close()


def test_what_cannot_be_asked_is_refused_and_a_look_changes_nothing(world):
    log = world.open()
    fill(world, log)
    dry = log.forget("orders", key="SECRET", dry_run=True)
    assert len(dry.messages) == 2
    assert log.forgettings() == []
    assert len(bodies_of(log, "SECRET")) == 2
    for wrong in (
        {"topic": "orders"},
        {"key": "k"},
        {"lookups": []},
        {"key": "k", "lookups": [{}]},
    ):
        with pytest.raises(InvalidRequestError):
            log.forget(**wrong)
    with pytest.raises(NotFoundError):
        log.resume_forgetting("00" * 16)
    assert log.forget("orders", key="unknown").is_complete
    log.close()
    plain = open_log(world.disk.restart(), index=False)
    with pytest.raises(InvalidRequestError, match="without an index"):
        plain.forget("orders", key="SECRET")
    plain.close()


def test_places_are_kept_as_bytes_and_joined():
    listed = [(b"b", 3, 7), (b"a", 1, 9), (b"a", 1, 2), (b"b", 3, 7)]
    places = ForgottenPlaces.of(listed)
    again = ForgottenPlaces.decode(places.encode(), "x")
    both = again.joined(ForgottenPlaces.of([(b"aa", 0, 0), (b"a", 1, 2)]))
    assert list(both) == [(b"a", 1, 2), (b"a", 1, 9), (b"aa", 0, 0), (b"b", 3, 7)]
    assert both.within(b"a", 1, 0, 9).tolist() == [2]
    assert both.within(b"a", 2, 0, 99).tolist() == []
    assert len(NOWHERE.joined(NOWHERE)) == 0
    assert list(ForgottenPlaces.decode(NOWHERE.encode(), "x")) == []


def test_index_that_is_made_anew_knows_nothing_of_what_a_file_still_holds(world):
    log = world.open()
    fill(world, log)
    log.forget("orders", key="SECRET")
    log.close()
    for folder in ("unsealed", "sealed", "compacted"):
        for name in world.disk.list_folder(DATA / folder):
            world.disk.unlink(DATA / folder / name)
    log = world.open()
    log.catch_up()
    assert sorted(e.offset for e in log.index.query("orders", key="ALL").entries) == [0, 2, 3, 5]
    assert log.index.query("orders", key="SECRET").entries == []
    log.close()


# -- bytes -----------------------------------------------------------------------------------------------


def test_nothing_of_it_is_left_in_any_file_or_object_when_files_are_written_anew_at_once(world):
    clock = ManualClock(1_700_000_000_000)
    world.store = MemoryStore(clock=clock)
    log = world.open(grace_time=60.0)
    for _ in range(3):  # blocks of the first are those of the third
        fill(world, log, 3)
        log.roll()
        log.run_compaction()
    fill(world, log, 3)
    assert len(holders(world)) > 3
    receipt = log.forget("orders", key="SECRET", now=True)
    assert receipt.is_complete, receipt.waiting
    assert receipt.holding == []
    assert len(receipt.rewritten) > 3
    assert len(receipt.lingering) >= 3
    assert [
        key for key in holders(world) if key not in {o.object_key for o in receipt.lingering}
    ] == []
    for _ in range(2):
        world.advance(log, 90_000)
        clock.advance(90.0)
        log.run_compaction()
    assert holders(world) == []
    assert log.forgettings() == []
    assert len([each for each in shown(log) if each[1]]) == 4
    log.close()
    log = world.open()
    assert len([each for each in shown(log) if each[1]]) == 4
    log.close()


def test_local_copies_of_published_files_go_with_what_is_forgotten(world):
    log = world.open(keep_local_bytes=1 << 20, merge_min_files=99)
    for _ in range(2):
        fill(world, log, 3)
        log.roll()
        log.run_compaction()
    kept = [name for name in holders(world) if name.endswith(".kept")]
    assert len(kept) == 2
    copies, published = (
        components_of(log).tier.copies,
        components_of(log).table.version.files.iterate(),
    )
    world.disk.fail("unlink", number=errno.EIO)
    copies.forget(next(iter(published)).uuid)  # damaged, say
    world.disk.heal()
    assert set(holders(world)) >= set(kept)
    world.disk.fail("unlink", number=errno.EIO)
    asked = log.forget("orders", key="SECRET", now=True, dry_run=True)
    assert len({missing.file for missing in asked.waiting}.intersection(kept)) == 1
    world.disk.heal()
    receipt = log.forget("orders", key="SECRET", now=True)
    assert receipt.is_complete, receipt.waiting
    assert set(holders(world)) == {each.object_key for each in receipt.lingering}
    names = world.disk.list_folder(DATA / "log" / "uploaded")
    assert len([name for name in names if name.endswith(".kept")]) == 1, "of the file written anew"
    assert shown(log) == [each for _ in range(2) for each in WANTED[:3]]
    log.close()


def test_what_an_earlier_request_left_to_merges_goes_with_one_that_wants_it_now(world):
    clock = ManualClock(1_700_000_000_000)
    world.store = MemoryStore(clock=clock)
    log = world.open(grace_time=60.0)
    fill(world, log, 3)
    log.append(
        topic=TIMED[0], queue_id=TIMED[1], body=SECRET, keys=["ALL", "SECRET"],
        deliver_at=clock.now_ms() + 9 * HOUR_MS,
    )  # fmt: skip
    log.roll()
    log.run_compaction()
    before = log.forget("orders", key="k1")  # left to the next merge, which need not come
    log.forget(TIMED[0], key="ALL")
    log.run_compaction()
    assert before.holding != []
    log.close()
    log = world.open(grace_time=60.0)  # the record tells the names, nothing else does any more
    receipt = log.forget(
        lookups=[{"topic": t, "key": "SECRET"} for t in ("orders", TIMED[0])], now=True
    )
    assert [each.offset for each in receipt.messages] == [1]
    assert (receipt.held_count, receipt.holding, receipt.is_complete) == (1, [], True)
    for _ in range(2):
        world.advance(log, 90_000)
        clock.advance(90.0)
        log.run_compaction()
    assert holders(world) == []
    assert log.forgettings() == []
    log.close()


# -- crashes ---------------------------------------------------------------------------------------------


class Story:
    """Messages, a request to forget some, and more messages; `told` once the request has returned."""

    def __init__(self, world, **forgets):
        self.world, self.forgets, self.told = world, forgets, False

    def run(self):
        log = self.world.open()
        fill(self.world, log)
        log.roll()
        log.run_compaction()
        fill(self.world, log, 3)
        self.begun = len(self.world.disk.trace)
        log.forget("orders", key="SECRET", **self.forgets)
        self.told = True
        self.ended = len(self.world.disk.trace)
        self.world.append(log, QUEUE, b"again", ["SECRET"])
        log.run_compaction()
        log.close()
        return log

    def judge(self, disk):
        """Open what is left: nothing of what was acknowledged as forgotten shows, all else does."""
        world = KeyedWorld()
        world.disk, world.store = disk, self.world.store
        log = world.open()
        handed = self.world.handed[QUEUE]
        end = log.end_offset(*QUEUE)
        assert end >= self.world.acknowledged[Level.DISK].get(QUEUE, 0)
        read = shown(log)
        assert len(read) == end
        hidden = [at for at, (_, is_forgotten) in enumerate(read) if is_forgotten]
        secret = [at for at in range(min(end, 9)) if "SECRET" in handed[at][1]]
        assert hidden == secret or (not hidden and not self.told), "all of it, or nothing"
        for at, (body, _) in enumerate(read):
            assert body == (b"" if at in hidden else handed[at][0])
        if hidden:
            log.run_compaction()  # what the index was not told before the crash, it is now
            later = [body for body, keys, _ in handed[9:end] if "SECRET" in keys]
            assert bodies_of(log, "SECRET") == later
            places = {entry.offset for entry in log.index.query("orders", key="ALL").entries}
            assert places.isdisjoint(hidden)
            assert shown(log) == read
        log.close()


def test_killed_at_any_call_a_request_has_hidden_all_or_nothing_and_for_good():
    whole = Story(KeyedWorld())
    whole.run()
    for call in range(whole.begun, whole.ended + 40, 5):
        story = Story(KeyedWorld())
        story.world.disk.crash_at(call)
        with suppress(SimulatedCrash):
            story.run()
        story.judge(story.world.disk.restart())


def test_whoever_takes_the_log_over_hides_the_same_and_offsets_given_anew_are_not_hidden():
    world = KeyedWorld()
    log = world.open()
    fill(world, log)
    log.roll()
    log.run_compaction()  # published
    world.append(log, QUEUE, b"not published", ["LAST"])
    assert log.forget("orders", key="SECRET").is_complete
    assert log.forget("orders", key="LAST").is_complete
    disk = SimulatedFileSystem()
    make_durable_folder(disk, DATA)
    heir = open_log(disk, store=world.store, takeover="lossy", **TINY_INDEX)
    assert shown(heir) == WANTED
    assert bodies_of(heir, "SECRET") == []
    assert heir.append(topic="orders", queue_id=0, body=b"anew", keys=["LAST"]) == len(WANTED)
    assert shown(heir) == [*WANTED, (b"anew", False)]
    assert bodies_of(heir, "LAST") == [b"anew"]
    assert heir.forget("orders", key="k0", now=True).messages[0].offset == 0
    assert shown(heir)[0] == (b"", True)
    heir.close()
    heir = open_log(disk, store=world.store, **TINY_INDEX)  # of one request no place is left
    assert shown(heir) == [(b"", True), *WANTED[1:], (b"anew", False)]
    heir.close()


def test_request_ends_in_a_log_that_is_opened_without_its_index(world):
    log = world.open()
    for _ in range(2):  # compacted, and not published
        fill(world, log, 3)
        log.roll()
        seal_rolled(log)
        log.catch_up()
        writing = components_of(log).writing
        assert writing.local.run_first(writing.units())
    log.forget("orders", key="SECRET")
    log.close()
    log = open_log(world.disk, index=False, merge_min_files=2)
    for _ in range(3):
        log.run_compaction()
        assert [each[1] for each in shown(log)] == [False, True, False] * 2
        components_of(log).seams.clock.advance(1e6)
    assert log.forgettings() == []
    log.close()


def test_request_stays_until_the_index_was_told_however_long_that_takes():
    world = KeyedWorld()
    world.store = FaultyStore(world.store)
    log = world.open(grace_time=60.0)
    fill(world, log, 3)
    log.roll()
    seal_rolled(log)
    log.catch_up()
    with world.store.outage():
        asked = log.forget("orders", key="SECRET", now=True)
        assert "index" in [missing.file for missing in asked.waiting]
        for _ in range(4):
            with suppress(UnavailableError):
                log.run_compaction()
            assert log.resume_forgetting(asked.forgetting).holding == []
            world.advance(log, 90_000)
    log.run_compaction()
    assert log.index.query("orders", key="k1").entries == []
    for _ in range(3):
        world.advance(log, 90_000)
        log.run_compaction()
    assert log.forgettings() == []
    assert [each[1] for each in shown(log)] == [False, True, False]
    log.close()
