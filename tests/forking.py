"""Forks that are run in a process of their own, a child of the fork server or `python -m tests.forking`.

Each scenario returns what can be written as JSON; what a child found is in it under `child`.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import threading
import traceback
from pathlib import Path

from tierdex import Client, Index
from tierdex.errors import FolderInUseError, ForkedError, TierdexError
from tierdex.storage_layer.open import open_store

COUNT = 2000


def put(index, who, number, **more):
    index.put(
        topic="t", keys=[f"{who}{number}"], queue_id=0, offset=number, size=1, timestamp=1, **more
    )


def outcome(call):
    """Return what a call returned, or the name of its error."""
    try:
        return call()
    except TierdexError as error:
        return type(error).__name__
    except Exception:  # noqa: BLE001 - the test shows it
        return traceback.format_exc()


def in_child(run):
    """Fork, call `run` in the child, and return what it returned."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        with os.fdopen(writing, "w") as out:
            json.dump(outcome(run), out)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    return json.loads(text)


def calls_of(index):
    """Return every public call by name.

    Called before the fork: another thread may be in Arrow's allocator then, whose lock stays taken in the
    child.
    """
    lookup = {"topic": "t", "key": "parent1"}
    table = arrow([lookup])
    batch = {"keys": ["x"], "queue_id": 0, "offset": 1, "size": 1, "timestamp": 1}
    return {
        "put received": lambda: put(index, "child", 0),
        "put os": lambda: put(index, "child", 0, durability="os"),
        "put disk": lambda: put(index, "child", 0, durability="disk"),
        "put of a new topic": lambda: index.put(topic="new", **batch),
        "put_batch": lambda: index.put_batch(topic="t", **batch),
        "flush": lambda: index.flush("disk"),
        "flush os": index.flush,
        "flush remote": lambda: index.flush("remote"),
        "watermark": lambda: index.watermark("t", 0),
        "query": lambda: index.query("t", key="parent1"),
        "query by message ID": lambda: index.query(message_id="m"),
        "query explained": lambda: index.query("t", key="parent1", explain=True),
        "begin_query": lambda: index.begin_query("t", key="parent1"),
        "query_batch": lambda: index.query_batch([lookup]),
        "query_batch_arrow": lambda: index.query_batch_arrow(table),
        "query_batch_local": lambda: index.query_batch_local(table),
        "roll": index.roll,
        "run_compaction": index.run_compaction,
        "refresh": index.refresh,
        "files": index.files,
        "file": lambda: index.file("x"),
        "verify_file": lambda: index.verify_file("x"),
        "topics": index.topics,
        "compaction_status": index.compaction_status,
        "expire": lambda: index.expire(before=0),
    }


def arrow(lookups):
    import pyarrow

    return pyarrow.Table.from_pylist(lookups)


def count_found(index, who):
    return sum(len(index.query("t", key=f"{who}{number}").entries) for number in range(COUNT))


