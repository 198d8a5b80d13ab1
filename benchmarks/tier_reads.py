"""Published messages read from radosgw: a replay, single messages, key -> body, beside bare range GETs (L7).

    python -m benchmarks.tier_reads [--mib 256] [--points 200]

Bodies of 16 KiB do not compress and go to four queues, which are published as one object. No page that is
read was read before. Prints the GETs that were sent and how long they took; a point read is compared with a
bare range GET of as many bytes, in turns.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.bucket import running_bucket
from tierdex import MessageLog

if TYPE_CHECKING:
    from tierdex.setting_keywords import SettingKeywords

MIB = 1 << 20
_BODY = 16 << 10
_SETTINGS: SettingKeywords = {"node": "n", "background": False, "page_cache_bytes": 0}


def fill(log: MessageLog, size: int) -> int:
    """Publish so many bytes of four queues, and the index of their keys; return the messages of each."""
    source, each = np.random.default_rng(1), size // _BODY // 4
    for queue_id in range(4):
        for first in range(0, each, 256):
            rows = range(first, min(each, first + 256))
            log.append_batch(
                topic="t", queue_id=queue_id, body=[source.bytes(_BODY) for _ in rows],
                keys=[f"{queue_id}-{row}" for row in rows], durability="os",
            )  # fmt: skip
    log.roll()
    log.run_compaction()
    log.index.roll()
    log.run_compaction()
    return each


def replay(log: MessageLog, queue_id: int) -> None:
    answer, offset, requests, total = None, 0, 0, 0
    started = time.perf_counter()
    while answer is None or len(answer):
        answer = log.read("t", queue_id, offset, max_count=1000, max_bytes=MIB, group="bench")
        assert answer.complete, answer.missing
        offset, requests = answer.next_offset, requests + answer.explain.requests
        total += len(answer.batch.bodies)
    took = time.perf_counter() - started
    most = 1 + total / (4 * MIB)
    speed = total / MIB / took
    print(
        f"replay of {total / MIB:.0f} MiB: {requests} GETs (at most {most:.1f}), {speed:.0f} MiB/s"
    )


def points(log: MessageLog, count: int, each: int) -> None:
    """Read single messages, and in turns as many bytes by a bare GET."""
    (handle,) = log._components.table.version.files
    tier, row = log._components.tier, handle.row
    assert tier is not None
    assert row is not None
    store = tier.tails.reached_store()
    source, ours, bare, sent = np.random.default_rng(2), [], [], 0
    for offset in source.permutation(each)[:count].tolist():
        started = time.perf_counter()
        answer = log.read("t", 3, offset, max_count=1)
        ours.append(time.perf_counter() - started)
        sent += answer.explain.requests
        started = time.perf_counter()
        store.get(row.object_key, 4096 + offset * _BODY, answer.explain.store)
        bare.append(time.perf_counter() - started)
    p50, floor = np.median(ours) * 1e3, np.median(bare) * 1e3
    print(f"{count} single messages: {sent} GETs, p50 {p50:.2f} ms; a bare GET {floor:.2f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--points", type=int, default=200)
    given = parser.parse_args()
    logging.disable()
    with running_bucket() as url_of, tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "data")
        with MessageLog.open(
            data, store=url_of("tier"), journal_bytes=(given.mib + 64) * MIB, **_SETTINGS
        ) as log:
            each = fill(log, given.mib * MIB)
            for queue_id in range(2):
                replay(log, queue_id)
            points(log, given.points, each)


if __name__ == "__main__":
    main()
