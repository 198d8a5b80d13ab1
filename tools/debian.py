"""Debian's packages for tests and benchmarks that want a real program: installed where that is allowed."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_TIMEOUT_S = 240.0  # of one apt-get: it ends only what would never end
# Workers of one test run may want packages at the same time, and dpkg serves one at a time.
_LOCK = Path(tempfile.gettempdir()) / "tierdex-tests-packages.lock"


def has_programs(programs: Sequence[str], packages: Sequence[str]) -> bool:
    """Say whether all `programs` are here, after installing `packages` if they were not."""
    if _are_here(programs):
        return True
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    with _LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _are_here(programs) or (_install(packages) and _are_here(programs))


def _are_here(programs: Sequence[str]) -> bool:
    return all(shutil.which(program) for program in programs)


def _install(packages: Sequence[str]) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ("apt-get", "update", "-q"),  # may fail: the list that is here may do
        ("apt-get", "install", "-q", "-y", "--no-install-recommends", *packages),
    ):
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, timeout=_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            return False
    return done.returncode == 0
