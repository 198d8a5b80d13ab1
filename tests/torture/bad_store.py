"""A store with faults at every turn: writers never wait, nothing is published twice, half, or orphaned."""

from __future__ import annotations

from collections import Counter

from tests.compactor_steps import step
from tests.stateful.world import UNWELL, World
from tests.torture import simulation
from tierdex.testing.components import components_of
from tierdex.testing.faulty_store import Fault

# Conditional writes are few and decide most.
CHANCES = {**simulation.CHANCES, Fault.BUSY: 0.1, Fault.TAKEN_BY_OURSELVES: 0.1}


def live_with_faults(seed, faults, share=1.0):
    """Put and compact until `faults` faults have struck; then make the store well and compare.

    Returns how often each fault struck, refusals of the outages not counted.
    """
    world = World(seed, merge_below_items=400, grace_time=50.0)
    site = world.sites["alpha"]
    world.store.chances = {fault: share * chance for fault, chance in CHANCES.items()}
    rounds = in_outages = 0
    while len(world.store.history) - in_outages < faults:
        rounds += 1
        calls = sum(world.store.calls(verb) for verb in ("put", "put_if_absent", "upload", "get"))
        site.put_batch([site.make_put("t", ["A"], f"M{i % 5}", 0, 1000 + i) for i in range(20)])
        site.flush("disk")
        now = sum(world.store.calls(verb) for verb in ("put", "put_if_absent", "upload", "get"))
        assert now == calls, "a put waited for the store"
        site.index.roll()
        is_out = rounds % 7 in (3, 4)  # eight minutes
        if is_out:
            world.store.begin_outage()
        struck_before = len(world.store.history)
        for _ in range(12):
            step(components_of(site.index).writing.compactor)
            world.clock.advance(20)
        try:
            site.index.refresh()
            site.check_beside_faults(next(iter(site.model.lookups)))
        except UNWELL:
            pass
        if is_out:
            in_outages += len(world.store.history) - struck_before
            world.store.end_outage()
    struck = Counter(each.fault for each in world.store.history)
    struck[Fault.FAIL_BEFORE] -= in_outages
    world.settle()
    assert {info.state for info in site.index.files()} <= {"uploaded", "unsealed"}
    items = sum(info.item_count for info in site.index.files())
    assert items == 2 * len(site.model.puts), "published twice, or half"
    world.close()
    return struck
