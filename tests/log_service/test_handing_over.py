"""A log is handed over over a store that fails, is dead, or whose answer is lost."""

from __future__ import annotations

import pytest

from tests.log_service.recovery.test_takeover import fill
from tierdex.errors import FencedError, UnavailableError
from tierdex.testing.faulty_store import Fault


def test_dead_store_lets_nobody_take_a_log_over_and_a_failed_hand_over_goes_on(world):
    log = world.open()
    fill(world, log, 12)
    with world.store.outage():
        with pytest.raises(UnavailableError):
            log.hand_over()
        fill(world, log, 3)
        with pytest.raises(UnavailableError, match="taken over"):
            world.elsewhere().open(takeover=True)
    log.hand_over()
    log.close()
    other = world.elsewhere()
    log = other.open(takeover=True)
    other.look(log)


@pytest.mark.parametrize("verb", ["upload", "put_if_absent"])
def test_hand_over_goes_on_when_calls_of_the_store_fail_meanwhile(world, verb):
    log = world.open()
    fill(world, log, 12)
    world.store.fail(verb, nth=1, fault=Fault.FAIL_BEFORE, count=3)
    log.hand_over()
    assert [struck.verb for struck in world.store.history] == [verb] * 3
    log.close()
    other = world.elsewhere()
    other.look(other.open(takeover=True))


def test_release_whose_answer_was_lost_takes_no_appends_until_it_is_known(world):
    log = world.open()
    fill(world, log, 12)
    log.roll()
    log.run_compaction()
    log.index.roll()
    log.run_compaction()
    world.store.fail("put_if_absent", nth=1, fault=Fault.FAIL_AFTER)
    with pytest.raises(UnavailableError):
        log.hand_over()
    with pytest.raises(FencedError, match="handed over"):
        log.append(topic="a", queue_id=0, body=b"who knows")
    log.hand_over()
    log.close()
    world.elsewhere().open(takeover=True)
