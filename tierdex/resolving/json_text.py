"""JSON for people: in lines, with every digit as written and repeated names kept.

A document is a tree of `Pairs` (an object's members in order, repeated names and all), lists, `str`,
`Number` (the digits), bool and None.

Depends on following.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from tierdex.following.selectors import Every

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.following.selectors import Step

MASK: Final = "***"
_INDENT: Final = "  "


class Number(str):
    """A number as it is written."""

    __slots__ = ()


class Pairs(list[Any]):
    """The members of an object: lists [name, value]."""

    __slots__ = ()


def parse(text: str) -> Any:
    """Return the tree. Raises ValueError for what is no JSON, or too deep to be read."""
    try:
        return json.loads(
            text, parse_int=Number, parse_float=Number, parse_constant=Number,
            object_pairs_hook=lambda pairs: Pairs([list(pair) for pair in pairs]),
        )  # fmt: skip
    except RecursionError:
        raise ValueError("is too deep") from None


def write(tree: Any) -> str:
    """Return the tree set out in lines. Raises ValueError where it is too deep."""
    pieces: list[str] = []
    try:
        _write(tree, "\n", pieces)
    except RecursionError:
        raise ValueError("is too deep") from None
    return "".join(pieces)


def mask(tree: Any, steps: Sequence[Step]) -> tuple[Any, int]:
    """Return the tree with `MASK` at every place of a path, and how many there were."""
    if not steps:
        return MASK, 1
    step, rest = steps[0], steps[1:]
    count = 0
    if type(tree) is Pairs and isinstance(step, str):
        for pair in tree:
            if pair[0] == step:
                pair[1], masked = mask(pair[1], rest)
                count += masked
    elif type(tree) is list:
        if isinstance(step, Every):
            places: Sequence[int] = range(len(tree))
        else:
            is_there = isinstance(step, int) and -len(tree) <= step < len(tree)
            places = [step] if is_there and isinstance(step, int) else []
        for place in places:
            tree[place], masked = mask(tree[place], rest)
            count += masked
    return tree, count


def tree_of(value: Any) -> Any:
    """Return the tree of a decoded value: bytes as base64, times and other types in their own words."""
    if isinstance(value, dict):
        return Pairs([[str(name), tree_of(each)] for name, each in value.items()])
    if isinstance(value, list | tuple):
        return [tree_of(each) for each in value]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return Number(repr(value))
    if isinstance(value, bytes):
        from base64 import b64encode

        return b64encode(value).decode()
    return str(value)


def _write(tree: Any, line: str, pieces: list[str]) -> None:
    kind = type(tree)
    if kind is Pairs or kind is list:
        opening, closing = "{}" if kind is Pairs else "[]"
        if not tree:
            pieces.append(opening + closing)
            return
        inner = line + _INDENT
        for number, each in enumerate(tree):
            pieces.append(("," if number else opening) + inner)
            if kind is Pairs:
                pieces.append(_quoted(each[0]) + ": ")
                each = each[1]
            _write(each, inner, pieces)
        pieces.append(line + closing)
    elif kind is Number:
        pieces.append(tree)
    elif kind is str:
        pieces.append(_quoted(tree))
    else:
        pieces.append("null" if tree is None else str(tree).lower())


def _quoted(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, which no answer could carry
        return json.dumps(text)
    return json.dumps(text, ensure_ascii=False)
