"""docs/architecture.md: the list of modules, generated from the first sentence of each."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from tools.generated_parts import fill, table

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

FOLDERS = (
    "app", "client", "pipeline", "index_service", "log_service", "compactor", "lifecycle", "indexfile",
    "logfile", "rocketmq", "fileparts", "storage_layer", "testing",
)  # fmt: skip
_SENTENCE_END = re.compile(r"\.(\s|$)|:\n\n|\n\n|::")


def generate(root: Path) -> dict[Path, str]:
    """Return the page with today's modules."""
    path = root / "docs" / "architecture.md"
    package = root / "tierdex"
    sections = [f"**tierdex/** (the ground)\n\n{_modules(package, package.glob('*.py'))}"]
    for folder in FOLDERS:
        found = (package / folder).rglob("*.py")
        sections.append(f"**tierdex/{folder}/**\n\n{_modules(package / folder, found)}")
    return {path: fill(path.read_text(), {"modules": "\n".join(sections)})}


def _modules(folder: Path, found: Iterable[Path]) -> str:
    paths = sorted(path for path in found if path.name != "__init__.py")
    rows = [[f"`{path.relative_to(folder)}`", first_sentence(path)] for path in paths]
    return table(("module", "owns"), rows)


def first_sentence(path: Path) -> str:
    """Return the first sentence of a module's docstring, on one line, without its full stop."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(_SENTENCE_END.split(text, maxsplit=1)[0].split())
