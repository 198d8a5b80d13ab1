"""README and docs name the versions that pyproject.toml names."""

from __future__ import annotations

import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXTS = [*PROJECT["dependencies"], *chain(*PROJECT["optional-dependencies"].values())]
WANTED = {one.name.lower(): one.specifier for one in map(Requirement, TEXTS) if one.specifier}
_NAMED = re.compile(
    r"\b([A-Za-z][\w.-]*?)((?:[<>=~!]=|[<>])\d[\w.]*(?:,(?:[<>=~!]=|[<>])\d[\w.]*)*)"
)
_PYTHON = re.compile(r"Python (3\.\d+) or newer")


def named(text):
    """Yield (name, specifier) of each version that a page names as pip writes them."""
    for name, versions in _NAMED.findall(text):
        if name.lower() in WANTED:
            yield name.lower(), Requirement(f"{name}{versions}").specifier


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_versions_of_a_page_are_those_of_pyproject(page):
    for name, versions in named(page.read_text()):
        assert versions == WANTED[name], f"{page.name}: {name}{versions}, not {WANTED[name]}"


def test_versions_are_named_at_all():
    """Else the pattern above would find nothing, unnoticed."""
    found = {name for page in PAGES for name, _ in named(page.read_text())}
    assert {"pyspark", "pandas"} <= found


def test_python_is_the_one_of_pyproject():
    pages = {str(page.relative_to(ROOT)): _PYTHON.findall(page.read_text()) for page in PAGES}
    least = PROJECT["requires-python"].removeprefix(">=")
    assert pages["README.md"] == pages["CONTRIBUTING.md"] == [least]
    assert {version for versions in pages.values() for version in versions} == {least}
    newest = max(
        text.rpartition(" ")[2] for text in PROJECT["classifiers"] if "Python :: 3." in text
    )
    image = re.search(r"FROM python:(\d\.\d+)", (ROOT / "Dockerfile").read_text())[1]
    assert tuple(map(int, least.split("."))) <= tuple(map(int, image.split(".")))
    assert tuple(map(int, image.split("."))) <= tuple(map(int, newest.split(".")))
