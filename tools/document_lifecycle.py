"""docs/lifecycle.md: the state diagram, generated from the transition table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierdex.lifecycle.file_state import mermaid
from tools.generated_parts import fill

if TYPE_CHECKING:
    from pathlib import Path


def generate(root: Path) -> dict[Path, str]:
    """Return the page with today's diagram."""
    path = root / "docs" / "lifecycle.md"
    diagram = f"```mermaid\n{mermaid()}```\n"
    return {path: fill(path.read_text(), {"tierdex.lifecycle.file_state.mermaid": diagram})}
