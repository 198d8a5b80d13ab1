"""Damaged bytes of every form of file, all of them in order: no crash, no hang, no wrong entry.

A *chunk* is some damages of one form, tried one after another; chunks take the forms in turn. The
damaged bytes lie in guarded memory, so that a kernel that reads beyond them ends the process, which
`campaign.py` reports. The whole index over damaged files: damaged_index.py.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

from tests.torture.experiment import Experiment
from tests.torture.forms import FORMS

CHUNK = 2048
SEED = 3
SAMPLE = 190  # of a form, in `make test`


@cache
def _form(number):
    return FORMS[number](SEED)


@cache
def _chunks():
    """Return (form, first damage) of every chunk, the forms in turn."""
    counts = [_form(number).damages.count for number in range(len(FORMS))]
    return sorted(
        ((form, first) for form, count in enumerate(counts) for first in range(0, count, CHUNK)),
        key=lambda chunk: (chunk[1], chunk[0]),
    )


def count_chunks():
    return len(_chunks())


def damage_chunk(number):
    """Try one chunk; return how many damages that were. Raises AssertionError naming a wrong one."""
    place, first = _chunks()[number]
    last = min(first + CHUNK, _form(place).damages.count)
    return sum(damage(_form(place), range(first, last)).values())


def damage_sample(number):
    """Try some damages of every kind of form `number`."""
    form = _form(number)
    outcomes = damage(form, form.damages.sample(SAMPLE // 2 if form.is_slow else SAMPLE))
    assert outcomes["unharmed"] < sum(outcomes.values()) or form.never_fails, outcomes
    return sum(outcomes.values())


def damage(form, numbers):
    """Return how often each outcome came; all numbers are tried before the first failure is raised."""
    outcomes, failures = Counter(), []
    for number in numbers:
        name, data = form.damages.make(number)
        try:
            outcomes[form.judge(data)] += 1
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is a finding
            error.add_note(f"{form.name}, damage {number}: {name}")
            failures.append(error)
    if failures:
        failures[0].add_note(f"{len(failures)} of {len(numbers)} damages failed")
        raise AssertionError(f"{failures[0]!r}: {failures[0].__notes__}") from failures[0]
    return outcomes


ALL = Experiment(
    "corruption", "damaged bytes of every form of file", "damages", damage_chunk,
    dose=None, small_dose=1500, minutes=30, cases=count_chunks,
)  # fmt: skip
SOME = Experiment(
    "some-corruption", "damaged bytes of every form of file", "damages", damage_sample,
    dose=None, small_dose=1500, cases=lambda: len(FORMS),
)  # fmt: skip
EXPERIMENTS = (ALL, SOME)
