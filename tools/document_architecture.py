"""docs/architecture.md: the rooms of the package, from the first sentence of each folder's `__init__`.

Depends on generated_parts.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from tools.generated_parts import fill, table

if TYPE_CHECKING:
    from pathlib import Path

_SENTENCE_END = re.compile(r"\.(\s|$)|:\n\n|\n\n|::")
_WITHOUT = {"kernels"}  # rooms of compiled code belong to the room above them


def generate(root: Path) -> dict[Path, str]:
    """Return the page with today's rooms."""
    path = root / "docs" / "architecture.md"
    package = root / "tierdex"
    rooms = sorted(
        init.parent
        for init in package.rglob("__init__.py")
        if init.parent != package and init.parent.name not in _WITHOUT
    )
    rows = [
        [f"`{room.relative_to(package)}/`", first_sentence(room / "__init__.py")] for room in rooms
    ]
    return {path: fill(path.read_text(), {"rooms": table(("room", "owns"), rows)})}


def first_sentence(path: Path) -> str:
    """Return the first sentence of a module's docstring, on one line, without its full stop."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(_SENTENCE_END.split(text, maxsplit=1)[0].split())
