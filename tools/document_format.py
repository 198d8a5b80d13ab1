"""Writes the tables of docs/format.md from `tierdex.indexfile.layout`; the prose around them stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierdex.indexfile import layout

if TYPE_CHECKING:
    from pathlib import Path

BEGIN = "<!-- tables: generated from tierdex/indexfile/layout.py by `make docs` -->\n"
END = "<!-- tables: end -->\n"


def generate(root: Path) -> dict[Path, str]:
    """Return docs/format.md with today's tables. Raises ValueError when its markers are gone."""
    path = root / "docs" / "format.md"
    text = path.read_text()
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return {path: text[:begin] + "\n" + layout.describe() + "\n" + text[end:]}
