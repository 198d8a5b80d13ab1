"""Keys that might be taken for others: collisions of slot and half hash, joined names, absent ones."""

from __future__ import annotations

import numpy as np

from tests.stateful.world import SMALL
from tierdex import Index
from tierdex.indexfile.hashing import key_hash
from tierdex.storage_layer.memory import MemoryStore

JOINED = [
    ("x", "a#b"),
    ("x#a", "b"),
    ("x#a#b", "c"),
    ("xa", "b"),
    ("x", "ab"),
    ("a", "A"),
    ("A", "a"),
]


def find_half_collisions(count):
    """Return pairs of keys of topic `t` whose hashes agree in their lower or their upper 32 bits."""
    hashes = np.array([key_hash("t", f"C{n}") for n in range(count)], np.uint64)
    pairs = []
    for half in (hashes & np.uint64(0xFFFFFFFF), hashes >> np.uint64(32)):
        order = np.argsort(half, kind="stable")
        same = np.flatnonzero(half[order][1:] == half[order][:-1])
        pairs += [(int(order[place]), int(order[place + 1])) for place in same]
    return pairs


def search_for_false_matches(folder, absent, seed=0):
    """Ask in every state for what is there and what is not; return how many lookups that were."""
    pairs = find_half_collisions(150_000)
    assert pairs, "more keys are wanted for a collision of 32 bits"
    settings = {**SMALL, "slot_count": 1, "item_capacity": 4000, "filter_bits": 0}
    asked = 0
    with Index.open(folder, store=MemoryStore(), **settings) as index:
        for place, (here, _) in enumerate(pairs):
            index.put(topic="t", keys=[f"C{here}"], queue_id=0, offset=place, size=1, timestamp=1)
        for place, (topic, key) in enumerate(JOINED[::2]):
            index.put(
                topic=topic, keys=[key], message_id=f"{topic}#{key}", queue_id=0, size=1,
                offset=10_000 + place, timestamp=1,
            )  # fmt: skip
        for stage in ("unsealed", "uploaded"):
            for place, (here, twin) in enumerate(pairs):
                assert [e.offset for e in index.query("t", key=f"C{here}").entries] == [place]
                assert index.query("t", key=f"C{twin}").entries == []
            for place, (topic, key) in enumerate(JOINED):
                found = [e.offset for e in index.query(topic, key=key).entries]
                assert found == ([10_000 + place // 2] if place % 2 == 0 else []), (topic, key)
                assert index.query(topic, key=f"{topic}#{key}").entries == []
                assert index.query(message_id=key).entries == []
            asked += 2 * len(pairs) + 3 * len(JOINED)
            share = absent // 2
            for first in range(0, share, 50_000):
                answers = index.query_batch([
                    {"topic": "t", "key": f"absent-{seed}-{n}", "max_count": 1}
                    for n in range(first, min(share, first + 50_000))
                ])  # fmt: skip
                assert not any(answer.entries for answer in answers)
                assert all(answer.complete for answer in answers)
                asked += len(answers)
            index.roll()
            index.run_compaction()
            del stage
    return asked
