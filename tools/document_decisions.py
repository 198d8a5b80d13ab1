"""docs/decisions/README.md: the list of decisions, from the heading of each page.

Depends on generated_parts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tools.generated_parts import fill, table

if TYPE_CHECKING:
    from pathlib import Path

HEADING = re.compile(r"^# (?P<number>\d{4})[.:]? (?P<title>.+)\n")


def generate(root: Path) -> dict[Path, str]:
    """Return the page with a row for each decision. Raises ValueError for a page without a heading."""
    page = root / "docs" / "decisions" / "README.md"
    rows = []
    for path in sorted(page.parent.glob("[0-9]*.md")):
        heading = HEADING.match(path.read_text())
        if heading is None or not path.name.startswith(heading["number"]):
            raise ValueError(f"{path.name} does not begin with '# {path.name[:4]}. TITLE'")
        rows.append([f"[{heading['number']}]({path.name})", heading["title"]])
    return {page: fill(page.read_text(), {"decisions": table(("number", "decision"), rows)})}
