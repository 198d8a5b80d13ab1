"""What an experiment of `make torture` is: a stream of cases, doses, and what it tries to break."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Experiment:
    """`run(seed)` tries one case and returns how many things, of `unit`, that were.

    `dose` is how many `make torture` tries by default, `small_dose` how many `make test` does.
    `minutes` is what the dose takes on one quiet core, about: less time is shared in this proportion.
    An experiment that `takes_time` gets, beside the seed, the seconds that are left for it, None for its
    own measure: one case is all of it, so what it looks for may come late.
    An exhaustive experiment has `cases`, which counts them: `run` then gets the number of a case, from
    0 on, instead of a seed, and the dose is all of them.
    """

    name: str
    promise: str
    unit: str
    run: Callable[..., int]
    dose: int | None
    small_dose: int
    minutes: float = 5.0
    cases: Callable[[], int] | None = None
    takes_time: bool = False
