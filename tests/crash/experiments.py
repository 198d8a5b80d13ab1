"""One interruption of one scenario, and what must hold after it. Shared by `make test` and torture."""

from __future__ import annotations

import errno
import functools
import random
from typing import NamedTuple

from tests.crash.crash_site import CrashWorld
from tests.crash.scenarios import ON_ONE_DISK, SCENARIOS, run, settings_of
from tests.simulation.simulated_disk import SimulatedCrash

SETTLE_EVERY = 8  # states after a power cut of which one is also brought to the end of its life
CUT_AGAIN_EVERY = 4  # states in which the power fails once more while the index recovers


@functools.cache
def count_calls(name):
    """Return the calls on the disk and on the store that a scenario makes, and those of each kind."""
    world, site = _site(name, 0)
    run(site, SCENARIOS[name])
    kinds = {}
    for call in site.disk.trace:
        kinds[call.kind] = kinds.get(call.kind, 0) + 1
    calls = len(site.disk.trace), world.crashing.calls
    world.settle()
    world.close()
    return *calls, kinds


def _site(name, seed):
    """Return a world and its site, about to be opened on an empty disk."""
    world = CrashWorld(seed, on_one_disk=name in ON_ONE_DISK, **settings_of(name))
    return world, world.sites["alpha"]


# -- power cuts -----------------------------------------------------------------------------------


def cut_power(name, point, choices, seed=0, *, in_store=False, older_stores=False):
    """Cut the power around one call; try the states that the disk may be left in, `choices` at most.

    With `older_stores` a mapped page may also be left as it was at any call before.
    """
    world, site = _site(name, seed)
    if older_stores:
        site.disk.note_stores_at_every_call()
    _run_to(world, site, name, point, in_store=in_store)
    world.crashing.revive()
    source = random.Random(f"{seed} {name} {point}")
    state = _State(world, site)
    made = 0
    for choice in _choices(len(site.disk.pending_effects()), choices, source):
        state.restore()
        _cut(site, choice)
        if made % CUT_AGAIN_EVERY == 1:
            _cut_while_recovering(site, source)
        site.open()
        site.learn_survivors("disk")
        if made % SETTLE_EVERY == 0:
            world.settle()
            site.index.close()
        site.drop()
        made += 1
    return made


def _cut(site, choice):
    flags = iter(choice)
    site.disk = site.disk.crash(lambda effect: next(flags))


def _cut_while_recovering(site, source):
    """Open, and cut the power again at one of the calls, if it comes to that."""
    site.disk.crash_at(source.randrange(1, 40), after=source.random() < 0.5)
    try:
        site.open()
    except SimulatedCrash:
        pass
    else:
        site.drop()
    density = source.choice((0.0, source.random(), 1.0))
    site.disk = site.disk.crash(lambda effect: source.random() < density)


class _State:
    """The moment of the power cut, to go back to: disk, model, objects in the store, time."""

    def __init__(self, world, site):
        self.world, self.site = world, site
        site.drop()
        self.disk = site.disk
        model = site.model
        self.model = list(model.puts), dict(model.acknowledged), set(model.gone)
        self.doubts = set(model.uncertain), list(model.leaving), list(model.dropped)
        objects = None if world.on_one_disk else world.objects.contents
        self.objects = objects and (dict(objects.data), list(objects.keys))
        self.now = world.clock._now_ms, world.clock._monotonic_ms

    def restore(self):
        puts, acknowledged, gone = self.model
        model = self.site.model
        model.puts, model.acknowledged, model.gone = list(puts), dict(acknowledged), set(gone)
        uncertain, leaving, dropped = self.doubts
        model.uncertain, model.leaving, model.dropped = set(uncertain), list(leaving), list(dropped)
        if self.objects is not None:  # else they are on the disk
            objects = self.world.objects.contents
            objects.data, objects.keys = dict(self.objects[0]), list(self.objects[1])
        self.world.clock._now_ms, self.world.clock._monotonic_ms = self.now
        self.site.disk = self.disk
        self.site.index = None


def _choices(pending, count, source):
    """Yield different choices: all where there are no more than `count`, else telling ones and samples."""
    if pending < 16 and 2**pending <= count:
        for bits in range(2**pending):
            yield [bool(bits >> n & 1) for n in range(pending)]
        return
    seen = set()
    for choice in _sampled_choices(pending, source):
        key = sum(keep << n for n, keep in enumerate(choice))
        if key not in seen:
            seen.add(key)
            yield choice
        if len(seen) == count:
            return


def _sampled_choices(pending, source):
    """Yield none, all, and for ever: a prefix, one alone, one missing, any density of all."""
    yield [False] * pending
    yield [True] * pending
    while True:
        one, density = source.randrange(pending), source.random()
        yield [n <= one for n in range(pending)]
        yield [n != one for n in range(pending)]
        yield [source.random() < density for _ in range(pending)]
        yield [n == one for n in range(pending)]
        yield [source.random() < density for _ in range(pending)]


# -- failing calls --------------------------------------------------------------------------------


class Failure(NamedTuple):
    """The nth call of a kind in a scenario fails; a write writes some bytes of it before."""

    scenario: str
    kind: str
    nth: int
    number: int
    for_ever: bool
    written_bytes: int = 0


@functools.cache
def every_failure(name):
    """Return all of a scenario: each call, EIO and ENOSPC, once and for ever, short writes too."""
    return [
        Failure(name, kind, nth, number, for_ever, written)
        for kind, count in sorted(count_calls(name)[2].items())
        for nth in range(1, count + 1)
        for number in (errno.EIO, errno.ENOSPC)
        for for_ever in (False, True)
        for written in ((0, 1, 512) if kind == "write" else (0,))
    ]


def alternating_failures(name):
    """Return two of each call's: once with one error and for ever with the other, in turns."""
    return [
        Failure(name, kind, nth, (errno.EIO, errno.ENOSPC)[(nth + for_ever) % 2], for_ever, nth % 100)
        for kind, count in sorted(count_calls(name)[2].items())
        for nth in range(1, count + 1)
        for for_ever in (False, True)
    ]  # fmt: skip


def fail(failure, seed=0):
    """Let one system call fail, and go on.

    Afterwards the disk is well again. The index must go on in the same process to everything
    published; and, in a second run, what was acknowledged `disk` must survive a power cut.
    """
    for ending in (_go_on, _cut_power_after):
        world, site = _site(failure.scenario, seed)
        site.disk.fail(
            failure.kind, failure.nth, failure.number,
            for_ever=failure.for_ever, written_bytes=failure.written_bytes,
        )  # fmt: skip
        run(site, SCENARIOS[failure.scenario])
        made = sum(call.kind == failure.kind for call in site.disk.trace)
        assert made >= failure.nth, f"the scenario makes no such call: {failure}"
        site.disk.heal()
        world.clock.advance(100)
        ending(world, site, failure)
        world.close()


def _go_on(world, site, failure):
    if site.index is None:
        site.open()
    if failure.nth % 2:  # settle compares, too, after everything was published
        site.index.refresh()  # a store on the same disk may not have been readable before
        site.check_all()
    world.settle()
    assert all(info.state in ("uploaded", "unsealed") for info in site.index.files())


def _cut_power_after(world, site, failure):
    site.cut_power(lambda effect: False)
    if failure.nth % SETTLE_EVERY == 0:
        world.settle()


# -- what both share ------------------------------------------------------------------------------


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
