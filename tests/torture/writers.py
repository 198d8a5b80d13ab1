"""Real processes that write until they are killed: an embedded writer, and the HTTP server under load.

Message `n` has the key `K<n>` and the offset `n`, and they are put in order, so that what survives
must be 0 .. m-1 for one m that is not below what was acknowledged.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import time

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
_CHUNK = 20_000


def spawner():
    """Return a context whose processes are forks of one that has everything loaded and no thread."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.torture.preload"])
    return context


def write_until_killed(folder, first, seed, acknowledged):
    """Put messages from `first` on; after each acknowledgement write the count to the pipe."""
    source = random.Random(seed)
    index = Index.open(folder, **SETTINGS)
    acknowledged.send_bytes(first.to_bytes(8, "little"))
    number = first
    while True:
        chosen = source.random()
        count = source.choice((1, 7, 100, 700))
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
        acknowledged.send_bytes(number.to_bytes(8, "little"))
        if chosen < 0.5:
            index.flush("disk")
        elif chosen < 0.55:
            index.roll()


def put_one(index, n):
    index.put(topic="t", keys=[f"K{n}"], queue_id=0, offset=n, size=1, timestamp=n)


def kill_a_writer(context, folder, first, seed):
    """Let a process write for a moment, kill it, look; return how many messages there are now."""
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=write_until_killed, args=(folder, first, seed, sending))
    process.start()
    sending.close()
    acknowledged = int.from_bytes(receiving.recv_bytes(), "little")
    deadline = time.monotonic() + random.Random(seed).uniform(0, 0.12)
    while (left := deadline - time.monotonic()) > 0:
        if receiving.poll(left):
            acknowledged = int.from_bytes(receiving.recv_bytes(), "little")
    os.kill(process.pid, signal.SIGKILL)
    with contextlib.suppress(EOFError):
        while True:
            acknowledged = int.from_bytes(receiving.recv_bytes(), "little")
    process.join()
    receiving.close()
    return check_survivors(folder, acknowledged)


def check_survivors(folder, acknowledged):
    """Open the folder without an operator; return m when 0 .. m-1 are there, each once, and no more."""
    with Index.open(folder, **{**SETTINGS, "background": False}) as index:
        found = 0
        while True:
            numbers = range(found, found + _CHUNK)
            answers = index.query_batch(
                [{"topic": "t", "key": f"K{n}", "max_count": 3} for n in numbers]
            )
            there = [n for n, answer in zip(numbers, answers, strict=True) if answer.entries]
            for n in there:
                (entry,) = answers[n - found].entries
                assert entry.offset == n, (n, entry)
            assert all(answer.complete for answer in answers)
            assert there == list(range(found, found + len(there))), "a hole in the put order"
            found += len(there)
            if len(there) < _CHUNK:
                break
        assert found >= acknowledged, f"{acknowledged} acknowledged, {found} found"
        items = sum(info.item_count for info in index.files())
        assert items == found, f"{items} items in the files, {found} messages found"
        wrong = [problem for info in index.files() for problem in index.verify_file(info.file_id)]
        assert wrong == []
        return found


# -- the HTTP server ------------------------------------------------------------------------------


def kill_a_server(folder, first, seed):
    """Put over HTTP, kill the server, look; return how many messages there are now."""
    source = random.Random(seed)
    port = _free_port()
    environment = {f"TIERDEX_{name.upper()}": str(value) for name, value in SETTINGS.items()}
    process = subprocess.Popen(
        [sys.executable, "-m", "tierdex.app.cli", "serve", "--data", str(folder), "--port", str(port)],
        env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        connection = _connect(port, process)
        acknowledged, number = first, first
        deadline = time.monotonic() + source.uniform(0, 0.4)
        while time.monotonic() < deadline:
            count = source.choice((1, 20, 200))
            body = {
                "entries": [
                    {
                        "topic": "t",
                        "key": f"K{n}",
                        "queue_id": 0,
                        "offset": n,
                        "size": 1,
                        "timestamp": n,
                    }
                    for n in range(number, number + count)
                ],
                "durability": source.choice(("os", "os", "disk")),
            }
            connection.request(
                "POST", "/v1/entries", json.dumps(body), {"Content-Type": "application/json"}
            )
            response = connection.getresponse()
            answer = json.loads(response.read())
            assert response.status == 200, answer
            number += count
            acknowledged = number
        connection.request(
            "POST", "/v1/entries", json.dumps(body), {"Content-Type": "application/json"}
        )
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    connection.close()
    return _check_server_survivors(folder, acknowledged, number)


def _check_server_survivors(folder, acknowledged, number):
    # The request under way repeats the last one: the same messages, which are found once.
    del number
    with Index.open(folder, **{**SETTINGS, "background": False}) as index:
        answers = index.query_batch(
            [{"topic": "t", "key": f"K{n}", "max_count": 3} for n in range(acknowledged + 500)]
        )
        there = [n for n, answer in enumerate(answers) if answer.entries]
        assert all(len(answers[n].entries) == 1 for n in there)
        assert there == list(range(len(there)))
        assert len(there) >= acknowledged
        return len(there)


def _connect(port, process):
    for _ in range(300):
        assert process.poll() is None, f"the server ended with {process.returncode}"
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            connection.request("GET", "/readyz")
            if connection.getresponse().read() is not None:
                return connection
        except OSError:
            time.sleep(0.05)
    raise AssertionError("the server does not answer")


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
