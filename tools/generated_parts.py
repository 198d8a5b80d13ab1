"""Pages that are written by hand around generated parts: fills the parts in, leaves the rest alone.

A part stands between two comments::

    <!-- generated: settings -->
    ...
    <!-- end generated -->
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_PART = re.compile(r"(<!-- generated: (?P<name>\S+) -->\n).*?(<!-- end generated -->)", re.DOTALL)


def fill(page: str, parts: Mapping[str, str]) -> str:
    """Return the page with today's parts. Raises ValueError unless it has exactly these parts."""
    has = [match["name"] for match in _PART.finditer(page)]
    if sorted(has) != sorted(parts):
        raise ValueError(f"the page has the parts {sorted(has)}, these were made: {sorted(parts)}")
    return _PART.sub(lambda match: match[1] + parts[match["name"]] + match[3], page)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(
        f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |\n" for line in lines
    )
