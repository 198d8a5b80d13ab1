"""Jars for tests and benchmarks that want a real Java server: fetched by Maven, by its own settings.

What was fetched is kept in the machine's temporary folder, with the POM that it is of: it need not come
twice.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import tempfile
from pathlib import Path

_FETCH_S = 600.0  # it ends only what would never end


class JarsUnavailableError(Exception):
    """The jars cannot be had here, and why."""


def fetch_jars(pom: Path, name: str) -> Path:
    """Return the folder with the jars that a POM names, and theirs. Raises JarsUnavailableError."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise JarsUnavailableError(f"there is no {program} here")
    home = Path(tempfile.gettempdir()) / f"tierdex-{name}"
    home.mkdir(exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several processes of one test run
        fetched = home / "fetched.xml"
        if not fetched.exists() or fetched.read_text() != pom.read_text():
            shutil.rmtree(home / "lib", ignore_errors=True)
            run_tool(
                ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies",
                 f"-DoutputDirectory={home / 'lib'}"]
            )  # fmt: skip
            shutil.copy(pom, fetched)
    return home / "lib"


def run_tool(command: list[str]) -> None:
    """Run Maven or a compiler to its end. Raises JarsUnavailableError with its last line."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_FETCH_S, check=False
        )
    except (subprocess.TimeoutExpired, OSError) as error:
        raise JarsUnavailableError(f"{command[0]} did not end well: {error}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise JarsUnavailableError(f"{command[0]} failed: {' '.join(said)[:200]}")
