"""Writers, queries and a compactor over a store that fails; then the store is well, and all is there.

What must hold whatever struck:

* puts go on while nothing gets through (they are made during the outage, which ends only after them)
* no entry is missing or doubled, no file published twice, each listed object is there and sound
* after garbage collection the store holds what the manifest lists, and nothing else
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter

from tests.patience import PATIENCE_S
from tests.servers.bad_proxy import SeededFaults
from tierdex.clock import SystemClock
from tierdex.errors import TierdexError, UnavailableError
from tierdex.ids import SystemIds
from tierdex.index_service.index import Index
from tierdex.lifecycle.manifests.manifest_log import ManifestLog
from tierdex.lifecycle.paths import StorePaths
from tierdex.testing.components import components_of

SETTINGS = {
    "node": "local",
    "slot_count": 64,
    "item_capacity": 512,
    "store_timeout": 0.15,
    "store_attempts": 2,
    "compact_interval": 0.02,
    "refresh_interval": 0.05,
    "backoff_max": 0.1,
    "remote_interval": 0.0,
    "remote_timeout": 60.0,
    "grace_time": 0.0,
    "page_cache_bytes": 0,
    "merge_min_files": 4,
    "checkpoint_every": 8,
}
BATCH = 64


class Campaign:
    """One index over a bad proxy. `faults` have struck when `run` returns."""

    def __init__(self, proxy, store, data):
        self._proxy = proxy
        self._store = store
        self._data = data
        self._put = 0
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._failures = []

    def run(self, *, seed, faults, chance=0.35, writers=2, askers=4):
        """Let at least `faults` requests fail, an outage among them, then check everything."""
        with Index.open(self._data, store=self._proxy.url_of(self._store), **SETTINGS) as index:
            before = len(self._proxy.history)
            self._proxy.plan = SeededFaults(seed, chance)
            threads = [threading.Thread(target=self._write, args=(index,)) for _ in range(writers)]
            threads += [
                threading.Thread(target=self._ask, args=(index, seed + n)) for n in range(askers)
            ]
            for thread in threads:
                thread.start()
            try:
                self._wait_for(lambda: len(self._proxy.history) - before >= faults // 2)
                self._put_through_an_outage(index)
                self._wait_for(lambda: len(self._proxy.history) - before >= faults)
            finally:
                self._is_over.set()
                for thread in threads:
                    thread.join()
                self._proxy.plan = lambda _request: None
            assert not self._failures, self._failures
            self._make_well(index)
        self.check()

    def check(self):
        """Look at the store behind the proxy's back."""
        with Index.open(store=self._store, read_only=True, background=False) as index:
            self._check_answers(index)
            for info in index.files():
                assert index.verify_file(info.file_id) == [], info
            store = components_of(index).store
            log = ManifestLog(
                store, "local", clock=SystemClock(), ids=SystemIds(), checkpoint_every=8
            )
            state = log.load()
            uuids = Counter(row.uuid for row in state.files.values())
            assert max(uuids.values()) == 1
            assert sum(row.item_count for row in state.files.values()) == self._put
            listed = {row.object_key for row in state.files.values()}
            stored = {entry.key for entry in store.list(StorePaths("local").files_prefix)}
            assert listed - stored == set(), "a listed object is gone"
            assert stored - listed == set(), "orphans were left"

    def _check_answers(self, index):
        numbers = range(self._put)
        for begin in range(0, self._put, 5000):
            lookups = [
                {"topic": "orders", "key": f"k{n}", "max_count": 3}
                for n in numbers[begin : begin + 5000]
            ]
            for n, answer in enumerate(index.query_batch(lookups, on_error="fail"), begin):
                assert [entry.offset for entry in answer.entries] == [n], (n, answer)

    def _write(self, index):
        while not self._is_over.is_set():
            self._put_batch(index)
            time.sleep(0.1)

    def _put_batch(self, index):
        with self._lock:
            begin, self._put = self._put, self._put + BATCH
        numbers = list(range(begin, begin + BATCH))
        while True:
            try:
                index.put_batch(
                    topic="orders", keys=[f"k{n}" for n in numbers], queue_id=0, offset=numbers,
                    size=1, timestamp=numbers,
                )  # fmt: skip
                return
            except UnavailableError:  # refused whole, and retryable: that is what a caller does
                time.sleep(0.01)
            except TierdexError as error:
                self._failures.append(repr(error))
                return

    def _ask(self, index, seed):
        """What was put is found, or the answer says that it is not complete."""
        rng = random.Random(seed)
        while not self._is_over.is_set():
            time.sleep(0.005)
            settled = self._put - 4 * BATCH  # each of these puts has returned
            if settled <= 0:
                continue
            n = rng.randrange(settled)
            answer = index.query("orders", key=f"k{n}")
            offsets = [entry.offset for entry in answer.entries]
            if offsets not in ([n], []) or (not offsets and answer.complete):
                self._failures.append(f"key {n}: {answer}")

    def _put_through_an_outage(self, index):
        """Nothing gets through until these puts have returned: they cannot have waited for it."""
        self._proxy.outage = True
        try:
            for _ in range(12):
                self._put_batch(index)
        finally:
            self._proxy.outage = False

    def _make_well(self, index):
        """Wait until everything is published and collected, as an operator would."""
        give_up = time.monotonic() + PATIENCE_S
        index.flush("remote")
        quiet = 0
        while quiet < 3:
            with contextlib.suppress(UnavailableError):
                quiet = 0 if index.run_compaction(yes=True) else quiet + 1
            assert time.monotonic() < give_up, index.compaction_status()
        index.refresh()

    def _wait_for(self, condition):
        give_up = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < give_up, Counter(s.fault for s in self._proxy.history)
            assert not self._failures, self._failures
            time.sleep(0.02)
