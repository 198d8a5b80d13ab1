"""A power cut between puts: what was acknowledged `disk` stays, what was not is a prefix."""

from __future__ import annotations

import random

import pytest

from tests.stateful.world import World


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


def test_file_behind_lost_batches_is_dropped_and_the_next_start_agrees():
    world = World(1)
    site = world.sites["alpha"]
    site.put_batch([site.make_put("orders", ["A"], None, 0, i) for i in range(50)])
    site.flush("disk")
    site.put_batch([site.make_put("orders", ["A"], None, 0, i) for i in range(10)])
    site.index.roll()
    site.put_batch([site.make_put("orders", ["B"], None, 0, i) for i in range(10)])
    pages = [effect for effect in site.disk.pending_effects() if effect.kind == "page"]
    older = pages[0]  # of the file with the lower number: its only rows that were not synced

    def lost(effect):
        return (effect.path, effect.position, effect.image) == (older.path, older.position, older.image)

    assert any(lost(effect) for effect in pages)
    site.cut_power(lambda effect: effect.kind != "page" or not lost(effect))
    assert len(site.model.puts) in (50, 70)  # 70 when the page was one of slots, which are rebuilt
    site.kill()
    world.close()
