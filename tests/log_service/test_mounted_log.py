"""A log read from its store alone: published files mounted by one reading of manifests."""

from __future__ import annotations

import pytest

from tests.index_service.test_file_info import TickingClock
from tests.log_service.keyed_world import KeyedWorld
from tierdex.clock import ManualClock
from tierdex.errors import (
    CorruptFileError,
    InvalidRequestError,
    NotFoundError,
    ReadOnlyError,
    UnavailableError,
)
from tierdex.log_service.message_log import MessageLog
from tierdex.log_service.notes.carried_notes import row_of_notes
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of
from tierdex.testing.faulty_store import Fault

QUEUES = [("a", 0), ("a", 1), ("b", 7)]


def fill(world, log, count):
    for i in range(count):
        body = b"%d of %d" % (i, len(world.handed)) * 5
        world.append(log, QUEUES[i % 3], body, [f"k{i % 7}"], f"id-{i % 11}", "os")


def publish(log):
    log.roll()
    log.run_compaction()
    log.index.roll()
    log.run_compaction()


def mount(world, **settings):
    """Return the mounted log; its clock is as late as the world's."""
    settings = {"read_only": True, "background": False, "refresh_interval": 0.05, **settings}
    now_ms = max(world.now_ms, 1_700_000_000_000 + len(world.disk.trace))
    return MessageLog.open(store=world.store, clock=ManualClock(now_ms), **settings)


def calls(store):
    return {verb: store.calls(verb) for verb in ("get", "list", "list_folders", "head")}


def test_mounted_log_answers_as_its_owner_does(world):
    log = world.open()
    fill(world, log, 60)
    publish(log)
    mounted = mount(world)
    world.look(mounted)
    assert (mounted.node, mounted.topics()) == ("n", ["a", "b"])
    with pytest.raises(ReadOnlyError):
        mounted.append(topic="a", queue_id=0, body=b"")
    fill(world, log, 30)
    ends = [mounted.end_offset(*queue) for queue in QUEUES]
    assert ends == [20, 20, 20]  # what is published
    log.roll()
    log.run_compaction()  # the log's file, and no index file that covers it yet
    world.look(mounted)


def test_not_found_in_a_mounted_log_says_until_when_that_is_all(world):
    log = world.open()
    fill(world, log, 12)
    publish(log)
    world.advance(log, 60_000)
    world.append(log, QUEUES[0], b"later", ["new"], "id-new")
    (own,) = log.get("a", key="new")
    assert own.body == b"later"
    world.advance(log, 60_000)
    log.run_compaction()  # a record that tells that it holds more
    found = mount(world).get("a", key="new")
    assert (found.messages, found.complete) == ((), True)
    ((node, standing, through, holds, heard),) = found.unasked
    assert (node, standing, holds) == ("n", "live", True)
    assert heard is not None
    assert 0 < found.as_of == through
    publish(log)
    later = mount(world).get("a", key="new")
    assert [message.body for message in later] == [b"later"]
    assert later.as_of > found.as_of
    assert [each.holds_unpublished for each in later.unasked] == [False]


def test_mounting_reads_manifests_once_and_asks_no_file(world):
    log = world.open()
    for _ in range(6):
        fill(world, log, 12)
        publish(log)
    mount(world, node="n").close()
    few = calls(world.store)
    mount(world, node="n").close()
    one = {verb: count - few[verb] for verb, count in calls(world.store).items()}
    for _ in range(6):
        fill(world, log, 12)
        publish(log)
    before = calls(world.store)
    mounted = mount(world, node="n")
    two = {verb: count - before[verb] for verb, count in calls(world.store).items()}
    assert sum(two.values()) <= sum(one.values()) + 1  # of twice the files
    world.look(mounted)


def test_mounted_log_knows_what_is_gone_and_hidden(world):
    log = world.open()
    fill(world, log, 30)
    publish(log)
    mounted = mount(world)
    world.expire(log)
    fill(world, log, 6)
    publish(log)
    mounted.refresh()
    world.look(mounted)
    assert mounted.begin_offset("a", 0) == 10
    fresh = mount(world)
    world.look(fresh)


