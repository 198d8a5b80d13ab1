"""Owners of one node in real processes, stopped (SIGSTOP) at any moment, and going on when others took over.

::

    older owners, a process each:  open, put, publish ... stopped .............. go on -> FencedError
    newest owner, this process:                            open, publish, collect garbage ...

A process is stopped from outside at a random moment, or stops itself at a random call on its disk or on
the store: within a seal, an upload, a commit, its own opening. Clocks disagree by hours, and the newest
owner's runs ahead, so that garbage is collected and numbers are buried while the others stand still.
"""

from __future__ import annotations

import json
import random
import signal
import time
from pathlib import Path

from tests.crash.killing import KillingFileSystem, Trap, TrappedStore
from tests.patience import PATIENCE_S
from tests.simulation.scheduler import InlineExecutor
from tests.torture.fork_server import server
from tests.torture.history import History
from tests.torture.quick_folder import quick_folder
from tierdex import Index
from tierdex.clock import ManualClock, SystemClock
from tierdex.compactor.upload import Target
from tierdex.errors import ConflictError, FencedError, FloorError
from tierdex.lifecycle.manifests.forgotten import NOTHING_FORGOTTEN
from tierdex.pipeline.jobs.publishing import JobNode
from tierdex.pipeline.merging.merge_task import merge_group
from tierdex.storage_layer.local import LocalStore
from tierdex.testing.components import components_of

SETTINGS = {
    "slot_count": 64, "item_capacity": 400, "disk_reserve_bytes": 0, "merge_min_files": 3,
    "merge_below_items": 1000, "compact_interval": 0.005, "refresh_interval": 0.05,
    "remote_interval": 0.0, "checkpoint_every": 3, "node": "alpha",
}  # fmt: skip
_HOURS_MS = (0, 0, -3_600_000, 7_200_000, 90_000_000)
_APART = 1_000_000_000  # between the offsets of two owners


class SkewedClock(SystemClock):
    """The machine's clock, wrong by a constant."""

    def __init__(self, skew_ms):
        self._skew_ms = skew_ms

    def now_ms(self):
        return super().now_ms() + self._skew_ms

    def now_s(self):
        return super().now_s() + self._skew_ms / 1000


def put(index, owner, first, count):
    numbers = range(first, first + count)
    index.put_batch(
        topic="t", keys=[f"{owner}-{n}" for n in numbers], queue_id=0, size=1,
        offset=[owner * _APART + n for n in numbers], timestamp=5,
    )  # fmt: skip


# -- the older owner, in its process --------------------------------------------------------------


def own_until_fenced(folder, owner, seed, stop_at, after, in_store, skew_ms, telling):
    """Own the node, tell what is acknowledged; stop at the nth call; end when another one owns it."""

    def tell(**what):
        telling.send_bytes(json.dumps(what).encode())

    traps = Trap(signal.SIGSTOP), Trap(signal.SIGSTOP)
    traps[in_store].set(stop_at, after=after)
    clock, source = SkewedClock(skew_ms), random.Random(seed)
    store = TrappedStore(LocalStore(Path(folder, "store"), clock=clock), traps[True])
    index = Index.open(
        Path(folder, str(owner)), store=store, clock=clock,
        filesystem=KillingFileSystem(traps[False]), takeover=True, **SETTINGS,
    )  # fmt: skip
    number = 0
    try:
        while True:
            try:
                number = _live(index, owner, number, source, tell)
            except (ConflictError, FloorError):
                continue  # lost a race that may be run again
    except FencedError:
        traps[in_store].set(0, after=False)
        tell(fenced=True)
    if number:
        answer = index.query("t", key=f"{owner}-{number - 1}")
        found = [entry.offset for entry in answer.entries]
        state = answer, index.files()
        assert found == [owner * _APART + number - 1] or not answer.complete, (number, state)
    index.close()


def _live(index, owner, number, source, tell):
    count = source.choice((1, 10, 60))
    put(index, owner, number, count)
    tell(acknowledged=number + count)
    chosen = source.random()
    try:
        if chosen < 0.4:
            index.roll()
        elif chosen < 0.6:
            index.run_compaction()
        elif chosen < 0.7:
            index.flush("disk")
    except (ConflictError, FloorError):
        pass  # lost a race that may be run again
    return number + count


class Zombie:
    """An older owner as this process sees it."""

    def __init__(
        self, folder, owner, source, run="tests.torture.stopped_owners:own_until_fenced", *more
    ):
        self.owner, self.acknowledged, self.fenced, self.told = owner, 0, False, {}
        in_store = source.random() < 0.5
        stops_itself = source.random() < 0.75
        nth = source.randrange(1, 150 if in_store else 500) if stops_itself else 0
        self.child = server().fork(
            run, folder, owner, source.randrange(1 << 30), nth, source.random() < 0.5, in_store,
            source.choice(_HOURS_MS), *more,
        )  # fmt: skip
        self._deadline = time.monotonic() + (1.0 if nth else source.uniform(0, 0.15))

    def wait_stopped(self):
        while time.monotonic() < self._deadline and not self.child.is_stopped():
            self.listen(0.003)
        self.stop()

    def stop(self):
        if self.child.pid is not None and not self.child.is_stopped():
            self.child.signal(signal.SIGSTOP)
            self.child.wait_stopped()

    def go_on(self):
        if self.child.pid is not None:
            self.child.signal(signal.SIGCONT)

    def listen(self, timeout=0.0):
        """Take what it tells; at its end make sure that it was fenced."""
        try:
            while not self.fenced and self.child.tells.poll(timeout):
                self.told = json.loads(self.child.tells.recv_bytes())
                self.acknowledged = self.told.get("acknowledged", self.acknowledged)
                self.fenced = "fenced" in self.told
        except EOFError:
            raise AssertionError(f"owner {self.owner} ended without being fenced") from None

    def end(self):
        """Let the process end: by itself when it was fenced, else by a kill."""
        if not self.fenced:
            self.child.signal(signal.SIGKILL)
            for told in self.child.all_told():
                self.acknowledged = json.loads(told)["acknowledged"]
        status = 0 if self.child.pid is None else self.child.wait()
        assert status == (0 if self.fenced else -signal.SIGKILL), f"owner {self.owner}: {status}"


