"""The scenarios in a real process over real folders, which kills itself (SIGKILL) at one of their calls.

The child's last words are its model: what was put, and what was acknowledged. The parent opens what the
child left, without an operator, and compares.
"""

from __future__ import annotations

import functools
import pickle
import signal
import time
from pathlib import Path

from tests.crash.killing import KillingFileSystem, Trap, TrappedStore
from tests.crash.scenarios import ON_ONE_DISK, SCENARIOS, run, settings_of
from tests.simulation.crash import CrashPoint
from tests.simulation.scheduler import InlineExecutor
from tests.stateful.model import NodeModel
from tests.stateful.world import Site, World
from tests.torture.fork_server import server
from tests.torture.quick_folder import quick_folder
from tierdex import Index
from tierdex.clock import ManualClock
from tierdex.ids import SeededIds
from tierdex.storage_layer.local import LocalStore


class RealSite(Site):
    """A node in a folder of this machine."""

    def open(self):
        world = self.world
        self.disk = KillingFileSystem(world.disk_trap)
        self.opened += 1
        self.index = Index.open(
            world.folder / "data", store=world.store, clock=world.clock, node=self.name,
            ids=SeededIds(world.seed * 1_000_003 + world.life * 1000 + self.opened),
            filesystem=self.disk, executor=InlineExecutor(), **world.settings,
        )  # fmt: skip


class RealWorld(World):
    """One node and its store, both in folders of this machine. Each process is another `life`."""

    def __init__(self, folder, name, seed, now_ms, life=0):
        super().__init__(seed, names=(), **settings_of(name))
        self.folder, self.life = Path(folder), life
        self.clock = ManualClock(now_ms)
        self.disk_trap, self.store_trap = Trap(), Trap()
        self.objects = LocalStore(
            self.folder / "store", clock=self.clock, ids=SeededIds(seed * 1000 + life)
        )
        self.store = TrappedStore(self.objects, self.store_trap)

    def open_site(self):
        self.sites["alpha"] = RealSite(self, "alpha")
        return self.sites["alpha"]

    def heal(self):
        """Nothing of this machine is ever unwell."""


def run_until_killed(folder, name, seed, now_ms, nth, after, in_store, telling):
    """Run a scenario; at the nth call on the disk or the store tell the model and die."""

    def last_words():
        site = world.sites.get("alpha")
        model = site.model if site else NodeModel("alpha")
        telling.send_bytes(pickle.dumps((model, world.clock.now_ms())))

    world = RealWorld(folder, name, seed, now_ms)
    trap = world.store_trap if in_store else world.disk_trap
    trap.last_words = last_words
    trap.set(nth, after=after)
    run(world.open_site(), SCENARIOS[name])


@functools.cache
def count_real_calls(name):
    """Return the calls on the disk and on the store, the first opening's with them."""
    with quick_folder() as folder:
        world = RealWorld(folder, name, 0, time.time_ns() // 1_000_000)
        run(world.open_site(), SCENARIOS[name])
        counts = world.disk_trap.calls, world.store_trap.calls
        world.close()
    return counts


def every_real_point():
    """Return (scenario, crash point, whether in the store) for both sides of every call."""
    return [
        (name, CrashPoint(nth, after), in_store)
        for name in SCENARIOS
        if name not in ON_ONE_DISK  # the same calls
        for in_store, count in zip((False, True), count_real_calls(name), strict=True)
        for nth in range(1, count + 1)
        for after in (False, True)
    ]


def kill_at_call(name, point, seed=0, *, in_store=False):
    """Let a process run a scenario and die at one call; look. Raises AssertionError if it lived on."""
    with quick_folder() as folder:
        arguments = folder, name, seed, time.time_ns() // 1_000_000, *point, in_store
        with server().fork("tests.crash.real_process:run_until_killed", *arguments) as child:
            told = list(child.all_told())
            assert child.wait() == -signal.SIGKILL, f"{name} has no call {point.nth}"
        model, now_ms = pickle.loads(told[-1])
        world = RealWorld(folder, name, seed, now_ms, life=1)
        site = world.open_site()
        site.model = model
        site.learn_survivors("os")
        world.settle()
        world.close()
