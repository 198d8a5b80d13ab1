"""`python -m tests.torture --seconds N --seed S [--only NAME] [--case C]`: try hard to break the promises.

Time is shared among the experiments. Every finding is printed with the line that runs it again. With
`--report` the counts are written to docs/reliability.json, from which docs/reliability.md is made.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
import traceback
from pathlib import Path

from tests.torture.experiments import EXPERIMENTS

_REPORT = Path(__file__).parent.parent.parent / "docs" / "reliability.json"
_CASES = 10_000_000  # case numbers of one seed


def main():
    arguments = _parse()
    logging.disable(logging.CRITICAL)
    chosen = [e for e in EXPERIMENTS if arguments.only in (None, e.name)]
    if not chosen:
        sys.exit(f"there is no experiment {arguments.only}; there are: {_names()}")
    if arguments.case is not None:
        for experiment in chosen:
            experiment.run(arguments.seed * _CASES + arguments.case)
        return
    total = sum(experiment.share for experiment in chosen)
    results = []
    for experiment in chosen:
        seconds = arguments.seconds * experiment.share / total
        results.append(_try(experiment, seconds, arguments.seed))
    if arguments.report:
        _write_report(results, arguments)
    sys.exit(any(result["findings"] for result in results))


def _try(experiment, seconds, seed):
    began, cases, tried, findings = time.monotonic(), 0, 0, []
    while time.monotonic() - began < seconds and len(findings) < 20:
        try:
            tried += experiment.run(seed * _CASES + cases)
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is a finding
            traceback.print_exc()
            again = f"python -m tests.torture --only {experiment.name} --seed {seed} --case {cases}"
            print(f"FOUND {experiment.name}: {error!r:.200}\n  again: {again}", flush=True)
            findings.append(again)
        cases += 1
    spent = time.monotonic() - began
    print(
        f"{experiment.name:14} {tried:9} {experiment.unit:12} {spent:7.1f} s  "
        f"{len(findings)} findings", flush=True,
    )  # fmt: skip
    return {
        "name": experiment.name, "promise": experiment.promise, "unit": experiment.unit,
        "tried": tried, "seconds": round(spent), "seed": seed, "findings": findings,
    }  # fmt: skip


def _write_report(results, arguments):
    known = json.loads(_REPORT.read_text()) if _REPORT.exists() else {"experiments": []}
    fresh = {result["name"]: result for result in results}
    kept = [fresh.pop(old["name"], old) for old in known["experiments"]]
    report = {"experiments": [*kept, *fresh.values()], "last_seed": arguments.seed}
    _REPORT.write_text(json.dumps(report, indent=1) + "\n")


def _names():
    return ", ".join(experiment.name for experiment in EXPERIMENTS)


def _parse():
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--seconds", type=float, default=1800.0, help="time for all experiments")
    parser.add_argument(
        "--seed", type=int, default=int(time.time()), help="what everything follows from"
    )
    parser.add_argument("--only", help=f"one experiment: {_names()}")
    parser.add_argument("--case", type=int, help="run one case again")
    parser.add_argument("--report", action="store_true", help="write docs/reliability.json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