def test_node_is_named_where_several_have_logs(world):
    with pytest.raises(NotFoundError):
        mount(world)
    log = world.open()
    fill(world, log, 6)
    publish(log)
    other = KeyedWorld()
    other.store = world.store
    second = other.open(node="second")
    fill(other, second, 3)
    publish(second)
    with pytest.raises(InvalidRequestError, match="n, second"):
        mount(world)
    assert mount(world, node="second").end_offset("a", 0) == 1
    with pytest.raises(NotFoundError):
        mount(world, node="third")
    with pytest.raises(InvalidRequestError, match="read_only"):
        MessageLog.open(store=world.store)


def test_dead_store_is_named_in_answers_of_a_mounted_log(world):
    log = world.open()
    fill(world, log, 30)
    publish(log)
    mounted = mount(world, max_staleness=1.0)
    with world.store.outage():
        components_of(mounted).seams.clock.advance(10)
        assert not mounted.read("a", 0, 0).complete
        assert not mounted.get("a", key="k1").complete
    mounted.refresh()
    world.look(mounted)


def test_an_answer_older_than_wanted_names_the_logs_own_node_and_no_other(world):
    stores_clock = ManualClock()
    world.store = MemoryStore(clock=stores_clock)
    log = world.open()
    fill(world, log, 12)
    publish(log)
    other = KeyedWorld()
    other.store = world.store
    fill(other, other.open(node="second"), 3)  # and does not publish them
    world.advance(log, 600_000)
    stores_clock.advance(600)
    world.append(log, QUEUES[0], b"later", ["new"], "id-new")
    log.run_compaction()
    assert log.get("a", key="new", fresh_within=60).complete
    world.advance(log, 600_000)
    stores_clock.advance(600)
    found = mount(world, node="n").get("a", key="new", fresh_within=60)
    assert [each.file for each in found.missing] == ["node:n"]
    assert mount(world, node="n").get("a", key="new").complete
    publish(log)
    found = mount(world, node="n", fresh_within=60.0).get("a", key="new")
    assert (len(found), found.missing) == (1, ())


def test_what_was_forgotten_shows_neither_to_readers_of_the_store_nor_to_the_next_owner(world):
    log = world.open()
    fill(world, log, 30)
    publish(log)
    mounted = mount(world)
    assert len(mounted.get("a", key="k1", visible="os")) > 0
    log.forget("a", key="k1")
    log.run_compaction()
    mounted.refresh()
    for reader in (mounted, mount(world)):
        assert len(reader.get("a", key="k1")) == 0
        shown = [m.body for m in reader.reader("a", 0)] + [m.body for m in reader.reader("a", 1)]
        assert not any(body.startswith((b"1 of", b"8 of")) for body in shown)
    log.hand_over()
    log.close()
    other = KeyedWorld()
    other.store = world.store
    taken = other.open(takeover=True)
    assert len(taken.get("a", key="k1")) == 0
    assert len(taken.get("a", key="k2")) > 0


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.ALTERED_BODY])
@pytest.mark.parametrize("settings", [{}, {"node": "n"}])
def test_log_whose_manifest_cannot_be_read_is_not_called_absent(world, fault, settings):
    log = world.open()
    fill(world, log, 9)
    publish(log)
    world.store.fail("get", count=99, fault=fault)
    with pytest.raises((UnavailableError, CorruptFileError), match=r"manifest|node"):
        mount(world, **settings)
    world.store.cancel_faults()
    world.store.fail("list_folders", fault=Fault.FAIL_BEFORE, count=99)
    if not settings:
        with pytest.raises(UnavailableError, match="nodes cannot be listed"):
            mount(world)
    world.store.cancel_faults()
    world.look(mount(world, **settings))


def test_log_is_mounted_however_slowly_its_manifests_come(world):
    log = world.open()
    fill(world, log, 9)
    publish(log)
    mounted = MessageLog.open(
        store=world.store, clock=TickingClock(world.now_ms), read_only=True, background=False,
        max_staleness=0.2,
    )  # fmt: skip
    assert (mounted.node, mounted.topics()) == ("n", ["a", "b"])


def test_notes_that_are_altered_on_their_way_are_read_again(world):
    log = world.open()
    fill(world, log, 30)
    publish(log)
    world.expire(log)
    mounted = mount(world)
    fill(world, log, 6)
    publish(log)
    world.expire(log)
    key = row_of_notes(components_of(log).writing.kind.publishing.claim.get().state).object_key
    mounted.index.refresh()
    world.store.fail("get", fault=Fault.ALTERED_BODY, count=2)
    components_of(mounted).follower._gone.refresh()
    assert {struck.key for struck in world.store.history} == {key}
    world.look(mounted)
