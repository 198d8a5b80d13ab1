"""JSON for people: in lines, with every digit as written and repeated names kept.

A document is a tree of `Pairs` (an object's members in order, repeated names and all), lists, `str`,
`Number` (the digits), bool and None.

Depends on following.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tierdex.following.selectors import Every
from tierdex.following.value_block import BYTE_ORDER_MARK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.following.selectors import Step

MASK: Final = "***"
_DECIMAL_BYTES_MOST: Final = 1024  # of more, Python makes no text
_DECIMAL_DIGITS_MOST: Final = 4096
_INDENT: Final = "  "


class Number(str):
    """A number as it is written."""

    __slots__ = ()


class Pairs(list[Any]):
    """The members of an object: lists [name, value]."""

    __slots__ = ()


class Opaque(Pairs):
    """The members of an object that schema and masks know in another form: masks hide it whole."""

    __slots__ = ()


class Odd(NamedTuple):
    """A decoded value in place of one that cannot be; `why` says what it is, and nothing of the value."""

    value: Any
    why: str


def parse_body(data: bytes) -> Any:
    """Return the tree of a body; a byte order mark before it is none of it. Raises ValueError."""
    return parse(data.removeprefix(BYTE_ORDER_MARK).decode())


def parse(text: str) -> Any:
    """Return the tree. Raises ValueError for what is no JSON, or too deep to be read."""
    try:
        return json.loads(
            text, parse_int=Number, parse_float=Number, parse_constant=Number,
            object_pairs_hook=lambda pairs: Pairs([list(pair) for pair in pairs]),
        )  # fmt: skip
    except RecursionError:
        raise ValueError("is too deep") from None


def write(tree: Any, *, indented: bool = True) -> str:
    """Return the tree set out in lines, or in one. Raises ValueError where it is too deep."""
    pieces: list[str] = []
    try:
        _write(tree, "\n" if indented else "", pieces)
    except RecursionError:
        raise ValueError("is too deep") from None
    return "".join(pieces)


def mask(tree: Any, steps: Sequence[Step]) -> tuple[Any, int]:
    """Return the tree with `MASK` at every place of a path, and how many there were."""
    if not steps or type(tree) is Opaque:
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


def tree_of(value: Any, notes: list[str] | None = None, path: str = "$") -> Any:
    """Return the tree of a decoded value: bytes as base64, types that JSON lacks in their own words.

    Why values are odd is added to `notes`, with their places.
    """
    if isinstance(value, Odd):
        if notes is not None:
            notes.append(f"{path} {value.why}")
        return tree_of(value.value)
    if isinstance(value, dict):
        return Pairs(
            [[str(name), tree_of(each, notes, f"{path}.{name}")] for name, each in value.items()]
        )
    if isinstance(value, list | tuple):
        return [tree_of(each, notes, f"{path}[{n}]") for n, each in enumerate(value)]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return Number(value)
    if isinstance(value, float):
        return float_number(value)
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return str(value)


def plain_decimal(data: bytes, scale: int) -> str | None:
    """Return a big-endian number of two's complement as a decimal, with all its digits; None: too many."""
    if len(data) > _DECIMAL_BYTES_MOST or scale > _DECIMAL_DIGITS_MOST:
        return None
    number = int.from_bytes(data, "big", signed=True)
    digits = str(abs(number)).zfill(scale + 1)
    whole, fraction = digits[: len(digits) - scale], digits[len(digits) - scale :]
    return ("-" if number < 0 else "") + whole + ("." + fraction if fraction else "")


def float_number(value: float) -> Number:
    """Return a float as JSON bodies have it: NaN and Infinity too, by the names that parsers know."""
    if math.isfinite(value):
        return Number(repr(value))
    return Number("NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity")


def _write(tree: Any, line: str, pieces: list[str]) -> None:
    kind = type(tree)
    if kind is Pairs or kind is Opaque or kind is list:
        opening, closing = "[]" if kind is list else "{}"
        if not tree:
            pieces.append(opening + closing)
            return
        inner = line and line + _INDENT
        colon = ": " if line else ":"
        for number, each in enumerate(tree):
            pieces.append(("," if number else opening) + inner)
            if kind is not list:
                pieces.append(_quoted(each[0]) + colon)
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
