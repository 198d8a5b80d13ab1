"""Doses that need servers of other projects: the tests marked `heavy`, and RocketMQ's index files.

What is not here (Maven, Java, a package) is skipped, and said.
"""

from __future__ import annotations

import subprocess
import sys

from tests.torture.real_rocketmq import compare_with_broker
from tools.maven import JarsUnavailableError

ROCKETMQ_MESSAGES = 100_000
_MOST_S = 1500


def run_heavy_tests(folder="tests/following"):
    """Run the tests of a folder that `make test` leaves out; return how many passed."""
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
        folder,
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


CASES = (run_heavy_tests, read_real_rocketmq)
