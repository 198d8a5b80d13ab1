"""A message log that forgets, killed, cut off and failing at any call: what was forgotten never shows again.

A perfect memory tells each queue's bodies and keys, which requests have returned (`told`: they are hidden for
good) and which have not (`begun`: all of one is hidden, or nothing). After each stop a process opens what is
left, compares every read with that memory, goes on, and forgets once more with all files written anew: then
no file and no object has a body of what is forgotten, once the grace time is over.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import random
from contextlib import closing

from tests.log_service.keyed_world import TINY_INDEX, copy_of
from tests.log_service.log_world import DATA, open_log
from tests.simulation.simulated_disk import ANY, SimulatedCrash, SimulatedFileSystem
from tierdex.clock import ManualClock
from tierdex.errors import TierdexError
from tierdex.filesystem import make_durable_folder
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of

QUEUES = (("a", 0), ("a", 3), ("b", 1))
KEYS = 5
LIVES = 24
STEPS = 22
GRACE_S = 60.0


class World:
    """A disk, a store that outlives it, and what was handed over and asked."""

    def __init__(self, disk=None, store=None):
        self.clock = ManualClock(1_700_000_000_000)
        self.disk = disk or SimulatedFileSystem()
        self.store = store or MemoryStore(clock=self.clock)
        if disk is None:
            make_durable_folder(self.disk, DATA)
        self.handed = {queue: [] for queue in QUEUES}  # (body, keys, durable)
        self.told = set()  # places that are hidden for good
        self.begun = set()  # of the request that did not return

    def open(self):
        return open_log(
            self.disk, store=self.store, grace_time=GRACE_S, merge_min_files=2, **TINY_INDEX
        )

    def append(self, log, source, durability):
        queue = source.choice(QUEUES)
        body, keys = source.randbytes(48), [f"k{source.randrange(KEYS)}" for _ in range(2)]
        self.handed[queue].append([body, keys, False])
        log.append(topic=queue[0], queue_id=queue[1], body=body, keys=keys, durability=durability)
        self.handed[queue][-1][2] = durability == "disk"
        if durability == "disk":
            self.all_durable()

    def all_durable(self):
        for held in self.handed.values():
            for message in held:
                message[2] = True

    def forget(self, log, source):
        topic, key = source.choice("ab"), f"k{source.randrange(KEYS)}"
        self.begun = self.carrying(topic, key) - self.told
        log.forget(topic, key=key, now=source.random() < 0.3)
        self.told |= self.begun
        self.begun = set()
        self.all_durable()

    def carrying(self, topic, key):
        return {
            (*queue, offset)
            for queue, held in self.handed.items()
            for offset, (_, keys, _) in enumerate(held)
            if queue[0] == topic and key in keys
        }

    # -- the judge ---------------------------------------------------------------------------------

    def judge(self, log):
        """Compare everything that is read with what must be; return the places that are hidden."""
        hidden = set()
        for queue, held in self.handed.items():
            end = log.end_offset(*queue, level="received")
            assert end >= sum(durable for _, _, durable in held), (
                queue,
                "a durable message is gone",
            )
            del held[end:]
            found = list(log.reader(*queue, visible="received", max_count=5))
            assert [m.offset for m in found] == list(range(end))
            for message, (body, _, _) in zip(found, held, strict=True):
                if message.is_forgotten:
                    hidden.add((*queue, message.offset))
                assert message.body == (b"" if message.is_forgotten else body), "another's body"
        there = {(*queue, at) for queue, held in self.handed.items() for at in range(len(held))}
        assert self.told & there <= hidden, "shown again"
        assert hidden <= self.told | self.begun, "no request asked to forget it"
        loose = (self.begun & there) - self.told
        assert hidden & loose in (loose, set()), "some of a request"
        for topic in "ab":
            for key in (f"k{i}" for i in range(KEYS)):
                answer = log.get(topic, key=key, max_count=999, visible="received")
                assert answer.complete, answer.missing
                found = {(m.topic, m.queue_id, m.offset) for m in answer}
                assert found == (self.carrying(topic, key) - hidden), (topic, key)
        return hidden

    def see_through(self, log, hidden):
        """Go on with every request, and forget one key more with all files written anew."""
        log.run_compaction()
        for topic in "ab":
            log.forget(topic, key="k0", now=True)
            hidden |= self.carrying(topic, "k0")
        for name in log.forgettings():
            assert len(log.resume_forgetting(name).messages) > 0
        entries = {
            (e.topic, e.queue_id, e.offset)
            for topic in "ab"
            for i in range(KEYS)
            for e in log.index.query(topic, key=f"k{i}", max_count=999).entries
        }
        assert entries.isdisjoint(hidden), "an entry of a forgotten message"
        secrets = [self.handed[place[:2]][place[2]][0] for place in self.carried(hidden, "k0")]
        for _ in range(3):
            self.clock.advance(2 * GRACE_S)
            components_of(log).seams.clock.advance(2 * GRACE_S)
            log.run_compaction()
        left = [name for name, data in self.contents() if any(body in data for body in secrets)]
        assert left == [], "bodies are left"
        self.told, self.begun = hidden, set()
        assert self.judge(log) == hidden

    def carried(self, hidden, key):
        return [place for place in hidden if key in self.handed[place[:2]][place[2]][1]]

    def contents(self):
        for folder in ("unsealed", "sealed", "compacted", "uploaded", "quarantine"):
            for name in self.disk.list_folder(DATA / "log" / folder):
                with closing(self.disk.open(DATA / "log" / folder / name)) as file:
                    yield f"{folder}/{name}", file.read_at(0, file.size())
        for each in self.store.list(""):
            yield each.key, self.store.get(each.key)

    def survive(self, disk):
        """Open what is left on a disk, judge it, see it through, and judge it after one more opening."""
        after = World(disk, copy_of(self.store))
        after.handed = {queue: [list(m) for m in held] for queue, held in self.handed.items()}
        after.told, after.begun = set(self.told), set(self.begun)
        log = after.open()
        after.see_through(log, after.judge(log))
        log.close()
        log = after.open()
        after.judge(log)
        log.close()


def live(world, seed):
    """Open the log, do what the seed says, and close it."""
    source = random.Random(seed)
    log = world.open()
    for _ in range(STEPS):
        chosen = source.random()
        if chosen < 0.55:
            world.append(log, source, source.choice(("received", "os", "disk")))
        elif chosen < 0.7:
            world.forget(log, source)
        elif chosen < 0.8:
            log.roll()
        elif chosen < 0.92:
            log.run_compaction()
        else:
            log.close()
            world.all_durable()
            log = world.open()
    world.forget(log, source)
    log.close()
    world.all_durable()


@functools.cache
def calls_of(seed):
    """Return how many calls on the disk a life makes, which is judged once."""
    world = World()
    begun = len(world.disk.trace)
    live(world, seed)
    count = len(world.disk.trace) - begun
    world.survive(world.disk.restart())
    return count


def forget_around_a_stop(seed, states=4):
    """Kill a life at a call, cut the power there, or let the call fail; return how many ends were judged."""
    source = random.Random(seed)
    life = source.randrange(LIVES)
    call = source.randrange(1, calls_of(life) + 1)
    world = World()
    if source.random() < 0.3:
        number = source.choice((errno.EIO, errno.ENOSPC))
        world.disk.fail(ANY, call, number=number, for_ever=source.random() < 0.3)
        with contextlib.suppress(TierdexError):
            live(world, life)
        world.disk.heal()
        world.survive(world.disk.restart())
        return 1
    world.disk.crash_at(call, after=source.random() < 0.5)
    with contextlib.suppress(SimulatedCrash):
        live(world, life)
    survivors = [world.disk.restart(), *world.disk.crash_states(limit=states, seed=seed)]
    for survivor in survivors:
        world.survive(survivor)
    return len(survivors)
