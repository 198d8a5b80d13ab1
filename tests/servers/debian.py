"""Debian's packages for tests that want a real program: installed where that is allowed."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.patience import PATIENCE_S

# Workers of one test run may want packages at the same time, and dpkg serves one at a time.
_LOCK = Path(tempfile.gettempdir()) / "tierdex-tests-packages.lock"


def has_programs(programs, packages) -> bool:
    """Say whether all `programs` are here, after installing `packages` if they were not."""
    if _are_here(programs):
        return True
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    with _LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _are_here(programs) or (_install(packages) and _are_here(programs))


def _are_here(programs) -> bool:
    return all(shutil.which(program) for program in programs)


def _install(packages) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ("apt-get", "update", "-q"),  # may fail: the list that is here may do
        ("apt-get", "install", "-q", "-y", "--no-install-recommends", *packages),
    ):
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, timeout=PATIENCE_S, check=False
            )
        except subprocess.TimeoutExpired:
            return False
    return done.returncode == 0
