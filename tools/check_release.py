"""Whether the versions agree: of the package, of tierdex-client, of CHANGELOG.md and of a tag.

    python -m tools.check_release          before a wheel is built
    python -m tools.check_release v0.1.0   for a tag: its version is released, with its date

Depends on nothing.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
_HEADING = re.compile(r"^## (?P<version>[^,\s]+), (?P<date>.+)$", re.MULTILINE)
_SAID = re.compile(r'^__version__: Final = "(.+)"', re.MULTILINE)
_DATE = re.compile(r"\d{4}-\d\d-\d\d")


def faults(root: Path, tag: str | None) -> list[str]:
    """Return what does not agree, in words."""
    version = _version(root / "pyproject.toml")
    found = []
    client = _version(root / "packages" / "tierdex-client" / "pyproject.toml")
    if client != version:
        found.append(f"tierdex-client is {client}, tierdex {version}")
    said = _SAID.search((root / "tierdex" / "ids.py").read_text())
    if said is None or said[1] != version:
        found.append(f"tierdex/ids.py does not say {version}")
    newest = _HEADING.search((root / "CHANGELOG.md").read_text())
    if newest is None or newest["version"] != version:
        found.append(f"the first heading of CHANGELOG.md is not '## {version}, ...'")
    elif tag is not None and not _DATE.fullmatch(newest["date"]):
        found.append(f"CHANGELOG.md says '{newest['date']}' of {version}: a tag wants its date")
    if tag is not None and tag != f"v{version}":
        found.append(f"the tag is {tag}, the version {version}")
    return found


def _version(pyproject: Path) -> str:
    version: str = tomllib.loads(pyproject.read_text())["project"]["version"]
    return version


if __name__ == "__main__":
    problems = faults(ROOT, next(iter(sys.argv[1:]), None))
    print("\n".join(problems) or "the versions agree")
    sys.exit(bool(problems))
