"""Garbage collection of a node that never pauses: what lies in its folder is bounded."""

from __future__ import annotations

from tierdex.clock import ManualClock
from tierdex.compactor.collect import collect_node
from tierdex.ids import SeededIds
from tierdex.lifecycle.manifests.manifest import Change
from tierdex.lifecycle.manifests.manifest_log import ManifestLog
from tierdex.lifecycle.nodes.ownership import OwnedNode
from tierdex.storage_layer.memory import MemoryStore

SECOND_MS = 1000
COMMITS_AN_HOUR = 360
GRACE_MS = 3600 * SECOND_MS
CHECKPOINT_EVERY = 32


def test_two_days_of_a_commit_every_ten_seconds_keep_few_manifests(caplog):
    caplog.set_level("WARNING")
    clock = ManualClock()
    store, ids = MemoryStore(clock=clock), SeededIds(1)
    log = ManifestLog(store, "n1", clock=clock, ids=ids, checkpoint_every=CHECKPOINT_EVERY)
    node = OwnedNode.open(log, ids)
    kept = []
    for _ in range(2 * 24):
        for turn in range(COMMITS_AN_HOUR):
            clock.advance(10)
            node.commit(lambda state, at=turn: Change(streams={"q": state.number + at}))
            if turn % 45 == 0:  # an eighth of the grace time, as the compactor does
                while collect_node(node, store, now_ms=clock.now_ms(), grace_ms=GRACE_MS).done:
                    pass
        kept.append(log.state.number - log.state.collected)
    # A grace time of numbers, and what lies between two checkpoints that are remembered and two rounds.
    assert max(kept) < 2 * COMMITS_AN_HOUR
    assert max(kept[len(kept) // 2 :]) <= max(kept[: len(kept) // 2])
    assert len(log.state.checkpoints) <= 64
    stored = list(store.list(log.paths.manifest_prefix))
    tombstones = [found for found in stored if b" tombstone " in store.get(found.key)[:64]]
    assert len(stored) == log.state.number  # a number is never deleted: what is collected is small
    assert len(stored) - len(tombstones) == kept[-1]
    assert sum(found.size for found in tombstones) < 128 * len(tombstones)
    # A reader that begins anew finds the end of it all the same.
    again = ManifestLog(store, "n1", clock=clock, ids=ids, checkpoint_every=CHECKPOINT_EVERY)
    assert again.load() == log.state
