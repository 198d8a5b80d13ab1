"""Pauses double up to the longest, jitter by half at most, and end with a success."""

from __future__ import annotations

from tierdex.clock import ManualClock
from tierdex.compactor.rounds import Backoff
from tierdex.ids import SeededIds


def test_pauses_double_up_to_the_longest():
    clock = ManualClock()
    backoff = Backoff(clock, SeededIds(1), 10.0)
    assert backoff.remaining_s() == 0
    for failures in range(40):
        backoff.fail()
        longest = min(0.2 * 2**failures, 10.0)
        assert longest / 2 <= backoff.remaining_s() <= longest
    clock.advance(10)
    assert backoff.remaining_s() == 0


def test_a_success_ends_the_pause_and_begins_anew():
    backoff = Backoff(ManualClock(), SeededIds(1), 10.0)
    for _ in range(9):
        backoff.fail()
    backoff.succeed()
    assert backoff.remaining_s() == 0
    backoff.fail()
    assert backoff.remaining_s() <= 0.2
