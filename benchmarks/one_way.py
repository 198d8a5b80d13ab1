"""What each spelling of a call takes, beside the plainest one of the same run.

CPU of one call in a process of one thread. Each row has the best of its rounds: another program on the
machine only ever adds to a round. `python -m benchmarks --only one_way`.
"""

from __future__ import annotations

import gc
import time
from itertools import count
from typing import TYPE_CHECKING, Any

from benchmarks.measure import Row
from tierdex import Index, MessageLog

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.bench import Bench

    Calls = dict[str, tuple[Callable[[], Any], float | None]]

TARGET = 15
ROUNDS = 7
CALLS = 1_000
HOT = 1_000  # entries of the hot key
WHEN = 1_700_000_000_000
SIZES: dict[str, Any] = {"slot_count": 100_000, "item_capacity": 2_000_000}


def run(bench: Bench) -> None:
    with bench.folder() as folder, Index.open(folder, background=False, **SIZES) as index:
        compare(bench, "put", put_calls(index))
        compare(bench, "query", query_calls(index))
    with bench.folder() as folder:
        compare(bench, "query", many_files(folder))
    with bench.folder() as folder, MessageLog.open(folder, background=False) as log:
        compare(bench, "get", get_calls(log))
        compare(bench, "append", append_calls(log))
    from benchmarks import http_writes, tail_puts  # what they import, call chains do without

    http_writes.run(bench, TARGET)
    tail_puts.run(bench, TARGET)


def compare(bench: Bench, verb: str, calls: Calls) -> None:
    """Add a row for each spelling: CPU us of a call, over that of the first, which is the plainest."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for name, (call, _limit) in calls.items():
            best[name] = min(best[name], _cpu_us(call))
    (plainest, least), *others = best.items()
    bench.add(Row(TARGET, f"{verb}: {plainest}", "us", least))
    for name, mine in others:
        limit = calls[name][1]
        bench.add(
            Row(TARGET, f"{verb}: {name}", "us", mine, "the plainest", least, mine / least, limit)
        )


def _cpu_us(call: Callable[[], Any]) -> float:
    call()
    gc.disable()
    try:
        begin = time.process_time()
        for _ in range(CALLS):
            call()
        return (time.process_time() - begin) / CALLS * 1e6
    finally:
        gc.enable()


def put_calls(index: Index) -> Calls:
    """Spellings of a put at `received`, as the plainest is measured elsewhere, too."""
    offsets = count()
    place: dict[str, Any] = {"queue_id": 0, "size": 100, "durability": "received"}

    def put(**given: Any) -> Callable[[], Any]:
        given = {"timestamp": WHEN, **given}
        return lambda: index.put(topic="t", offset=next(offsets), **given, **place)

    eight = [f"k{number}" for number in range(8)]
    return {
        'keys=["k"]': (put(keys=["k"]), None),
        'key="k"': (put(key="k"), 1.3),
        'keys=("k",)': (put(keys=("k",)), 1.3),
        "two keys": (put(keys=["a", "b"]), 2.2),
        "eight keys": (put(keys=eight), 6.0),
        "a key and a message ID": (put(keys=["k"], message_id="m"), 2.0),
        "a written time": (put(keys=["k"], timestamp="2026-11-25T08:00:00Z"), 4.0),
    }


def _fill(index: Index) -> None:
    """Put one entry of `one`, HOT of `hot`."""
    given: dict[str, Any] = {"topic": "q", "queue_id": 0, "size": 100}
    index.put(keys=["one"], offset=0, timestamp=WHEN, **given)
    for offset in range(1, HOT + 1):
        index.put(keys=["hot"], offset=offset, timestamp=WHEN + offset, **given)
    index.query("q", key="one")  # teaches the topic


def query_calls(index: Index) -> Calls:
    _fill(index)
    cursor = index.query("q", key="hot").next_cursor
    assert cursor is not None

    def ask(key: str = "one", **given: Any) -> Callable[[], Any]:
        return lambda: index.query("q", key=key, **given)

    def page() -> None:
        assert index.query("q", key="hot").next_cursor

    return {
        "a key": (ask(), None),
        "max_count=1": (ask(max_count=1), 1.3),
        "begin and end": (ask(begin=WHEN - 5, end=WHEN + 5), 1.3),
        "max_count=1 of a hot key": (ask("hot", max_count=1), None),
        "64 entries of a hot key": (ask("hot"), 15.0),
        "64 entries of a hot key, and the cursor read": (page, None),
        "its next page": (ask("hot", cursor=cursor), 18.0),
        "explain=True": (ask(explain=True), 10.0),
    }


def many_files(folder: Path) -> Calls:
    """A key in one of ten chained files, and one in all of them."""
    given: dict[str, Any] = {"topic": "q", "queue_id": 0, "size": 100, "timestamp": WHEN}
    single = Index.open(folder / "one", background=False, **SIZES)
    index = Index.open(folder / "ten", background=False, **SIZES)
    single.put(keys=["k"], offset=0, **given)
    for offset in range(10):
        index.put(keys=["all", f"k{offset}"], offset=offset, **given)
        if offset < 9:
            index.roll()
    for each in (single, index):
        each.query("q", key="k")  # teaches the topic
    return {
        "a key in one file": (lambda: single.query("q", key="k"), None),
        "a key of the newest of ten files": (lambda: index.query("q", key="k9"), 3.0),
        "a key of the oldest of ten files": (lambda: index.query("q", key="k0"), 3.0),
        "a key of all ten files": (lambda: index.query("q", key="all"), 3.0),
    }


def append_calls(log: MessageLog) -> Calls:
    """Spellings of an append at `received`."""
    queues = count(1)
    at: dict[str, Any] = {"topic": "t", "queue_id": 0, "durability": "received"}

    def append(body: Any = b"y" * 100, **given: Any) -> Callable[[], Any]:
        return lambda: log.append(body=body, **{**at, **given})

    headers = [("a", b"1"), ("b", b"2")]
    return {
        'keys=["k"]': (append(keys=["k"]), None),
        'key="k"': (append(key="k"), 1.3),
        "two keys": (append(keys=["a", "b"]), 2.0),
        "eight keys and a message ID": (append(keys=[*"abcdefgh"], message_id="m"), 2.5),
        "two headers": (append(keys=["k"], headers=headers), 2.5),
        "two headers, a dict of texts": (append(keys=["k"], headers={"a": "1", "b": "2"}), 2.5),
        "a bytearray": (append(bytearray(100), keys=["k"]), 1.5),
        "a text": (append("y" * 100, keys=["k"]), 1.5),
        "a written time": (append(keys=["k"], timestamp="2026-11-25T08:00:00Z"), 4.0),
        "durability os": (append(keys=["k"], durability="os"), 3.0),
        "append_nowait": (lambda: log.append_nowait(**at, body=b"y" * 100, key="k"), 2.0),
        "a new queue": (
            lambda: log.append(**{**at, "queue_id": next(queues)}, body=b"y", keys=["k"]),
            3.0,
        ),
    }


def get_calls(log: MessageLog) -> Calls:
    """A get of a message in memory, beside a query of its key."""
    at: dict[str, Any] = {"topic": "g", "queue_id": 0, "durability": "disk"}
    log.append(**at, body=b"y" * 100, key="one", headers=[("a", b"1")])
    assert len(log.get("g", key="one")) == 1
    index = log.index
    return {
        "the index's query": (lambda: index.query("g", key="one"), None),
        "get(key=)": (lambda: log.get("g", key="one"), 3.0),
    }
