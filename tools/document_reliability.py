"""docs/reliability.md: the table of the last large run, from the counts that it wrote."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tools.generated_parts import fill, table

if TYPE_CHECKING:
    from pathlib import Path


def generate(root: Path) -> dict[Path, str]:
    """Return the page with the numbers of docs/reliability.json."""
    path = root / "docs" / "reliability.md"
    report = json.loads((root / "docs" / "reliability.json").read_text())
    rows = [
        (
            found["name"],
            found["promise"],
            f"{found['tried']:,} {found['unit']}",
            str(found["seed"]),
            str(len(found["findings"])),
        )
        for found in report["experiments"]
    ]
    head = ("experiment", "tries to break", "tried", "seed", "findings")
    return {path: fill(path.read_text(), {"last_run": table(head, rows)})}
