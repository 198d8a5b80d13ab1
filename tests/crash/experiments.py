"""One interruption of one scenario, and what must hold after it. Shared by `make test` and torture."""

from __future__ import annotations

import random

from tests.crash.scenarios import SCENARIOS, make_world, run
from tierdex.testing.crash import CrashingStore
from tierdex.testing.simulated_disk import SimulatedCrash


def count_calls(name):
    """Return the calls on the disk and on the store that a scenario makes undisturbed."""
    world, site = _site(name, 0)
    world.crashing.calls = 0
    site.disk.trace.clear()
    run(site, SCENARIOS[name])
    calls = len(site.disk.trace), world.crashing.calls
    kinds = {}
    for call in site.disk.trace:
        kinds[call.kind] = kinds.get(call.kind, 0) + 1
    world.settle()
    world.close()
    return *calls, kinds


def _site(name, seed):
    world = make_world(seed, name)
    site = world.sites["alpha"]
    site.index.close()
    world.crashing = CrashingStore(world.store, on_crash=lambda: site.disk.crash_at(1))
    world.store, world.faulty = world.crashing, world.store
    world.heal = lambda: _heal(world, site)
    site.disk = site.disk.restart()
    site.open()
    return world, site


def _heal(world, site):
    world.faulty.chances = {}
    world.faulty._schedule.clear()
    world.faulty.end_outage()
    world.crashing.revive()
    site.disk.heal()


def kill(name, point, seed=0, *, in_store=False):
    """Kill the process around one call; return whether it got there."""
    world, site = _site(name, seed)
    reached = _run_to(world, site, name, point, in_store=in_store)
    world.crashing.revive()
    site.kill()
    world.settle()
    world.close()
    return reached


def cut_power(name, point, choices, seed=0, *, in_store=False):
    """Cut the power around one call; try `choices` states that the disk may be left in."""
    world, site = _site(name, seed)
    _run_to(world, site, name, point, in_store=in_store)
    world.crashing.revive()
    source = random.Random(seed * 7919 + point.nth * 2 + point.after)
    pending = len(site.disk.pending_effects())
    made = 0
    state = _State(world, site)
    for choice in _choices(pending, choices, source):
        state.restore()
        flags = iter(choice)
        site.cut_power(lambda effect, flags=flags: next(flags))
        if made % 4 == 0:
            world.settle()
            site.index.close()
        site.drop()
        made += 1
    return made


class _State:
    """The moment of the power cut, to go back to: disk, model, objects in the store."""

    def __init__(self, world, site):
        self.world, self.site = world, site
        site.drop()
        self.disk = site.disk
        model = site.model
        self.model = (
            list(model.puts),
            dict(model.acknowledged),
            set(model.gone),
            set(model.uncertain),
        )
        objects = world.objects._objects
        self.objects = (dict(objects.data), list(objects.keys))
        self.now = world.clock._now_ms, world.clock._monotonic_ms

    def restore(self):
        puts, acknowledged, gone, uncertain = self.model
        model = self.site.model
        model.puts, model.acknowledged = list(puts), dict(acknowledged)
        model.gone, model.uncertain = set(gone), set(uncertain)
        objects = self.world.objects._objects
        objects.data, objects.keys = dict(self.objects[0]), list(self.objects[1])
        self.world.clock._now_ms, self.world.clock._monotonic_ms = self.now
        self.site.disk = self.disk
        self.site.index = None


def _choices(pending, count, source):
    """Yield all choices where there are no more than `count`; else telling ones and samples."""
    if pending < 12 and 2**pending <= count:
        for bits in range(2**pending):
            yield [bool(bits >> n & 1) for n in range(pending)]
        return
    yield [False] * pending
    yield [True] * pending
    for _ in range(count - 2):
        density = source.random()
        yield [source.random() < density for _ in range(pending)]


def fail(name, kind, nth, number, *, for_ever=False, written_bytes=0, seed=0):
    """Let one system call fail; return whether the scenario made that many calls of the kind.

    Afterwards the disk is well again. The index must go on in the same process to everything
    published; and, in a second run, what was acknowledged `disk` must survive a power cut.
    """
    for ending in ("goes on", "power cut"):
        world, site = _site(name, seed)
        before = len(site.disk.trace)
        site.disk.fail(kind, nth, number, for_ever=for_ever, written_bytes=written_bytes)
        run(site, SCENARIOS[name])
        made = sum(call.kind == kind for call in site.disk.trace[before:])
        site.disk.heal()
        world.clock.advance(100)
        if ending == "goes on":
            if site.index is None:
                site.open()
            site.check_all()
            world.settle()
            assert all(info.state in ("uploaded", "unsealed") for info in site.index.files())
            world.close()
        else:
            site.cut_power(lambda effect: False)
            world.settle()
            world.close()
    return made >= nth


def _run_to(world, site, name, point, *, in_store):
    if in_store:
        world.crashing.crash_at(point)
    else:
        site.disk.crash_at(point.nth, after=point.after)
    try:
        run(site, SCENARIOS[name])
    except SimulatedCrash:
        return True
    return False
