"""Lives of a message log that moves from disk to disk: handed over, lost, taken while its owner lives.

::

    owner 1, disk 1   appends, publishes, expires, delivers .. handed over | stopped | lost its power
    owner 2, disk 2                                            takes over, cut off at any call, and goes on
    owner 1, once more     appends what it may, is fenced at its first contact, changes nothing in the store
    its folder             adopted: a log of its own, from where the node's part ended

The store fails at any call. After each turn `KeyedWorld.look` holds: offsets 0 .. n-1, every key finds just
its messages, no entry of the index names an offset that the log does not hold; what a hand-over or `remote`
promised is there; an offset shows one message under one generation, for ever; a held message comes once.
"""

from __future__ import annotations

import contextlib
import random

from tests.log_service.keyed_world import TIMED, KeyedWorld
from tests.log_service.store_listing import published_files
from tests.simulation.simulated_disk import SimulatedCrash
from tierdex.errors import FencedError, TierdexError, UnavailableError
from tierdex.testing.faulty_store import Fault, FaultyStore

QUEUES = [("a", 0), ("a", 1), ("b", 7), ("größe", 2)]
FAULTS = (Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.TIMEOUT_BEFORE, Fault.TIMEOUT_AFTER)
VERBS = ("get", "put", "put_if_absent", "upload", "list", "head")
TURNS = 4
STEPS = 14


def take_over(seed: int) -> int:
    """Let a log move a few times; return how often it did."""
    return _Lineage(seed).run()


