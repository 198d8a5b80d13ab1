"""The pages stay short, and pictures and lists name all that there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
WORDS_OF_A_PAGE = 2500
# Pages that maintainers look things up in, most of them generated: their own limit.
REFERENCE = {
    "architecture.md": 6000, "format.md": 4300, "log_format.md": 4300, "performance.md": 3500,
    "reference.md": 4200, "reliability.md": 3300,
}  # fmt: skip
PAGES = sorted({ROOT / "README.md", ROOT / "CHANGELOG.md", *DOCS.glob("*.md")})


def layers():
    """Return the folders of the package: what a picture of the layers has to name."""
    return {path.parent.name for path in (ROOT / "tierdex").glob("*/__init__.py")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_is_short_enough_to_be_read(page):
    assert len(page.read_text().split()) <= REFERENCE.get(page.name, WORDS_OF_A_PAGE)


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", DOCS / "architecture.md"], ids=lambda p: p.name
)
def test_picture_has_every_layer(page):
    section = page.read_text().split("## Layers")[1]
    picture = re.search(r"```\n(.*?)```", section, re.DOTALL)[1]
    hidden = {"testing"}  # the test kits, which no layer imports
    assert layers() - hidden == set(re.findall(r"\b(\w+)/", picture))


def test_list_of_documents_has_every_page():
    text = (DOCS / "README.md").read_text()
    assert [page.name for page in DOCS.glob("*.md") if f"({page.name})" not in text] == [
        "README.md"
    ]
