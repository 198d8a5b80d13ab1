"""Lives of a message log with its index: on a simulated disk by a seed, and in real processes until killed.

What `tests.log_service.keyed_world` judges must hold after each: what was acknowledged is there, offsets are
0 .. n-1, what survives is a prefix of each queue, every key finds just the messages that carry it, and no
entry of the index names an offset that the log does not hold; a held message is delivered once, in its turn.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import random
import time

import pyarrow as pa

from tests.crash.killing import KillingFileSystem
from tests.log_service.keyed_world import KeyedWorld
from tests.simulation.simulated_disk import ANY, SimulatedCrash
from tests.torture.writers import kill_in_turn
from tierdex import MessageLog
from tierdex.clock import SystemClock
from tierdex.errors import UnavailableError
from tierdex.log_service.levels import Level

QUEUES = [("a", 0), ("a", 1), ("b", 7), ("größe", 2)]
LEVELS = ("received", "os", "os", "disk")
LIVES = 40  # different ones: a case takes one of them, and a call of it
STEPS = 30

# -- on a simulated disk ------------------------------------------------------------------------------------


def live(world: KeyedWorld, seed: int) -> None:
    """Open the log, do what the seed says, and close it."""
    source = random.Random(seed)
    world.settings = {"merge_min_files": 2, "keep_local_bytes": (seed % 2) << 16}
    log = world.open()
    for step in range(STEPS):
        chosen = source.random()
        if chosen < 0.1:
            delay = source.choice((1, 1, 40, 90_000, 4_000_000))
            world.hold(log, delay, b"held %d" % step, source.choice(LEVELS))
        elif chosen < 0.2:
            world.advance(log, source.choice((1, 50, 50, 3_600_000)))
            log.deliver_due()
        elif chosen < 0.6:
            keys = [f"k{source.randrange(5)}" for _ in range(source.randrange(3))]
            body = b"%d " % step + b"x" * source.choice((0, 10, 2000, 7000))
            name = f"id-{source.randrange(9)}" if source.random() < 0.3 else None
            level = source.choice(LEVELS)
            world.append(log, source.choice(QUEUES), body, sorted(set(keys)), name, level)
        elif chosen < 0.68:
            log.roll()
        elif chosen < 0.76:
            log.run_compaction()
        elif chosen < 0.78:
            world.expire(log)
        elif chosen < 0.83:
            log.index.roll()
        elif chosen < 0.88:
            log.get("a", key="k1")
            log.index.flush("disk")  # before the log: recovery cuts it
        elif chosen < 0.94:
            log.flush("disk")
            world.acknowledge(Level.DISK)
        else:
            log.close()
            world.acknowledge(Level.DISK)
            log = world.open()
    log.close()
    world.acknowledge(Level.DISK)


@functools.cache
def calls_of(seed: int) -> int:
    """Return how many calls on the disk a life makes, which is judged once."""
    world = KeyedWorld()
    begun = len(world.disk.trace)
    live(world, seed)
    count = len(world.disk.trace) - begun
    world.judge(world.disk, Level.DISK)
    return count


def cut_power(seed: int, states: int = 8) -> int:
    """Stop a life around a call; judge what a kill and power cuts leave; return how many states."""
    source = random.Random(seed)
    life = source.randrange(LIVES)
    world = KeyedWorld()
    world.disk.crash_at(source.randrange(1, calls_of(life) + 1), after=source.random() < 0.5)
    with contextlib.suppress(SimulatedCrash):
        live(world, life)
    tried = 0
    for survivor in world.disk.crash_states(limit=states, seed=seed):
        world.judge(survivor, Level.DISK)
        tried += 1
    world.judge(world.disk.restart(), Level.OS)
    return tried + 1


def fail_call(seed: int) -> int:
    """Let a call of a life fail, once or from there on; judge what a kill leaves then."""
    source = random.Random(seed)
    life = source.randrange(LIVES)
    world = KeyedWorld()
    world.disk.fail(
        ANY, source.randrange(1, calls_of(life) + 1),
        number=source.choice((errno.EIO, errno.ENOSPC)), for_ever=source.random() < 0.3,
    )  # fmt: skip
    with contextlib.suppress(UnavailableError):
        live(world, life)
    world.disk.heal()
    world.judge(world.disk.restart(), Level.OS)
    return 1


# -- in real processes --------------------------------------------------------------------------------------

SETTINGS = {
    "journal_bytes": 288 << 10, "max_message_bytes": 8 << 10, "item_capacity": 500, "slot_count": 256,
    "disk_reserve_bytes": 0, "compact_interval": 0.005, "node": "n", "merge_min_files": 2,
}  # fmt: skip
_QUEUE_COUNT = 3
_EXPIRING = 0.03  # how often a writer lets the older half of its files go


def append_until_killed(folder, first, seed, nth, telling):
    """Append message `n` to queue n % 3 under key `K<n>`, from `first` on; tell what `os` acknowledged.

    Together with each goes a message of the topic `timed` that is delivered soon after.

    At the `nth` call on the file system, of whichever thread, the process kills itself (0: never).
    """
    source = random.Random(seed)
    filesystem = KillingFileSystem()
    filesystem.kill_at(nth, after=source.random() < 0.5)
    log = MessageLog.open(folder, filesystem=filesystem, **SETTINGS)
    number = first
    telling.send_bytes(number.to_bytes(8, "little"))
    while True:
        numbers = range(number, number + source.choice((1, 7, 60, 200)))
        due = SystemClock().now_ms() + source.choice((0, 3, 30))
        count = len(numbers)
        log.append_batch(  # of one stage, so that both topics survive together
            topic=pa.array(["t"] * count + ["timed"] * count),
            queue_id=[n % _QUEUE_COUNT for n in numbers] + [0] * count,
            body=[_body(n) for n in numbers] + [b"%d" % n for n in numbers],
            keys=pa.array([f"K{n}" for n in numbers] * 2),
            deliver_at=[None] * count + [due + n % 5 for n in numbers],
            durability=source.choice(("os", "disk")),
        )  # fmt: skip
        number = numbers.stop
        telling.send_bytes(number.to_bytes(8, "little"))
        if source.random() < 0.05:
            log.roll()
        if source.random() < _EXPIRING:
            sealed = sorted(file.sealed_at for file in log.files() if file.sealed_at is not None)
            if sealed:
                log.expire(before=sealed[len(sealed) // 2])


def _body(n: int) -> bytes:
    return b"%d " % n * 20


def kill_writers(rounds: int, seed: int) -> int:
    """Kill one writer after another of the same folder; return how many that were."""
    return kill_in_turn("tests.torture.log_life:append_until_killed", check_survivors, rounds, seed)


def check_survivors(folder, acknowledged):
    """Open the folder; return m when messages 0 .. m-1 are there, each in its place and under its key."""
    source = random.Random(acknowledged)
    with MessageLog.open(folder, **{**SETTINGS, "background": False}) as log:
        ends = [log.end_offset("t", queue) for queue in range(_QUEUE_COUNT)]
        count = sum(ends)
        assert ends == [(count + 2 - queue) // 3 for queue in range(3)], ends
        assert count >= acknowledged, f"{count} messages, {acknowledged} were acknowledged"
        begins = [log.begin_offset("t", queue) for queue in range(_QUEUE_COUNT)]
        for queue, begin in enumerate(begins):
            found = [message.body for message in log.reader("t", queue)]
            assert found == [_body(n) for n in range(queue, count, 3)][begin:]
        asked = {source.randrange(count) for _ in range(30)} | {count - 1} if count else set()
        for n in asked:
            answer, place = log.get("t", key=f"K{n}"), ("t", n % 3, n // 3)
            is_gone = place[2] < begins[n % 3]
            wanted = ([], (place,)) if is_gone else ([_body(n)], ())
            assert answer.complete, n
            assert ([m.body for m in answer], answer.expired) == wanted, n
        while log.timers():
            log.deliver_due()
            time.sleep(0.002)
        timed = sorted(int(message.body) for message in log.reader("timed", 0))
        begin = log.begin_offset("timed", 0)  # what was delivered before may have expired
        assert len(set(timed)) == len(timed) == count - begin, "a held message came twice, or never"
        for n in range(count, count + 5):
            assert log.index.query("t", key=f"K{n}").entries == [], "an entry without its message"
        if source.random() < 0.3:
            log.roll()
            log.run_compaction()
        return count
