"""A decision that code or a page refers to exists, and each page of docs/decisions is one of its kind."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tools.document_decisions import HEADING

ROOT = Path(__file__).parents[2]
PAGES = {path.name[:4]: path for path in (ROOT / "docs" / "decisions").glob("[0-9]*.md")}
_REFERENCE = re.compile(r"\bdecisions?[\s/#]+(\d{4})\b", re.IGNORECASE)
_TEXTS = (".py", ".md", ".toml", ".js", ".html", ".java", ".scala", ".yaml", ".sh")


def references(text):
    """Return the numbers of the decisions that a text refers to."""
    return set(_REFERENCE.findall(text))


def test_referenced_decisions_exist():
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    paths = [ROOT / name for name in listed if name.endswith(_TEXTS) or name == "Makefile"]
    found = {
        f"{path.relative_to(ROOT)}: {number}"
        for path in paths
        if path.is_file() and path != Path(__file__)
        for number in references(path.read_text()) - set(PAGES)
    }
    assert found == set()


def test_references_are_found_in_each_spelling():
    text = (
        "decision 0001, decisions\n0002, docs/decisions/0003-x.md; Decision 0004: a revision 0005"
    )
    assert references(text) == {"0001", "0002", "0003", "0004"}


@pytest.mark.parametrize("number", sorted(PAGES))
def test_decision_is_short_and_says_what_was_decided(number):
    text = PAGES[number].read_text()
    assert HEADING.match(text)["number"] == number
    assert "**Decision.**" in text
    assert len(text.split()) <= 300, (
        "80 to 200 words; what explains a module belongs in its opening"
    )