# -- the newest owner, in this process ------------------------------------------------------------


class _Newest:
    """The owner that took over, or tried to."""

    def __init__(self, folder, owner, source):
        self.owner, self.source, self.acknowledged, self.fenced = owner, source, 0, False
        self.clock = ManualClock(time.time_ns() // 1_000_000 + source.choice(_HOURS_MS))
        self.store = LocalStore(folder / "store")
        self.index = Index.open(
            folder / str(owner), store=self.store, clock=self.clock, executor=InlineExecutor(),
            background=False, takeover=True, **SETTINGS,
        )  # fmt: skip

    def work(self):
        """Put, publish, merge; let hours pass; collect garbage."""
        try:
            put(self.index, self.owner, self.acknowledged, 10)
            self.acknowledged += 10
            self.index.roll()
            self.index.run_compaction()
        except (ConflictError, FloorError):
            pass  # lost a race that may be run again
        except FencedError:
            self.fenced = True
        self.clock.advance(self.source.choice((0, 40, 4000, 9000)))

    def settle(self):
        """Be the last owner: collect everything that is garbage; return what is listed now."""
        self.clock.advance(200_000)  # beyond the time of all who dropped something
        for _ in range(5):
            self.clock.advance(9000)
            self.index.run_compaction(yes=True)  # of few objects many are orphans
        return components_of(self.index).writing.compactor.components.claim.get().refresh()


def _run_job(store, state, source):
    """A job merges some of the node's files into a shared node, as a Spark job does."""
    rows = sorted(state.files.values(), key=lambda row: row.number)
    first = source.randrange(len(rows) - 1)
    group = [("alpha", row) for row in rows[first : first + source.randrange(2, 5)]]
    job = JobNode(store, "jobs")
    to = Target("jobs", job.shared.state.number, 16, NOTHING_FORGOTTEN)
    merged = merge_group(store, group, to)
    job.merge([(merged, ())])


# -- one case -------------------------------------------------------------------------------------


def take_over_from_stopped_owners(seed):
    """Stop one or two owners, take over, let them go on; return how many takeovers that were."""
    source = random.Random(seed)
    with quick_folder() as folder:
        history = History(LocalStore(folder / "store"), "alpha")
        zombies = []
        try:
            for owner in range(source.choice((1, 1, 2))):
                zombies.append(Zombie(folder, owner, source))
                zombies[-1].wait_stopped()
            newest = _Newest(folder, len(zombies), source)
            _take_over(history, newest, zombies, source)
            for zombie in zombies:
                zombie.end()
            _check_everything(folder, history, newest, zombies)
        finally:
            for zombie in zombies:
                zombie.child.__exit__()
    return len(zombies)


def _take_over(history, newest, zombies, source):
    """Work while they stand still, then beside them, until only one owner is left."""
    for _ in range(source.randrange(1, 6)):
        newest.work()
        history.look()
        state = components_of(newest.index).writing.compactor.components.claim.get().state
        if len(state.files) > 1 and source.random() < 0.3:
            _run_job(newest.store, state, source)
        history.check_objects()
    source.shuffle(zombies)
    for zombie in zombies:
        zombie.go_on()
        if source.random() < 0.3:  # not for long
            zombie.listen(source.uniform(0, 0.02))
            zombie.stop()
            newest.work()
            zombie.go_on()
    deadline = time.monotonic() + PATIENCE_S
    while sum(not owner.fenced for owner in (newest, *zombies)) > 1:
        assert time.monotonic() < deadline, "two owners go on"
        if not newest.fenced:
            newest.work()
        history.look()
        for zombie in zombies:
            if zombie.child.is_stopped():  # it came to its call only now
                zombie.go_on()
            zombie.listen(0.01)


def _check_everything(folder, history, newest, zombies):
    """Every folder's files are found, adopted where their owner was fenced; the history never forked."""
    history.look()
    if newest.fenced:
        newest.index.close()
    for owner in (newest, *zombies):
        if owner.fenced:
            settings = SETTINGS | {"node": f"beta.{owner.owner}", "background": False}
            path = folder / str(owner.owner)
            with Index.open(path, store=newest.store, adopt=True, **settings) as index:
                index.roll()
                index.run_compaction()
    last = _Newest(folder, 9, newest.source) if newest.fenced else newest
    for zombie in zombies:
        if not zombie.fenced:  # it was the last to open: its folder goes on as the node's
            last.index.close()
            last = _Newest(folder, zombie.owner, newest.source)
            last.index.roll()
    listed = {row.object_key for row in last.settle().files.values()}
    stored = {found.key for found in newest.store.list("nodes/alpha/files/")}
    assert listed == stored, (listed - stored, stored - listed)
    history.look()
    history.check()
    history.check_objects()
    last.index.close()
    with Index.open(store=newest.store, background=False, executor=InlineExecutor()) as reader:
        for owner in (newest, *zombies):
            answers = reader.query_batch(
                [{"topic": "t", "key": f"{owner.owner}-{n}"} for n in range(owner.acknowledged)]
            )
            for n, answer in enumerate(answers):
                assert answer.complete, answer.missing
                found = [entry.offset for entry in answer.entries]
                assert found == [owner.owner * _APART + n], (owner.owner, n, found)
