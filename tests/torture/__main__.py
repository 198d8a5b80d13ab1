"""`make torture`: try hard to break the promises. ARGS="--seconds 600 --seed 1 --jobs 2 --only NAME".

Without `--seconds` every experiment goes on until its default dose is reached; with it, all are cut
short in proportion. Each runs in a process of its own; `--jobs 2` keeps two going. Every finding is
printed with the line that runs it again (`--only NAME --seed S --case C`, in this process). With
`--report` what was tried is added to docs/reliability.json, from which docs/reliability.md is made.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib import import_module

from tests.torture import report
from tests.torture.campaign import MODULE, SAME_HASHES, Campaign, run_case


def main():
    arguments = _parse()
    there = import_module(arguments.module).EXPERIMENTS
    chosen = [each for each in there if not arguments.only or each.name in arguments.only]
    unknown = {*arguments.only, *arguments.leave_out} - {each.name for each in there}
    if unknown:
        sys.exit(f"there is no experiment {min(unknown)}; there are: {_names(there)}")
    chosen = [each for each in chosen if each.name not in arguments.leave_out]
    if arguments.case is not None:
        if os.environ.get("PYTHONHASHSEED") != SAME_HASHES["PYTHONHASHSEED"]:
            again = [sys.executable, "-m", "tests.torture", *sys.argv[1:]]
            os.execve(sys.executable, again, {**os.environ, **SAME_HASHES})
        logging.disable(logging.CRITICAL)
        for experiment in chosen:
            tried = run_case(experiment, arguments.seed, arguments.case, arguments.seconds)
            print(tried, experiment.unit)
        return
    campaigns = [
        Campaign(
            experiment, arguments.seed, _seconds(experiment, chosen, arguments),
            module=arguments.module,
        )
        for experiment in sorted(chosen, key=lambda each: -each.minutes)
    ]  # fmt: skip
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(f"seed {arguments.seed}", flush=True)
    told = []
    with ThreadPoolExecutor(arguments.jobs) as jobs:
        try:
            for done in as_completed([jobs.submit(each.run) for each in campaigns]):
                told.append(done.result())
                _tell(done.result(), arguments)
        except KeyboardInterrupt:
            print("stopped; what was tried until now counts", flush=True)
        finally:
            for campaign in campaigns:
                campaign.stop()
    for campaign in campaigns:
        if campaign not in told and campaign.tried:
            _tell(campaign, arguments)
    sys.exit(any(campaign.findings for campaign in campaigns))


def _seconds(experiment, chosen, arguments):
    if arguments.seconds is None:
        return None
    total = sum(each.minutes for each in chosen)
    return arguments.seconds * arguments.jobs * experiment.minutes / total


def _tell(campaign, arguments):
    _print(campaign)
    if arguments.report:
        report.add([campaign])


def _print(campaign):
    experiment = campaign.experiment
    dose = "all" if experiment.cases else f"{experiment.dose:,}"
    print(
        f"{experiment.name:14} {campaign.tried:10,} of {dose:>10} {experiment.unit:13}"
        f"{campaign.spent:8.1f} s  {len(campaign.findings)} findings",
        flush=True,
    )


def _names(experiments):
    return ", ".join(experiment.name for experiment in experiments)


def _parse():
    parser = argparse.ArgumentParser(
        prog="python -m tests.torture", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--seconds", type=float, help="time for all experiments; default: no limit")
    parser.add_argument(
        "--seed",
        type=int,
        default=int(time.time()) % 1_000_000,
        help="what everything follows from",
    )
    parser.add_argument("--jobs", type=int, default=1, help="experiments at the same time")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="this one; another name lists all",
    )
    parser.add_argument(
        "--module", default=MODULE, help="where other experiments are: the line of a finding has it"
    )
    parser.add_argument("--leave-out", action="append", default=[], metavar="NAME")
    parser.add_argument("--case", type=int, help="run one case again")
    parser.add_argument("--report", action="store_true", help="add to docs/reliability.json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
