"""docs/reliability.json: what each experiment did when it last ran, and in all its reported runs.

`make docs` makes docs/reliability.md from it.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from pathlib import Path

REPORT = Path(__file__).parent.parent.parent / "docs" / "reliability.json"


def read(path=REPORT):
    """Return what is known of each experiment, by name."""
    return json.loads(path.read_text())["experiments"] if path.exists() else {}


def describe(campaign):
    """What is written down of one experiment's run."""
    return {
        "tried": campaign.tried,
        "cases": campaign.next_case,
        "reached": campaign.reached,
        "seconds": round(campaign.spent),
        "seed": campaign.seed,
        "findings": campaign.findings,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": _commit(),
        "machine": _machine(),
    }


def add(campaigns, path=REPORT):
    """Put these runs beside the earlier ones of other experiments; sum up over all runs."""
    known = read(path)
    for campaign in campaigns:
        before = known.get(campaign.experiment.name, {"runs": 0, "tried_in_all": 0, "seeds": []})
        known[campaign.experiment.name] = {
            "runs": before["runs"] + 1,
            "tried_in_all": before["tried_in_all"] + campaign.tried,
            "seeds": sorted({*before["seeds"], campaign.seed}),
            "last": describe(campaign),
        }
    path.write_text(json.dumps({"experiments": known}, indent=1, sort_keys=True) + "\n")


def _commit():
    asked = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=10", "HEAD"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def _machine():
    info = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in info if line.startswith("model name")]
    cores = len(os.sched_getaffinity(0))
    model = models[0] if models else platform.machine()
    return (
        f"{cores} cores of {model}, Linux {platform.release()}, Python {platform.python_version()}"
    )
