"""A power cut between puts: what was acknowledged `disk` stays, what was not is a prefix."""

from __future__ import annotations

import contextlib
import random

import pytest

from tests.compactor_steps import step
from tests.simulation.simulated_disk import SimulatedCrash
from tests.stateful.world import UNWELL, World
from tierdex.testing.components import components_of


@pytest.mark.parametrize("seed", range(60))
def test_what_survives_a_power_cut_over_several_files_is_a_prefix(seed):
    source = random.Random(seed)
    world = World(seed)
    site = world.sites["alpha"]
    for _ in range(source.randrange(1, 6)):
        count = source.randrange(1, 150)  # up to two files and a half
        site.put_batch([site.make_put("orders", ["A"], None, 0, 1000 + i) for i in range(count)])
        if source.random() < 0.2:
            site.flush("disk")
        if source.random() < 0.2:
            site.index.roll()
        if source.random() < 0.1:
            site.compact()
    density = source.random()
    site.cut_power(lambda effect: source.random() < density)
    world.close()


def make_two_files(seed=1):
    world = World(seed)
    site = world.sites["alpha"]
    site.put_batch([site.make_put("orders", ["A"], None, 0, i) for i in range(50)])
    site.flush("disk")
    site.put_batch([site.make_put("orders", ["A"], None, 0, i) for i in range(10)])
    site.index.roll()
    site.put_batch([site.make_put("orders", ["B"], None, 0, i) for i in range(10)])
    return world, site


def test_whichever_one_effect_is_lost_no_file_stays_behind_a_gap():
    left = set()
    for lost in range(len(make_two_files()[1].disk.pending_effects())):
        world, site = make_two_files()
        numbers = iter(range(1 << 30))
        site.cut_power(lambda effect, n=numbers, lost=lost: next(n) != lost)
        left.add(len(site.model.puts))
        site.kill()  # and the next start agrees
        world.close()
    assert left == {50, 60, 70}  # the older file's tail, the newer one's record or rows, or neither


def test_power_cut_after_a_kill_within_a_seal_keeps_the_sealed_file():
    """The footer was there, so recovery renamed the file; its length was not durable yet."""
    for nth in range(1, 4):
        for after in (False, True):
            world = World(nth)
            site = world.sites["alpha"]
            site.put_batch([site.make_put("t", ["A"], None, 0, i) for i in range(20)], "disk")
            site.index.roll()
            site.disk.crash_at(nth, kind="sync", after=after)
            with contextlib.suppress(SimulatedCrash):
                step(components_of(site.index).writing.compactor)
            site.kill()
            site.cut_power(lambda effect: False)
            assert len(site.model.puts) == 20
            world.close()


@pytest.fixture
def site_after_failed_sync():
    """Rows on several pages that the kernel takes for clean, and the device never got."""
    world = World(item_capacity=400)
    site = world.sites["alpha"]
    site.put_batch([site.make_put("t", ["A"], None, 0, i) for i in range(300)])
    site.disk.fail("mapping_sync", 2)  # the first is the header's
    yield site
    world.close()


@pytest.mark.parametrize("ending", ["close", "kill"])
def test_next_process_does_not_believe_in_a_sync_that_failed(site_after_failed_sync, ending):
    site = site_after_failed_sync
    with pytest.raises(UNWELL):
        site.flush("disk") if ending == "kill" else site.index.close()
    site.kill()
    site.put_batch([site.make_put("t", ["A"], None, 0, 300)], "disk")
    site.cut_power(lambda effect: False)
    assert len(site.model.puts) == 301


def test_recovery_seals_nothing_that_a_failed_sync_may_have_lost(site_after_failed_sync):
    site = site_after_failed_sync
    with pytest.raises(UNWELL):
        site.flush("disk")
    site.put_batch([site.make_put("t", ["B"], None, 0, i) for i in range(5)])  # into a newer file
    site.kill()
    site.cut_power(lambda effect: False)
    assert len(site.model.puts) == 305


@pytest.mark.parametrize("ending", ["reopen", "kill"])
def test_disk_is_known_at_once_after_an_opening_and_a_power_cut_takes_nothing_below_it(ending):
    world = World()
    site = world.sites["alpha"]
    site.put_batch([site.make_put("t", ["A"], None, 0, i) for i in range(150)])  # two files, `os`
    getattr(site, ending)()
    assert site.index.watermark("t", 0) == {"os": 1500, "disk": 1500, "remote": None}
    site.put_batch([site.make_put("t", ["A"], None, 0, i) for i in range(10)])
    assert site.index.watermark("t", 0) == {"os": 1600, "disk": 1500, "remote": None}
    site.cut_power(lambda effect: False)
    assert len(site.model.puts) == 150
    world.close()


def test_opening_whose_sync_fails_promises_nothing_and_has_the_file_written_anew(
    site_after_failed_sync,
):
    site = site_after_failed_sync
    with pytest.raises(UNWELL):
        site.flush("disk")
    site.drop()
    site.disk = site.disk.restart()
    site.disk.fail("mapping_sync", 2)  # once more, of the opening now
    site.open()
    assert site.index.watermark("t", 0) == {"os": 3000, "disk": None, "remote": None}
    with pytest.raises(UNWELL):
        site.flush("disk")
    step(components_of(site.index).writing.compactor)
    site.flush("disk")
    site.check_watermarks()
    site.cut_power(lambda effect: False)
    assert len(site.model.puts) == 300
