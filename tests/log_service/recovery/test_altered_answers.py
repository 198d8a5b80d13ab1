"""Answers of the store that were altered, or cut short, on their way: an opening asks a second time."""

from __future__ import annotations

import pytest

from tests.log_service.recovery.test_takeover import fill, publish
from tests.log_service.store_listing import state_of
from tierdex.lifecycle.manifests.file_row import LOG_KIND
from tierdex.testing.faulty_store import Fault


@pytest.mark.parametrize("fault", [Fault.ALTERED_BODY, Fault.SHORT_BODY])
def test_answer_that_was_altered_on_its_way_is_asked_for_again_by_an_opening(world, fault):
    log = world.open()
    for _ in range(2):
        fill(world, log, 12)
        publish(log)
        log.index.roll()
        log.run_compaction()
    log.close()
    nth, asked = 0, 1
    while nth < asked:  # each answer once
        nth += 1
        other = world.elsewhere()
        world.store.fail("get", nth=nth, fault=fault)
        before = world.store.calls("get")
        taken = other.open(takeover="lossy")
        asked = world.store.calls("get") - before
        world.store.cancel_faults()
        assert taken.end_offset("a", 0) == len(world.handed["a", 0])
        taken.close()
    assert nth > 7


@pytest.mark.parametrize("share", range(12))
def test_sidecar_that_was_altered_anywhere_on_its_way_is_asked_for_again(world, share):
    log = world.open()
    fill(world, log, 60)
    publish(log)
    log.close()
    other = world.elsewhere()
    (row,) = state_of(world.store).files_of(LOG_KIND).values()
    altered = []

    def alter_once(key, position=None, length=None):
        data = inner_get(key, position, length)
        if key == row.object_key and not altered:
            altered.append(key)
            place = len(data) * share // 12
            return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        return data

    inner_get, world.store.inner.get = world.store.inner.get, alter_once
    taken = other.open(takeover="lossy")
    assert altered
    other.look(taken)
    taken.close()
