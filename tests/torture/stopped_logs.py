"""Two owners of one message log in real processes: the older one stopped (SIGSTOP), and going on later.

::

    older owner, a process     appends, publishes ... stopped .................... goes on -> FencedError
    newest owner, this one                          takeover="lossy", appends .............. goes on
    its reader of the store    no message of the older owner's that was not published before the claim
    the older one's folder     adopted: all that it acknowledged and no other has, under its keys

The older owner is stopped from outside at a random moment, or stops itself at a random call on its disk or
on the store: within a seal, an upload, a commit, its own opening. What it tells is acknowledged; when it is
fenced it tells how many messages it alone has.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from pathlib import Path

from tests.crash.killing import KillingFileSystem, Trap, TrappedStore
from tests.patience import PATIENCE_S
from tests.torture.history import History
from tests.torture.quick_folder import quick_folder
from tests.torture.stopped_owners import Zombie
from tierdex import MessageLog
from tierdex.errors import FencedError, OwnershipError
from tierdex.storage_layer.open import open_store

SETTINGS = {
    "node": "n", "journal_bytes": 288 << 10, "max_message_bytes": 8 << 10, "disk_reserve_bytes": 0,
    "item_capacity": 500, "slot_count": 256, "merge_min_files": 2, "compact_interval": 0.01,
    "refresh_interval": 0.05, "remote_interval": 0.0, "remote_timeout": PATIENCE_S, "checkpoint_every": 4,
}  # fmt: skip
TOPIC, QUEUES = "t", 3
_MOST = 20_000  # messages of one owner: it ends, for this process does not hurry


def body_of(owner, number):
    return b"%d-%d " % (owner, number) * 12


def append(log, owner, number, count):
    """Append messages number .. number + count - 1 of an owner, each to queue n % QUEUES."""
    numbers = range(number, number + count)
    return log.append_batch(
        topic=TOPIC, queue_id=[n % QUEUES for n in numbers], body=[body_of(owner, n) for n in numbers],
        keys=[[f"{owner}-{n}"] for n in numbers], durability="disk",
    )  # fmt: skip


# -- the older owner, in its process ------------------------------------------------------------------------


def own_until_fenced(
    folder, owner, seed, stop_at, after, in_store, _skew_ms, url, environment, telling
):
    """Own the log, tell what is acknowledged; stop at the nth call; end when another one owns it."""
    os.environ.update(environment)

    def tell(**what):
        telling.send_bytes(json.dumps(what).encode())

    traps = Trap(signal.SIGSTOP), Trap(signal.SIGSTOP)
    traps[in_store].set(stop_at, after=after)
    source = random.Random(seed)
    try:
        log = MessageLog.open(
            Path(folder, str(owner)), store=TrappedStore(open_store(url), traps[True]),
            filesystem=KillingFileSystem(traps[False]), **SETTINGS,
        )  # fmt: skip
    except OwnershipError as error:  # it came too late
        tell(fenced=str(error), alone=0, ends=[0] * QUEUES)
        return
    number = 0
    try:
        while True:
            count = source.choice((1, 10, 60))
            append(log, owner, number, count)
            number += count
            tell(acknowledged=number)
            if source.random() < 0.1:
                log.roll()
            if number > _MOST:
                time.sleep(0.01)
    except FencedError as error:
        traps[in_store].set(0, after=False)
        ends = [log.end_offset(TOPIC, queue) for queue in range(QUEUES)]
        tell(acknowledged=number, fenced=str(error), alone=log.unpublished_count(), ends=ends)
    for queue in range(QUEUES):  # it only answers
        answer = log.read(TOPIC, queue, max(0, ends[queue] - 1))
        assert answer.end_offset == ends[queue], (answer, ends)
        assert not answer.complete or len(answer) == bool(ends[queue]), (answer, ends)
    log.close()


# -- one case -----------------------------------------------------------------------------------------------


def take_over_from_a_stopped_log(seed, url=None):
    """Stop an owner, take its log over, let it go on, adopt its folder; return 1."""
    source = random.Random(seed)
    with quick_folder() as folder:
        url = url or str(folder / "store")
        environment = {name: os.environ[name] for name in os.environ if name.startswith("AWS_")}
        zombie = Zombie(
            folder, 1, source, "tests.torture.stopped_logs:own_until_fenced", url, environment
        )
        with zombie.child:
            zombie.wait_stopped()
            store = open_store(url)
            begins, count = _go_on_elsewhere(folder, store, zombie, source)
            zombie.end()
        told = zombie.told
        for queue_id, end in enumerate(told["ends"]):
            assert end >= len(range(queue_id, told.get("acknowledged", 0), QUEUES)), told
        alone = sum(max(0, end - begin) for begin, end in zip(begins, told["ends"], strict=True))
        assert told["alone"] == alone, (told, begins)
        assert (f"{alone} messages" in told["fenced"]) == (alone > 0), told
        for adopts in (False, True):
            if adopts and alone:
                _adopt(folder, store, begins, told)
            with MessageLog.open(store=store, node="n", read_only=True) as reader:
                _check(reader, [0] * QUEUES, begins, count)
        store.close()
    return 1


def _go_on_elsewhere(folder, store, zombie, source):
    """Take the log over and append beside the older owner; return where it began, and how many it took."""
    history = History(store, "n")
    with MessageLog.open(folder / "2", store=store, takeover="lossy", **SETTINGS) as log:
        begins = [log.end_offset(TOPIC, queue) for queue in range(QUEUES)]
        number, deadline = 0, time.monotonic() + PATIENCE_S
        for _ in range(source.randrange(4)):
            number += _live(log, number, source)
        zombie.go_on()
        while not zombie.fenced:
            assert time.monotonic() < deadline, "two owners go on"
            number += _live(log, number, source)
            history.look()
            if zombie.child.is_stopped():  # it came to its call only now
                zombie.go_on()
            zombie.listen(0.01)
        log.flush("remote")
        history.look()
        history.check()  # no commit of an older epoch behind one of a newer
        history.check_objects()
        _check(log, [0] * QUEUES, begins, number)
    return begins, number


def _live(log, number, source):
    count = source.choice((1, 7, 30))
    append(log, 2, number, count)
    if source.random() < 0.3:
        log.roll()
    return count


def _check(log, first, begins, count):
    """Both owners' messages are where they must be: the older one's below `begins`, and no other."""
    for queue_id, begin in enumerate(begins):
        numbers = range(queue_id, count, QUEUES)
        wanted = [body_of(1, n * QUEUES + queue_id) for n in range(first[queue_id], begin)]
        wanted += [body_of(2, n) for n in numbers]
        found = [message.body for message in log.reader(TOPIC, queue_id, first[queue_id])]
        assert found == wanted, (queue_id, len(found), len(wanted))
        for owner, number in [(2, n) for n in numbers[-2:]] + [(1, begin * QUEUES + queue_id)]:
            answer = log.get(TOPIC, key=f"{owner}-{number}")
            assert answer.complete, answer.missing
            own = [body_of(2, number)] if owner == 2 else []
            assert [message.body for message in answer] == own, (owner, number)


def _adopt(folder, store, begins, told):
    """Publish what the older owner alone has; each of its messages is there, for readers of the store too."""
    settings = SETTINGS | {"node": "rescued"}
    with MessageLog.open(folder / "1", store=store, adopt=True, **settings) as log:
        log.flush("remote")
        log.index.roll()
        log.run_compaction()
        with MessageLog.open(store=store, node="rescued", read_only=True) as reader:
            for each in (log, reader):
                for queue_id, (begin, end) in enumerate(zip(begins, told["ends"], strict=True)):
                    if begin < end:
                        assert each.begin_offset(TOPIC, queue_id) == begin
                        found = [message.body for message in each.reader(TOPIC, queue_id, begin)]
                        numbers = [n * QUEUES + queue_id for n in range(begin, end)]
                        assert found == [body_of(1, n) for n in numbers], (queue_id, begin, end)
                        answer = each.get(TOPIC, key=f"1-{numbers[-1]}")
                        assert [message.offset for message in answer] == [end - 1], answer


def take_over_on_radosgw(seed):
    """Do so a few times over a real object store; return how often."""
    import pytest

    from tests.servers.s3_server import ACCESS_KEY, SECRET_KEY, S3Server, set_aws_environment
    from tools import radosgw

    with (
        pytest.MonkeyPatch.context() as patch,
        radosgw.running_radosgw(ACCESS_KEY, SECRET_KEY) as port,
    ):
        set_aws_environment(patch)
        server = S3Server.at("radosgw", port)
        return sum(take_over_from_a_stopped_log(seed + n, server.make_url()) for n in range(5))


def take_over(seed):
    """Do so over a folder, in every tenth case over radosgw where it is installed; return how often."""
    on_radosgw = seed % 10 == 9 and shutil.which("radosgw") is not None
    return take_over_on_radosgw(seed) if on_radosgw else take_over_from_a_stopped_log(seed)
