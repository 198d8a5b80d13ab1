"""Timing side by side: rounds in which the contestants take turns, the first one changing.

A machine's speed drifts; contestants that run in the same round meet the same drift. Medians of the
rounds are compared, never the best of them.
"""

from __future__ import annotations

import gc
import statistics
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROUNDS = 7


@dataclass
class Row:
    """One line of the table. `ratio` is what is compared with `target`; `better` says which way.

    `ours` and `peer` are in `unit`; None where there is no such number.
    """

    target: int  # which part of the report: TITLES there
    name: str
    unit: str
    ours: float | None
    peer_name: str = ""
    peer: float | None = None
    ratio: float | None = None
    limit: float | None = None
    better: str = "<="  # the ratio is to be <= or >= the limit; "" for a figure without a target
    note: str = ""

    @property
    def met(self) -> bool | None:
        if self.limit is None or self.ratio is None or not self.better:
            return None
        return self.ratio <= self.limit if self.better == "<=" else self.ratio >= self.limit


@dataclass
class Timings:
    """Seconds (or whatever was measured) of each contestant, round by round."""

    rounds: dict[str, list[float]] = field(default_factory=dict)

    def median(self, name: str) -> float:
        return statistics.median(self.rounds[name])

    def best(self, names: list[str]) -> tuple[str, float]:
        """Return the fastest of `names` and its median."""
        return min(((name, self.median(name)) for name in names), key=lambda pair: pair[1])


def seconds(action: Callable[[], Any]) -> float:
    """Return how long one call takes, the garbage collector off."""
    gc.disable()
    try:
        begin = time.perf_counter()
        action()
        return time.perf_counter() - begin
    finally:
        gc.enable()


def take_turns(contestants: Mapping[str, Callable[[int], float]], rounds: int = ROUNDS) -> Timings:
    """Call each contestant once a round with the round's number; keep what it returns."""
    timings = Timings({name: [] for name in contestants})
    names = list(contestants)
    for number in range(rounds):
        shift = number % len(names)
        order = names[shift:] + names[:shift]
        if number % 2:
            order.reverse()
        for name in order:
            timings.rounds[name].append(contestants[name](number))
    return timings


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
