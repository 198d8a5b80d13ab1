"""Writes the tables of docs/log_format.md from `tierdex.logfile.layout`; the prose around them stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierdex.logfile import layout

if TYPE_CHECKING:
    from pathlib import Path

BEGIN = "<!-- tables: generated from tierdex/logfile/layout.py by `make docs` -->\n"
END = "<!-- tables: end -->\n"


def generate(root: Path) -> dict[Path, str]:
    """Return docs/log_format.md with today's tables. Raises ValueError when its markers are gone."""
    path = root / "docs" / "log_format.md"
    text = path.read_text()
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return {path: text[:begin] + "\n" + layout.describe() + "\n" + text[end:]}
