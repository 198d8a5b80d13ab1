"""What a distribution of this repository brings with it, as it is installed here: nothing is fetched."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from functools import cache
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROJECTS = {"tierdex": ROOT, "tierdex-client": ROOT / "packages" / "tierdex-client"}


def brought_by(wanted: str) -> dict[str, importlib.metadata.Distribution]:
    """Return the distributions of others that one of ours brings, with extras: `tierdex[server]`."""
    asked = Requirement(wanted)
    project = tomllib.loads((PROJECTS[asked.name] / "pyproject.toml").read_text())["project"]
    texts = list(project["dependencies"])
    for extra in asked.extras:
        texts += project["optional-dependencies"][extra]
    found: dict[tuple[str, frozenset[str]], importlib.metadata.Distribution] = {}
    waiting = [Requirement(text) for text in texts]
    while waiting:
        one = waiting.pop()
        name, extras = re.sub("[-_.]+", "-", one.name).lower(), frozenset(one.extras)
        if name in PROJECTS:  # an extra that names others
            return brought_by(f"{name}[{','.join(one.extras)}]")
        if (name, extras) not in found:
            known = found[name, extras] = importlib.metadata.distribution(name)
            waiting += _chosen(known.requires or (), extras)
    return {name: known for (name, _), known in found.items()}


def _chosen(texts, extras) -> list[Requirement]:
    """Return the requirements that hold here with some extras."""
    wanted = [Requirement(text) for text in texts]
    asked = [{"extra": extra} for extra in ("", *extras)]
    return [one for one in wanted if one.marker is None or any(map(one.marker.evaluate, asked))]


@cache
def installed_bytes(name: str) -> int:
    """Return the bytes of a distribution's files as it lists them, without what Python compiles."""
    files = importlib.metadata.distribution(name).files or ()
    return sum(file.size or 0 for file in files if "__pycache__" not in str(file))