class _Lineage:
    """One node's log, and all that was ever seen of it."""

    def __init__(self, seed: int) -> None:
        self.source = random.Random(seed)
        self.world = KeyedWorld()
        self.world.store = FaultyStore(self.world.store)
        self.world.settings = {"merge_min_files": 2}
        self.promised: dict = {}  # by queue: how many messages are published for certain
        self.timers_promised: set = set()  # bodies that are delivered once, whatever happens
        self.ever_held: set = set()
        self.seen: dict = {}  # (queue, offset, generation) -> body
        self.adopted = 0

    def run(self) -> int:
        log = self.world.open()
        for turn in range(TURNS):
            self.live(log)
            self.remember(log)
            chosen = self.source.random()
            if chosen < 0.4:
                log = self.hand_over(log)
            elif chosen < 0.8:
                log = self.lose(log, turn)
            else:
                self.world.disk = self.world.disk.restart()
                log = opened(self.world)
            self.look(log)
        self.look_at_timed(log)
        log.run_compaction()
        self.look(log)
        return TURNS

    def look(self, log) -> None:
        """Compare the log with what there must be; faults that did not strike yet strike no more."""
        self.world.store.cancel_faults()
        log.index.refresh()
        self.trim(self.world.look(log))
        self.remember(log)

    def look_at_timed(self, log) -> None:
        """Let everything held be due: what was promised is there, and nothing is twice."""
        self.world.advance(log, 10 * 3_600_000)
        log.deliver_due()
        assert log.timers() == []
        found = [message.body for message in log.reader(*TIMED)]
        assert len(set(found)) == len(found), "a held message was delivered twice"
        assert self.ever_held.issuperset(found)
        if not log.begin_offset(*TIMED):  # else some of them were delivered, and expired
            assert self.timers_promised <= set(found), "a held message is gone"

    # -- an owner's life -----------------------------------------------------------------------------------

    def live(self, log) -> None:
        world, source = self.world, self.source
        for step in range(STEPS):
            if source.random() < 0.2:
                verb, nth = source.choice(VERBS), source.randrange(1, 6)
                world.store.fail(verb, nth=nth, fault=source.choice(FAULTS))
            with contextlib.suppress(UnavailableError):
                self.do(log, step)

    def do(self, log, step) -> None:
        world, source = self.world, self.source
        chosen = source.random()
        if chosen < 0.5:
            for _ in range(source.choice((1, 3, 9))):
                keys = [f"k{source.randrange(5)}"]
                body = b"%d-%d " % (step, source.randrange(1 << 30)) * source.choice((1, 40))
                world.append(
                    log, source.choice(QUEUES), body, keys, f"id-{source.randrange(9)}", "os"
                )
        elif chosen < 0.6:
            body = b"held %d" % source.randrange(1 << 30)
            self.ever_held.add(body)
            try:
                world.hold(log, source.choice((40, 90_000)), body, "disk")
            except UnavailableError:  # where the timer stands could not be read
                world.held.pop()
        elif chosen < 0.7:
            world.advance(log, source.choice((50, 100_000)))
            log.deliver_due()
        elif chosen < 0.75:
            world.expire(log)
        elif chosen < 0.8:
            log.index.roll()
        else:
            log.roll()
            log.run_compaction()
            self.promise(log)

    def promise(self, log) -> None:
        """Everything is published: what the world has handed over will never be gone from the node."""
        if not log.unpublished_count():
            self.promised = {queue: len(held) for queue, held in self.world.handed.items()}
            self.timers_promised = {body for _, body in self.world.held}

    def remember(self, log) -> None:
        """Note what is read now; no other message was ever seen under its offset and generation."""
        for queue in self.world.handed:
            offset = log.begin_offset(*queue)
            while len(answer := log.read(*queue, offset, max_count=1, visible="os")):
                place = (queue, offset, answer.generation)
                assert (
                    self.seen.setdefault(place, answer.messages[0].body) == answer.messages[0].body
                )
                offset += 1

    def trim(self, ends) -> None:
        """Take what was found for what there is; nothing that was promised may lack."""
        for queue, end in ends.items():
            assert end >= self.promised.get(queue, 0), (queue, "a published message is gone")
            del self.world.handed[queue][end:]
            if end < self.world.expired.get(queue, 0):  # and it expired on a disk that is lost
                self.world.expired[queue] = end

    # -- its end -------------------------------------------------------------------------------------------

    def hand_over(self, log):
        for _ in range(9):
            with contextlib.suppress(UnavailableError):
                log.hand_over()
                break
        else:
            log.hand_over()
        with_refusal(FencedError, log, self.world)
        self.promise(log)
        if self.source.random() < 0.8:  # else it goes on being there, and does not matter
            log.close()
        return self.take(takeover=True)

    def lose(self, log, turn):
        """Its disk is gone, as far as the others know; it lives, and is found later."""
        old, told = self.world, dict(self.world.handed)
        told = {queue: list(held) for queue, held in told.items()}
        old_disk = old.disk
        taken = self.take(takeover="lossy")
        self.stay_stale(log, old, told)
        if self.source.random() < 0.5:
            log.close()
            self.adopt(old_disk, told, f"rescued-{turn}", old.expired)
        return taken

    def take(self, *, takeover):
        """Open it on another disk, cut off at some call or not."""
        self.world = self.world.elsewhere()
        if takeover == "lossy":  # the others are not known
            held = self.world.held
            self.world.held = [each for each in held if each[1] in self.timers_promised]
        if self.source.random() < 0.6:
            self.world.disk.crash_at(
                self.source.randrange(1, 120), after=self.source.random() < 0.5
            )
            verb = self.source.choice(VERBS)
            self.world.store.fail(
                verb, nth=self.source.randrange(1, 9), fault=self.source.choice(FAULTS)
            )
            with contextlib.suppress(SimulatedCrash, UnavailableError):
                self.world.open(takeover=takeover).close()
            self.world.disk = self.world.disk.restart()
        return opened(self.world, takeover=takeover)

    def stay_stale(self, log, old, told) -> None:
        """The older owner goes on until it is told: nothing in the store changes."""
        before = listed(old.store)
        for n in range(self.source.randrange(4)):
            with contextlib.suppress(FencedError):
                queue = self.source.choice(QUEUES)
                log.append(topic=queue[0], queue_id=queue[1], body=b"stale %d" % n, keys=["stale"])
                told.setdefault(queue, []).append((b"stale %d" % n, ("stale",), None))
        log.roll()
        for _ in range(9):  # faults that are still to come are not the claim's
            try:
                log.run_compaction()
            except FencedError:
                break
            except TierdexError:
                continue
        with_refusal(FencedError, log, old)
        assert listed(old.store) == before, "a stale owner changed what is published"

    def adopt(self, disk, told, node, expired) -> None:
        """Publish the older owner's folder under another node: its part of each queue is there, no more."""
        world = KeyedWorld()
        world.disk, world.store, world.settings = disk, self.world.store, self.world.settings
        world.now_ms = self.world.now_ms
        log = opened(world, node=node, adopt=True)
        for queue, held in told.items():
            begin, end = log.begin_offset(*queue), log.end_offset(*queue)
            if end:
                assert begin <= max(self.promised.get(queue, 0), begin)
                has_tail = end == len(held) or len(held) <= expired.get(queue, 0)
                assert has_tail, (queue, "the tail is not whole, or its offsets are given again")
                found = [message.body for message in log.reader(*queue, begin)]
                assert found == [body for body, _, _ in held[begin:end]]
            for key in {key for _, keys, _ in held for key in keys}:
                answer = log.get(queue[0], key=key, max_count=999)
                assert answer.complete, answer.missing
                places = {(m.queue_id, m.offset) for m in answer}
                entries = log.index.query(queue[0], key=key, max_count=999).entries
                own = {
                    (e.queue_id, e.offset)
                    for e in entries
                    if e.node == node and e.offset >= log.begin_offset(queue[0], e.queue_id)
                }
                assert own == places, "an entry without a message"
        self.adopted += 1
        log.close()


def opened(world, **settings):
    """Open it, however often the store fails meanwhile: its faults end."""
    for _ in range(9):
        with contextlib.suppress(UnavailableError):
            return world.open(**settings)
    return world.open(**settings)


def with_refusal(error, log, world) -> None:
    """No append is taken any more."""
    try:
        log.append(topic="a", queue_id=0, body=b"refused")
    except error:
        return
    raise AssertionError("an append was taken by an owner that has the node no more")


def listed(store) -> set:
    """Return the objects that the node's manifest lists, asked of the store without its faults."""
    return published_files(store.inner)
