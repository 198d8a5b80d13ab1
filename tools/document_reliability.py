"""docs/reliability.md: what `make torture` tries and what its last runs did, from what they wrote."""

from __future__ import annotations

import json
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tools.generated_parts import fill, table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def generate(root: Path) -> dict[Path, str]:
    """Return the page with today's experiments and the numbers of docs/reliability.json."""
    path = root / "docs" / "reliability.md"
    runs = json.loads((root / "docs" / "reliability.json").read_text())["experiments"]
    experiments = import_module("tests.torture.experiments").EXPERIMENTS
    parts = {
        "experiments": table(
            ("experiment", "tries to break", "in `make test`", "default of `make torture`"),
            [(each.name, each.promise, _count(each, each.small_dose), _dose(each)) for each in experiments],
        ),
        "last_run": table(
            ("experiment", "tried", "default reached", "seed", "s", "findings", "commit", "all runs"),
            [_last_run(each, runs[each.name]) for each in experiments if each.name in runs],
        ),
        "machines": _machines(runs),
    }  # fmt: skip
    return {path: fill(path.read_text(), parts)}


def _count(experiment: Any, number: int) -> str:
    return f"{number:,} {experiment.unit}"


def _dose(experiment: Any) -> str:
    return f"all {experiment.unit}" if experiment.cases else _count(experiment, experiment.dose)


def _last_run(experiment: Any, runs: Mapping[str, Any]) -> tuple[str, ...]:
    last = runs["last"]
    seeds = ", ".join(str(seed) for seed in runs["seeds"])
    return (
        experiment.name,
        _count(experiment, last["tried"]),
        "yes" if last["reached"] else "no",
        str(last["seed"]),
        f"{last['seconds']:,}",
        str(len(last["findings"])),
        f"{last['commit']}, {last['date']}",
        f"{runs['tried_in_all']:,} in {runs['runs']}, seeds {seeds}",
    )


def _machines(runs: Mapping[str, Any]) -> str:
    machines = sorted({each["last"]["machine"] for each in runs.values()} - {"unknown"})
    return "".join(f"* {machine}\n" for machine in machines) or "* unknown\n"
