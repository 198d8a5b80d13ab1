"""Keeps the caller's machine out of the tests: working folder, home, and what the environment says.

A folder `data` of `make run`, a profile of AWS or a variable TIERDEX_STORE changed what tests saw. Programs
that install packages are the exception: the caller's home says which registries they may use.
"""

from __future__ import annotations

import os
import tempfile
from typing import Final

_HOME: Final = "CALLERS_HOME"  # handed down to the processes of one run
_PREFIXES: Final = ("TIERDEX_", "AWS_", "XDG_CONFIG_")


def leave() -> None:
    """Take the caller's settings out of this process, and go to an empty working folder and home."""
    for name in [name for name in os.environ if name.startswith(_PREFIXES)]:
        del os.environ[name]
    if _HOME not in os.environ:
        os.environ[_HOME] = os.environ.get("HOME", "/")
        os.environ["HOME"] = tempfile.mkdtemp(prefix="tierdex-home-")
    os.chdir(tempfile.mkdtemp(prefix="work-", dir=os.environ["HOME"]))


def installers_environment() -> dict[str, str]:
    """Return the environment of a program that installs packages."""
    return {**os.environ, "HOME": os.environ.get(_HOME, os.environ.get("HOME", "/"))}
