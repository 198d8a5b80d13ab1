"""The service's libraries as old as pyproject.toml allows, in a folder of their own."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.callers_machine import installers_environment

ROOT = Path(__file__).parents[2]
_OF_THE_SERVER = ("fastapi", "httptools", "starlette", "uvicorn", "uvloop")


def server_requirements():
    """Return what pyproject.toml says about each library of the server: name -> its bounds."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = extras["optional-dependencies"]["server"]
    return dict(re.match(r"([\w-]+)(.*)", line).groups() for line in lines)


def install_lowest(folder):
    """Install the lowest versions into `folder`, and return it: the first entry of a PYTHONPATH."""
    bounds = server_requirements()
    lowest = [f"{name}=={re.search(r'>=([0-9.]+)', bounds[name])[1]}" for name in _OF_THE_SERVER]
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    command += ["--no-deps", "--target", str(folder), *lowest]
    subprocess.run(command, check=True, env=installers_environment())
    return folder