def both_put(folder):
    """Parent and child put, each as much as it can; some entries wait in the buffer at the fork."""
    index = Index.open(folder, put_buffer_delay=60.0)
    for number in range(COUNT // 2):
        put(index, "parent", number, durability="os" if number % 2 else "received")

    calls = calls_of(index)

    def run():
        refused = [outcome(lambda n=n: put(index, "child", n)) for n in range(COUNT)]
        return {
            "calls": {name: outcome(call) for name, call in calls.items()},
            "refused": refused.count("ForkedError"),
            "health": [reason.reason for reason in index.health()],
            "close": outcome(index.close),
        }

    child = in_child(run)
    for number in range(COUNT // 2, COUNT):
        put(index, "parent", number)
    level = index.flush("disk")
    before = {"parent": count_found(index, "parent"), "level": level}
    index.close()
    with Index.open(folder) as again:
        after = {"parent": count_found(again, "parent"), "child": count_found(again, "child")}
        items = sum(file.item_count for file in again.files())
        broken = [again.verify_file(file.file_id) for file in again.files()]
    return {"child": child, "before": before, "after": after, "items": items, "broken": broken}


def child_opens_its_own(folder):
    """A child, and one of multiprocessing, read beside the parent and may write elsewhere."""
    index = Index.open(folder)
    for number in range(COUNT):
        put(index, "parent", number)
    index.flush("os")

    def run():
        with Index.open(folder, read_only=True) as own:
            found = count_found(own, "parent")
        with Index.open(f"{folder}-child") as own:
            put(own, "child", 1, durability="disk")
        in_use = outcome(lambda: Index.open(folder))
        return {"found": found, "in_use": in_use, "inherited": outcome(index.topics)}

    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    process = context.Process(target=lambda: queue.put(outcome(run)))
    process.start()
    other = queue.get()
    process.join()
    result = {"child": in_child(run), "other": other, "exit": process.exitcode}
    result["after"] = count_found(index, "parent")
    index.close()
    return result


def child_outlives(folder):
    """The parent ends without a close while the child lives: the folder is free at once."""
    index = Index.open(folder)
    put(index, "parent", 1, durability="os")
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.close(writing)
        os.setsid()
        os.read(reading, 1)  # ends with the test, which holds our standard input's other end
        sys.stdin.read()
        os._exit(0)
    del index
    return {}


def holder_stays(folder):
    """The child's end, and its `close`, give nothing of the parent's back."""
    index = Index.open(folder)
    in_child(index.close)
    in_child(lambda: None)
    in_use = outcome(lambda: Index.open(folder))
    holder = (Path(folder) / "LOCK").read_text()
    put(index, "parent", 1, durability="disk")
    index.close()
    return {"in_use": in_use, "holder": holder, "pid": os.getpid()}


def many_forks(folder):
    """Children of a process whose threads are in the middle of everything."""
    index = Index.open(folder, item_capacity=1000, slot_count=256)
    stop = threading.Event()
    done = [0, 0]

    def put_for_ever(place):
        while not stop.is_set():
            put(
                index,
                f"thread{place}-",
                done[place],
                durability="os" if done[place] % 7 else "disk",
            )
            done[place] += 1
            index.query("t", key=f"thread{place}-{done[place] - 1}")

    threads = [threading.Thread(target=put_for_ever, args=(place,)) for place in (0, 1)]
    for thread in threads:
        thread.start()

    calls = calls_of(index)

    def run():
        refused = {outcome(call) for call in calls.values()}
        with Index.open(folder, read_only=True, background=False) as own:
            own.query("t", key="thread0-0")
        return sorted(refused)

    children = [in_child(run) for _ in range(8)]
    stop.set()
    for thread in threads:
        thread.join()
    index.close()
    with Index.open(folder) as again:
        found = [
            sum(len(again.query("t", key=f"thread{p}-{n}").entries) for n in range(done[p]))
            for p in (0, 1)
        ]
    return {"children": children, "done": done, "found": found}


def client_forks(url):
    """Parent and child ask over one client at the same time."""
    client = Client(url)
    for number in range(50):
        client.put(topic="t", keys=[f"k{number}"], queue_id=0, offset=number, size=1, timestamp=1)

    def ask():
        return [
            [entry.offset for entry in client.query("t", key=f"k{number % 50}").entries]
            == [number % 50]
            for number in range(200)
        ].count(True)

    answers = []
    parent = threading.Thread(target=lambda: answers.append(ask()))
    parent.start()
    child = in_child(ask)
    parent.join()
    client.close()
    return {"child": child, "parent": answers[0]}


def store_forks(url):
    store = open_store(url)
    store.put("a", b"1")

    def run():
        own = open_store(url)
        return {"inherited": outcome(lambda: store.get("a")), "own": own.get("a").decode()}

    return {"child": in_child(run), "parent": store.get("a").decode()}


def run_scenario(scenario, place, environment, telling):
    """Run a scenario in a child of the fork server."""
    assert FolderInUseError
    assert ForkedError
    os.environ.update(environment)
    telling.send_bytes(json.dumps(globals()[scenario](place)).encode())


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])
