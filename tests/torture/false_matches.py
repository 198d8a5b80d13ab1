"""Keys that might be taken for others: collisions of slot and half hash, joined names, absent ones.

One index goes through every state; in each, what was put is found under its own name only, by single
queries, by batches of objects and by tables, and of the absent keys of that state none is found.
"""

from __future__ import annotations

import random
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests.compactor_steps import step
from tierdex import Index
from tierdex.indexfile import hashing
from tierdex.indexfile.columns import StringColumn
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of
from tierdex.testing.faulty_store import FaultyStore

# Of each pair of neighbours the first is put; all join to few strings, with and without a divider.
JOINED = [
    ("x", "a#b"), ("x#a", "b"), ("x#a#b", "c"), ("xa", "b"), ("x", "ab"), ("a", "A"), ("A", "a"),
    ("x ", "a"), ("x", " a"), ("x", "a"), ("x", "a "), ("é", "k"), ("e\u0301", "k"),
]  # fmt: skip
TRIED = 600_000  # keys among which collisions of half a hash are looked for
CALL = 50_000
SHORT = 2_000  # lookups that walk whole chains
STATES = ("unsealed", "sealed", "compacted", "uploaded", "fetched", "merged")


@lru_cache(maxsize=1)
def find_half_collisions(seed, count=TRIED):
    """Return pairs of keys of topic `t` whose hashes agree in their lower or their upper 32 bits."""
    names = _numbered(f"C{seed}-", range(count))
    hashes = hashing.key_hashes(StringColumn.from_values(names), ["t"], None)
    pairs = []
    for half in (hashes & np.uint64(0xFFFFFFFF), hashes >> np.uint64(32)):
        order = np.argsort(half, kind="stable")
        same = np.flatnonzero(half[order][1:] == half[order][:-1])
        pairs += [(names[int(order[n])].as_py(), names[int(order[n + 1])].as_py()) for n in same]
    assert pairs, "more keys are wanted for a collision of 32 bits"
    return pairs


class Search:
    """One index on its way through the states, and how many lookups that were."""

    def __init__(self, folder, seed):
        source = random.Random(seed)
        self.seed, self.folder, self.asked = seed, folder, 0
        self.slots = source.choice((1, 64, 4096))
        self.settings = {
            "slot_count": self.slots, "item_capacity": 4000, "background": False,
            "filter_bits": source.choice((0, 8, 16)), "merge_min_files": 2, "checkpoint_every": 4,
            "page_cache_bytes": source.choice((0, 1 << 20)),
        }  # fmt: skip
        self.pairs = find_half_collisions(seed % 3)
        self.store = FaultyStore(MemoryStore())

    def run(self, absent):
        """Ask for `absent` absent keys, about, over all states."""
        share = absent // len(STATES)
        with Index.open(self.folder, store=self.store, **self.settings) as index:
            self._put(index)
            self._ask("unsealed", index, share)
            compactor = components_of(index).writing.compactor
            with self.store.outage():
                index.roll()
                for state in ("sealed", "compacted"):
                    while state not in {info.state for info in index.files()}:
                        step(compactor)
                    self._ask(state, index, share)
            index.run_compaction()
            self._ask("uploaded", index, share)
            with Index.open(store=self.store, read_only=True, background=False) as reader:
                self._ask("fetched", reader, share)
            for first in (1000, 2000):
                self._put_filler(index, first)
                index.roll()
                index.run_compaction()
            assert len([info for info in index.files() if info.item_count]) == 1, "not merged"
            self._ask("merged", index, share)
        return self.asked

    def _put(self, index):
        for place, (here, _) in enumerate(self.pairs):
            index.put(topic="t", keys=[here], queue_id=0, offset=place, size=1, timestamp=1)
        for place, (topic, key) in enumerate(JOINED[::2]):
            index.put(
                topic=topic, keys=[key], message_id=f"{topic}#{key}", queue_id=0, size=1,
                offset=10_000 + place, timestamp=1,
            )  # fmt: skip
        self._put_filler(index, 0)

    def _put_filler(self, index, first):
        numbers = range(first, first + 500)
        index.put_batch(
            topic="t", keys=[f"filler-{n}" for n in numbers], size=1, timestamp=1, queue_id=0,
            message_id=[f"{n}-filler" for n in numbers], offset=[20_000 + n for n in numbers],
        )  # fmt: skip

    def _ask(self, state, index, absent):
        infos = {info.state for info in index.files() if info.item_count}
        assert infos == {"uploaded" if state in ("fetched", "merged") else state}, infos
        lookups, wanted = self._named()
        answers = index.query_batch(lookups)
        singles = [index.query(**lookup) for lookup in lookups]
        for lookup, answer, single, offset in zip(lookups, answers, singles, wanted, strict=True):
            for each in (answer, single):
                assert each.complete, (state, lookup, each.missing)
                found = [entry.offset for entry in each.entries]
                assert found == ([] if offset is None else [offset]), (state, lookup, found)
        self.asked += 2 * len(lookups)
        for topics, column in (
            (["t"], "key"),
            (["t", "x", "xa", "none"], "key"),
            (None, "message_id"),
        ):
            self._ask_for_absent(index, absent // 3, topics, column)

    def _named(self):
        """Return lookups and the offset that each must find, None for nothing."""
        lookups, wanted = [], []
        for place, (here, twin) in enumerate(self.pairs):
            lookups += [{"topic": "t", "key": here}, {"topic": "t", "key": twin}]
            wanted += [place, None]
        for place, (topic, key) in enumerate(JOINED):
            offset = None if place % 2 else 10_000 + place // 2
            lookups += [
                {"topic": topic, "key": key},
                {"topic": topic, "key": f"{topic}#{key}"},  # its message ID is no key
                {"message_id": f"{topic}#{key}"},
                {"message_id": key},
                {"topic": key, "key": topic},
            ]
            swapped = {pair: 10_000 + n // 2 for n, pair in enumerate(JOINED) if n % 2 == 0}
            of_id = {f"{a}#{b}": at for (a, b), at in swapped.items()}
            wanted += [
                offset, swapped.get((topic, f"{topic}#{key}")), of_id.get(f"{topic}#{key}"),
                of_id.get(key), swapped.get((key, topic)),
            ]  # fmt: skip
        return lookups, wanted

    def _ask_for_absent(self, index, count, topics, column):
        if self.slots == 1:
            count = min(count, SHORT)  # each of them walks the only chain
        for first in range(0, count, CALL):
            numbers = range(first, min(first + CALL, count))
            table = {column: _numbered(f"absent-{self.seed}-{self.asked}-", numbers)}
            if topics is not None:
                rows = np.arange(len(numbers)) % len(topics)
                table["topic"] = pa.array(np.array(topics)[rows])
            found = index.query_batch_arrow(pa.table(table), max_count=1 + first % 2)
            assert found.num_rows == 0, found.to_pylist()[:3]
            self.asked += len(numbers)


def search_for_false_matches(folder, absent, seed=0):
    """Ask in every state for what is there and what is not; return how many lookups that were."""
    return Search(folder, seed).run(absent)


def _numbered(prefix, numbers):
    return pc.binary_join_element_wise(prefix, pa.array(numbers, pa.int64()).cast(pa.string()), "")
