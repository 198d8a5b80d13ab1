"""A node that has seen very many queues or topics: commits, openings and watermarks cost what they need."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa

from tests.torture.quick_folder import quick_folder
from tierdex import Index
from tierdex.storage_layer.memory import MemoryStore

COMMIT_BYTES_MAX = 5000  # of a few files, checkpoints included


def publish_many_queues(seed, *, topics, queues):
    """Publish an entry for each queue of each topic, then single ones; return how many queues.

    A seed changes which queue is written when. Expiry and opening anew must keep every watermark.
    """
    store, source = MemoryStore(), random.Random(seed)
    count = topics * queues
    options = {"item_capacity": 2_000_000, "slot_count": 1 << 20, "checkpoint_every": 2}
    with quick_folder() as folder:
        data = Path(folder) / "data"
        with Index.open(data, store=store, background=False, **options) as index:
            number = np.random.default_rng(seed).permutation(count)
            names = pa.array([f"topic-{n:06}" for n in range(topics)])
            index.put_batch(
                topic=pa.DictionaryArray.from_arrays(pa.array(number // queues, pa.int32()), names),
                keys=pa.array(number).cast(pa.string()),
                queue_id=number % queues,
                offset=number,
                size=10,
                timestamp=1,
            )
            for turn in range(4):
                index.roll()
                index.run_compaction()
                assert _newest_commit(store) < COMMIT_BYTES_MAX
                index.put(topic="one", keys=["k"], queue_id=turn, offset=turn, size=1, timestamp=1)
            assert len(index.topics()) == topics + 1
            index.flush("os")
            index.expire(before=1 << 60)
            assert index.topics() == ["one"]  # one entry is not published yet
        with Index.open(data, store=store, background=False, **options) as index:
            assert _newest_commit(store) < COMMIT_BYTES_MAX
            for asked in source.sample(range(count), 1000):
                marks = index.watermark(f"topic-{asked // queues:06}", asked % queues)
                assert marks["remote"] == asked + 10
            assert [index.watermark("one", n)["remote"] for n in range(4)] == [1, 2, 3, None]
    return count


def _newest_commit(store):
    return [found.size for found in store.list("nodes/") if "/manifest/" in found.key][-1]
