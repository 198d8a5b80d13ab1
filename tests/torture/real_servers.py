"""Doses that need servers of other projects: the tests marked `heavy`, and RocketMQ's index files.

What is not here (Maven, Java, a package) is skipped, and said.
"""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

from tests.torture.real_rocketmq import compare_with_broker
from tools.maven import JarsUnavailableError

ROCKETMQ_MESSAGES = 100_000
FOLLOWING = Path(__file__).parents[1] / "following"
_MOST_S = 1500


def run_heavy_tests(file):
    """Run the tests of a file that `make test` leaves out; return how many passed."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-m",
        "heavy",
        "-p",
        "no:cacheprovider",
        str(file),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_MOST_S, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    last = done.stdout.strip().splitlines()[-1]
    return int(last.split(" passed")[0].split()[-1]) if " passed" in last else 0


def read_real_rocketmq():
    """Compare RocketMQ's own index files with what its broker says; return how many keys."""
    try:
        return compare_with_broker(ROCKETMQ_MESSAGES)
    except JarsUnavailableError as error:
        print(f"skipped: no RocketMQ broker here: {error}")
        return 0


CASES = (
    *(
        partial(run_heavy_tests, file)
        for file in sorted(FOLLOWING.glob("test_*.py"))
        if "mark.heavy" in file.read_text()
    ),
    read_real_rocketmq,
)
