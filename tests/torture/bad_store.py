"""A store with faults at every turn: writers never wait, nothing is published twice, half, or orphaned."""

from __future__ import annotations

from tests.stateful.world import UNWELL, World
from tests.torture.simulation import CHANCES


def live_with_faults(seed, faults, share=3.0):
    """Put and compact until `faults` faults have struck; then make the store well and compare."""
    world = World(seed, merge_below_items=400, grace_time=50.0)
    site = world.sites["alpha"]
    world.store.chances = {fault: min(0.4, share * chance) for fault, chance in CHANCES.items()}
    rounds = 0
    while len(world.store.history) < faults:
        rounds += 1
        calls = sum(world.store.calls(verb) for verb in ("put", "put_if_absent", "upload", "get"))
        site.put_batch([site.make_put("t", ["A"], f"M{i % 5}", 0, 1000 + i) for i in range(20)])
        site.flush("disk")
        now = sum(world.store.calls(verb) for verb in ("put", "put_if_absent", "upload", "get"))
        assert now == calls, "a put waited for the store"
        site.index.roll()
        if rounds % 7 == 3:
            world.store.begin_outage()
        elif rounds % 7 == 5:
            world.store.end_outage()
        for _ in range(12):
            site.index._parts.writing.compactor.step()
            world.clock.advance(20)
        try:
            site.index.refresh()
            site.check_beside_faults(next(iter(site.model.lookups)))
        except UNWELL:
            pass
    struck = len(world.store.history)
    world.settle()
    assert {info.state for info in site.index.files()} <= {"uploaded", "unsealed"}
    items = sum(info.item_count for info in site.index.files())
    assert items == 2 * len(site.model.puts), "published twice, or half"
    world.close()
    return struck
