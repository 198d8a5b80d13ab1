"""Real processes that write until they are killed: an embedded writer, and the HTTP server under load.

Message `n` of a topic has the key `K<n>` and the offset `n`, and they are put in order, so that what
survives must be 0 .. m-1 for one m that is not below what was acknowledged.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from tests.crash.killing import KillingFileSystem
from tests.patience import PATIENCE_S
from tests.torture.fork_server import server
from tests.torture.quick_folder import quick_folder
from tierdex import Index

SETTINGS = {
    "slot_count": 256,
    "item_capacity": 2000,
    "disk_reserve_bytes": 0,
    "merge_min_files": 3,
    "merge_below_items": 5000,
    "compact_interval": 0.005,
    "refresh_interval": 0.05,
    "remote_interval": 0.0,
    "checkpoint_every": 5,
}
_LARGEST_BATCH = 700
_MARGIN = 2000  # numbers asked for beyond what may be there

# -- the embedded writer --------------------------------------------------------------------------


def write_until_killed(folder, first, seed, nth, telling):
    """Put messages from `first` on and tell the count after each acknowledgement.

    At the `nth` call on the file system, of whichever thread, the process kills itself (0: never).
    """
    source = random.Random(seed)
    filesystem = KillingFileSystem()
    filesystem.kill_at(nth, after=source.random() < 0.5)
    index = Index.open(folder, filesystem=filesystem, **SETTINGS)
    telling.send_bytes(first.to_bytes(8, "little"))
    number = first
    while True:
        chosen = source.random()
        count = source.choice((1, 7, 100, _LARGEST_BATCH))
        if chosen < 0.3:
            for _ in range(min(count, 30)):
                put_one(index, number)
                number += 1
            continue  # received only: nothing is promised
        numbers = range(number, number + count)
        index.put_batch(
            topic="t", keys=[f"K{n}" for n in numbers], queue_id=0, size=1,
            offset=list(numbers), timestamp=list(numbers),
        )  # fmt: skip
        number += count
        telling.send_bytes(number.to_bytes(8, "little"))
        if chosen < 0.5:
            index.flush("disk")
        elif chosen < 0.55:
            index.roll()


def put_one(index, n):
    index.put(topic="t", keys=[f"K{n}"], queue_id=0, offset=n, size=1, timestamp=n)


def kill_writers(rounds, seed):
    """Kill one writer after another of the same folder; return how many that were."""
    return kill_in_turn("tests.torture.writers:write_until_killed", check_survivors, rounds, seed)


def kill_in_turn(writer, check, rounds, seed):
    """Kill `rounds` processes of the same folder; `check(folder, acknowledged)` says what is there then.

    `writer` names a function of (folder, first number, seed, nth call, telling).
    """
    with quick_folder() as folder:
        count = 0
        for number in range(rounds):
            one = seed * 1000 + number
            count = check(folder / "data", kill_one(writer, folder / "data", count, one))
    return rounds


def kill_one(writer, folder, first, seed):
    """Let a process write for a moment, and kill it; return how many messages were acknowledged.

    It is killed from outside at a random moment, of its start too, or kills itself at a random call.
    """
    source = random.Random(seed)
    nth = source.randrange(1, 400) if source.random() < 0.4 else 0
    with server().fork(writer, folder, first, seed, nth) as child:
        acknowledged = first
        if nth or source.random() < 0.8:
            with contextlib.suppress(EOFError):
                acknowledged = _number(child.told())
        deadline = time.monotonic() + source.uniform(0, 0.12)
        with contextlib.suppress(EOFError):
            while (left := deadline - time.monotonic()) > 0:
                if child.tells.poll(left):
                    acknowledged = _number(child.told())
        child.signal(signal.SIGKILL)
        for told in child.all_told():
            acknowledged = _number(told)
        assert child.wait() == -signal.SIGKILL, f"seed {seed}: the writer ended by itself"
    return acknowledged


def _number(told):
    return int.from_bytes(told, "little")


def check_survivors(folder, acknowledged):
    """Open the folder without an operator; return m when 0 .. m-1 are there, each once, and no more."""
    with Index.open(folder, **{**SETTINGS, "background": False}) as index:
        found = count_prefix(index, "t", acknowledged)
        items = sum(info.item_count for info in index.files())
        assert items == found, f"{items} items in the files, {found} messages found"
        wrong = [problem for info in index.files() for problem in index.verify_file(info.file_id)]
        assert wrong == []
        return found


def count_prefix(index, topic, acknowledged):
    """Return m when just the messages 0 .. m-1 of the topic are found, each once."""
    asked = acknowledged + _MARGIN
    while True:
        keys = [f"K{n}" for n in range(asked)]
        answer = index.query_batch_arrow(
            pa.table({"topic": [topic] * asked, "key": keys}), max_count=2
        )
        found = answer.num_rows
        numbers = np.arange(found)
        assert np.array_equal(answer["lookup"], numbers), "a hole in the put order, or one twice"
        assert np.array_equal(answer["offset"], numbers), "another key's entry"
        if found < asked:
            break
        asked *= 2
    assert found >= acknowledged, f"{acknowledged} acknowledged, {found} found"
    return found


# -- the HTTP server ------------------------------------------------------------------------------

_TOPICS = ("a", "b")


def serve_until_killed(folder, nth, after, telling):
    """Serve the folder as `tierdex serve` does, and tell the address; die at the nth call (0: never)."""
    from tierdex.app.http.server import serve
    from tierdex.app.http.server_settings import load_server_settings
    from tierdex.app.keys import FILE_NAME, KeyFile
    from tierdex.clock import SystemClock
    from tierdex.filesystem import LocalFileSystem
    from tierdex.ids import SystemIds
    from tierdex.settings import load_settings

    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)  # the log: it is not read
    keys = KeyFile(LocalFileSystem(), Path(folder, FILE_NAME), clock=SystemClock(), ids=SystemIds())
    filesystem = KillingFileSystem()
    filesystem.kill_at(nth, after=after)
    serve(
        Index.open(folder, filesystem=filesystem, **SETTINGS),
        load_server_settings(port=0),
        keys,
        limits=load_settings(**SETTINGS),
        announce=lambda url: telling.send_bytes(url.encode()),
    )


def kill_servers(rounds, seed):
    """Kill one server after another of the same folder; return how many that were."""
    with quick_folder() as folder:
        counts = dict.fromkeys(_TOPICS, 0)
        for number in range(rounds):
            counts = kill_a_server(folder / "data", counts, seed * 1000 + number)
    return rounds


def kill_a_server(folder, counts, seed):
    """Put over HTTP by several callers, kill the server, look; return the messages of each topic."""
    source = random.Random(seed)
    nth = source.randrange(1, 400) if source.random() < 0.4 else 0
    with server().fork(
        "tests.torture.writers:serve_until_killed", folder, nth, source.random() < 0.5
    ) as child:
        callers = _start_callers(child, counts, source)
        deadline = time.monotonic() + source.uniform(0, 0.25) + bool(nth)
        while time.monotonic() < deadline and any(caller.is_alive() for caller in callers):
            time.sleep(0.005)
        child.signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL, f"seed {seed}: the server ended by itself"
        for caller in callers:
            caller.join()
            assert caller.wrong is None, caller.wrong
    with Index.open(folder, **{**SETTINGS, "background": False}) as index:
        found = {each.topic: count_prefix(index, each.topic, each.acknowledged) for each in callers}
        for caller in callers:
            assert found[caller.topic] <= caller.sent, "a phantom"
        assert sum(info.item_count for info in index.files()) == sum(found.values())
        return found


def _start_callers(child, counts, source):
    """Return running callers, one a topic, of which each was answered once if the server lived."""
    try:
        host, port = child.told().decode().removeprefix("http://").split(":")
    except EOFError:  # it died while it opened the folder
        host, port = "127.0.0.1", "1"
    callers = [
        _Caller(host, int(port), topic, counts[topic], source.randrange(1 << 30))
        for topic in _TOPICS
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        assert caller.answered.wait(PATIENCE_S), "the server answers nothing"
    return callers


class _Caller(threading.Thread):
    """Puts and looks up, one request after another, until the connection breaks."""

    def __init__(self, host, port, topic, first, seed):
        super().__init__()
        self.topic, self.acknowledged, self.sent = topic, first, first
        self.answered, self.wrong = threading.Event(), None
        self._connection = http.client.HTTPConnection(host, port, timeout=PATIENCE_S)
        self._source = random.Random(seed)

    def run(self):
        try:
            while True:
                self._put(self._source.choice((1, 20, 200)))
                self.answered.set()
                if self._source.random() < 0.3:
                    self._look()
        except (OSError, http.client.HTTPException):
            pass  # killed
        except BaseException as error:  # noqa: BLE001 -- told by the one who joins
            self.wrong = error
        finally:
            self._connection.close()
            self.answered.set()

    def _put(self, count):
        numbers = range(self.sent, self.sent + count)
        self.sent += count
        entries = [
            {"topic": self.topic, "key": f"K{n}", "queue_id": 0, "offset": n, "size": 1, "timestamp": n}
            for n in numbers
        ]  # fmt: skip
        body = {"entries": entries, "durability": self._source.choice(("os", "os", "disk"))}
        answer = self._ask("POST", "/v1/entries", json.dumps(body))
        assert answer["accepted"] == count, answer
        self.acknowledged = self.sent

    def _look(self):
        n = self._source.randrange(self.acknowledged)
        answer = self._ask("GET", f"/v1/entries?topic={self.topic}&key=K{n}")
        assert [entry["offset"] for entry in answer["entries"]] == [n], answer

    def _ask(self, method, path, body=None):
        self._connection.request(method, path, body, {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        answer = json.loads(response.read())
        assert response.status == 200, answer
        return answer
