"""Writers, readers and the compactor together for seconds: nothing missing, nothing made up, in order."""

from __future__ import annotations

import random
import threading
import time

from tests.patience import PATIENCE_S
from tierdex import Index

SETTINGS = {
    "slot_count": 256, "item_capacity": 400, "disk_reserve_bytes": 0, "compact_interval": 0.01,
    "refresh_interval": 0.05, "merge_min_files": 3, "put_buffer_delay": 0.002, "roll_after": 0.2,
    "sidecar_cache_bytes": 60_000, "page_cache_bytes": 20_000,
}  # fmt: skip
KEYS = [f"K{number}" for number in range(7)]


class Writer(threading.Thread):
    """Puts rising offsets of its own queue; `done[key]` are those whose put has returned."""

    def __init__(self, index, queue_id, stop):
        super().__init__(daemon=True)
        self.index = index
        self.queue_id = queue_id
        self.stop = stop
        self.done = {key: [] for key in KEYS}
        self.begun = 0
        self.error = None

    def run(self):
        try:
            self._run()
        except BaseException as error:  # noqa: BLE001 -- told by the test's own thread
            self.error = error

    def _run(self):
        dice = random.Random(self.queue_id)
        while not self.stop.is_set():
            count = dice.choice([1, 1, 1, 20])
            keys = [dice.choice(KEYS) for _ in range(count)]
            first, self.begun = self.begun, self.begun + count
            place = {"topic": "t", "queue_id": self.queue_id, "size": 1}
            if count == 1:
                level = dice.choice(["received", "received", "os", "disk"])
                self.index.put(keys=keys, offset=first, timestamp=first, durability=level, **place)
            else:
                rows = list(range(first, first + count))
                self.index.put_batch(keys=keys, offset=rows, timestamp=rows, **place)
            for number, key in enumerate(keys):
                self.done[key].append(first + number)
            time.sleep(0.002)


def check(index, writers, key, *, batch, fail):
    """Ask for one key and compare with what every writer says."""
    known = [list(writer.done[key]) for writer in writers]
    lookup = {"topic": "t", "key": key, "max_count": 10_000}
    answer = index.query_batch([lookup])[0] if batch else index.query(**lookup)
    begun = [writer.begun for writer in writers]
    assert answer.complete, answer.missing
    for writer in writers:
        queue = writer.queue_id
        found = [e.offset for e in answer.entries if e.queue_id == queue]
        assert found == sorted(found, reverse=True), "order"
        missing = set(known[queue]).difference(found)
        assert not missing, f"missing {missing}"
        assert not found or found[0] < begun[queue], "made up"
        assert len(set(found)) == len(found)
    numbers = [entry.file_id for entry in answer.entries]
    assert numbers == sorted(numbers, reverse=True)


def read(index, writers, stop, errors, seed):
    dice = random.Random(seed)
    try:
        while not stop.is_set():
            check(index, writers, dice.choice(KEYS), batch=dice.random() < 0.5, fail=False)
    except BaseException as error:  # noqa: BLE001 -- told by the test's own thread
        errors.append(error)


def read_beside(folder, writers, stop, errors):
    """A second process's view: what had been written before a refresh is there after it."""
    try:
        with Index.open(folder, read_only=True, **SETTINGS) as beside:
            while not stop.is_set():
                writers[0].index.flush("os")
                known = [list(writer.done["K0"]) for writer in writers]
                writers[0].index.flush("os")
                beside.refresh()
                answer = beside.query("t", key="K0", max_count=10_000)
                assert answer.complete, answer.missing
                found = {(e.queue_id, e.offset) for e in answer.entries}
                for queue, offsets in enumerate(known):
                    missing = {(queue, offset) for offset in offsets} - found
                    assert not missing, f"beside: missing {missing}"
    except BaseException as error:  # noqa: BLE001 -- told by the test's own thread
        errors.append(error)


def has_seen_enough(index, seconds):
    """Three seconds, and on a crowded machine as many more as the first files need to be published."""
    published = index.compaction_status()["totals"]["published"]
    return seconds > 90 or (seconds > 3 and published > 2)


def load_kernels(folder):
    """Compile or load what the test runs, before a test looks at a clock."""
    with Index.open(folder, **SETTINGS | {"background": False}) as index:
        place = {"topic": "t", "queue_id": 0, "size": 1}
        for key in ("A", "B", "C"):
            index.put(keys=[key], offset=1, timestamp=1, **place)
            index.put_batch(keys=[key, "A"], offset=[2, 3], timestamp=[2, 3], **place)
            index.query("t", key=key)
            index.query_batch([{"topic": "t", "key": key}])
            index.roll()
            index.run_compaction()
        index.query("t", key="A")
        index.query_batch([{"topic": "t", "key": "A"}])


def test_writers_readers_and_compactor_together(tmp_path):
    load_kernels(tmp_path / "loaded")
    stop, errors = threading.Event(), []
    with Index.open(tmp_path / "data", **SETTINGS) as index:
        writers = [Writer(index, queue, stop) for queue in range(2)]
        readers = [
            threading.Thread(target=read, args=(index, writers, stop, errors, seed), daemon=True)
            for seed in range(2)
        ]
        readers.append(
            threading.Thread(
                target=read_beside, args=(tmp_path / "data", writers, stop, errors), daemon=True
            )
        )
        for thread in (*writers, *readers):
            thread.start()
        began = time.monotonic()
        while not errors and not has_seen_enough(index, time.monotonic() - began):
            time.sleep(0.05)
        stop.set()
        for thread in (*writers, *readers):
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        errors += [writer.error for writer in writers if writer.error is not None]
        if errors:
            raise errors[0]
        status = index.compaction_status()
        assert status["worker_error"] is None
        assert status["totals"]["published"] > 2
        marks = [index.watermark("t", queue)["os"] for queue in range(2)]
    with Index.open(tmp_path / "data", **SETTINGS) as index:
        for key in KEYS:
            check(index, writers, key, batch=False, fail=False)
        assert [index.watermark("t", queue)["os"] for queue in range(2)] >= marks
