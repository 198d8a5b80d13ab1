"""Texts at JSON paths of many values: each value is parsed once, whatever the number of paths.

A string is itself, an integer its digits, a boolean `true` or `false`. A number that orjson makes a float
(a fraction, more than 64 bits) is read again and keeps its digits as they are written. null, an absent name
and a place beyond the end give nothing; an object or a list in place of a plain value cannot be read.

Depends on selectors, numpy and orjson.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from tierdex.following.selectors import Every, JsonPart, Step

if TYPE_CHECKING:
    from collections.abc import Sequence


class JsonTexts:
    """What the paths of one batch gave: for each path texts and the rows they are of, in order of rows."""

    def __init__(self, paths: Sequence[JsonPart], count: int) -> None:
        self.texts: list[list[str | None]] = [[] for _ in paths]
        self.rows: list[list[int]] = [[] for _ in paths]  # of a path with [*] alone
        self.unreadable = np.zeros(count, bool)


def read_paths(values: Sequence[bytes | None], paths: Sequence[JsonPart]) -> JsonTexts:
    """Return the texts at each path: one a value (None: nothing there), or several where it has ``[*]``.

    What is no JSON is marked as unreadable, and so is a value with an object or a list at a path.
    """
    found = JsonTexts(paths, len(values))
    plans = [
        (path, path.steps, path.gives_several, found.texts[n].append, found.rows[n].append)
        for n, path in enumerate(paths)
    ]
    parse, nothing = orjson.loads, object()
    for row, value in enumerate(values):
        document: Any = nothing
        if value is not None:
            try:
                document = parse(value)
            except orjson.JSONDecodeError:
                found.unreadable[row] = True
        for path, steps, is_several, add, add_row in plans:
            if is_several:
                if document is not nothing:
                    for text in _all_texts(document, path, value, found.unreadable, row):
                        add(text)
                        add_row(row)
                continue
            at = document
            for step in steps:
                if type(at) is dict:
                    at = at.get(step)
                elif type(at) is list and type(step) is int and -len(at) <= step < len(at):
                    at = at[step]
                else:
                    at = None
                    break
            add(at if type(at) is str else _plain(at, path, value, found.unreadable, row, nothing))
    return found


def _plain(
    at: Any,
    path: JsonPart,
    value: bytes | None,
    unreadable: np.ndarray,
    row: int,
    nothing: object = None,
) -> str | None:
    """Return the text of a value that is no string."""
    if at is None or at is nothing:
        return None
    if type(at) is bool:
        return "true" if at else "false"
    if type(at) is int:
        return str(at)
    if type(at) is float and value is not None:
        return next(_digits(value, path), None)
    if type(at) is str:
        return at
    unreadable[row] = True
    return None


def _all_texts(
    document: Any, path: JsonPart, value: bytes | None, unreadable: np.ndarray, row: int
) -> list[str]:
    places = list(_walk(document, path.steps))
    if any(type(at) is float for at in places) and value is not None:
        return list(_digits(value, path))
    texts = [_plain(at, path, value, unreadable, row) for at in places]
    return [text for text in texts if text is not None]


def _walk(at: Any, steps: Sequence[Step]) -> Any:
    for number, step in enumerate(steps):
        if isinstance(step, Every):
            for each in at if type(at) is list else ():
                yield from _walk(each, steps[number + 1 :])
            return
        if type(at) is dict and type(step) is str:
            at = at.get(step)
        elif type(at) is list and type(step) is int and -len(at) <= step < len(at):
            at = at[step]
        else:
            return
    if at is not None:
        yield at


def _digits(value: bytes, path: JsonPart) -> Any:
    """Yield the texts at a path of a value whose numbers keep their digits."""
    document = json.loads(value, parse_int=str, parse_float=str)
    for at in _walk(document, path.steps):
        if isinstance(at, str | bool):
            yield at if isinstance(at, str) else str(at).lower()
