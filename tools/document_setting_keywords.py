"""tierdex/setting_keywords.py: the settings of `Index.open` as a TypedDict, made of the class `Settings`."""

from __future__ import annotations

from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from tierdex.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

_OPENING = '''"""The settings as keywords of `Index.open` and `MessageLog.open`, for type checkers.

Generated from settings.py, which has their meanings: run `make docs` after a change there.

Depends on nothing.
"""

from __future__ import annotations

from typing import Literal, TypedDict


class SettingKeywords(TypedDict, total=False):
    """Every setting by name, none of them required."""

'''


def generate(root: Path) -> dict[Path, str]:
    types = get_type_hints(Settings)
    lines = [f"    {name}: {spelled(types[name])}\n" for name in Settings.model_fields]
    return {root / "tierdex" / "setting_keywords.py": _OPENING + "".join(lines)}


def spelled(kind: Any) -> str:
    """Return a type as it is written; names that stand for a type are resolved."""
    parts = get_args(kind)
    if kind is type(None):
        return "None"
    if not parts:
        return str(kind.__name__)
    if get_origin(kind) in (Union, UnionType):
        return " | ".join(map(spelled, parts))
    if get_origin(kind) is Literal:
        texts = (f'"{part}"' if isinstance(part, str) else str(part) for part in parts)
        return f"Literal[{', '.join(texts)}]"
    return f"{get_origin(kind).__name__}[{', '.join(map(spelled, parts))}]"
