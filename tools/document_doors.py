"""docs/doors.md: which verbs of `Index` and of `MessageLog` a client has, and which it has not.

Depends on generated_parts, and on the classes that users open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import tierdex
from tools.generated_parts import fill

if TYPE_CHECKING:
    from pathlib import Path

_ALIKE = {"log_topics": "topics"}  # the client's name of a verb of the log -> the log's own


def generate(root: Path) -> dict[Path, str]:
    """Return the page with today's verbs."""
    page = root / "docs" / "doors.md"
    client = _verbs(tierdex.Client)
    index, log = _verbs(tierdex.Index), _verbs(tierdex.MessageLog)
    sent = (client - _ALIKE.keys()) | {_ALIKE[name] for name in client & _ALIKE.keys()}
    renamed = ", ".join(f"`{theirs}` is `{ours}` in the client" for ours, theirs in _ALIKE.items())
    lines = [
        f"* of `Index` and `MessageLog`: {_list(sent & index & log)}",
        f"* of `Index`: {_list(sent & index - log)}",
        f"* of `MessageLog`: {_list(sent & log - index)}; of a log, {renamed}",
        f"* its own: {_list(client - index - log - _ALIKE.keys())}",
        f"* only in the process that has an `Index`: {_list(index - client)}",
        f"* only in the process that has a `MessageLog`: {_list(log - sent)}",
    ]
    return {page: fill(page.read_text(), {"verbs": "\n".join(lines) + "\n"})}


def _verbs(of: type) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_")}


def _list(names: set[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))
