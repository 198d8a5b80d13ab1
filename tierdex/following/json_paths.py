"""Texts at JSON paths of many values: each value is parsed once, whatever the number of paths.

A string is itself, a number what `key_texts.number_text` says (its digits as written), a boolean `true` or
`false`. null, an absent name and a place beyond the end give nothing; an object or a list in place of a
plain value cannot be read.

A value is JSON as RFC 8259 has it, in UTF-8. orjson takes less (no number above a double's, no half of a
surrogate pair, not in another field either): what it refuses is read by `json`, which decides. NaN and
infinities, which Python writes, are no value, as null is.

Depends on key_texts, selectors, numpy and orjson.
"""

from __future__ import annotations

import json
from itertools import repeat
from types import NoneType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson

from tierdex.following.selectors import Every, JsonPart, Step
from tierdex.key_texts import number_text

if TYPE_CHECKING:
    from collections.abc import Sequence


_TEXTS: Final = {str, NoneType}
_PIECE: Final = (
    128  # documents at one time: they stay in the processor's cache, and wake no collector
)


class Digits(str):
    """A number as it is written."""

    __slots__ = ()


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
    for first in range(0, len(values), _PIECE):
        piece = values[first : first + _PIECE]
        unreadable = found.unreadable[first : first + _PIECE]
        documents = _documents(piece, unreadable)
        for number, path in enumerate(paths):
            texts, rows = found.texts[number], found.rows[number]
            if not path.gives_several:
                texts += _texts(_places(documents, path.steps), path, piece, unreadable)
                continue
            for row, (document, value) in enumerate(zip(documents, piece, strict=True)):
                each = _all_texts(document, path, value, unreadable, row)
                texts += each
                rows += [first + row] * len(each)
    return found


def _documents(values: Sequence[bytes | None], unreadable: np.ndarray) -> list[Any]:
    """Return each value as it is read; None for one that cannot be, which is marked, and for no value."""
    given: Any = values
    try:
        return list(map(orjson.loads, given))
    except orjson.JSONDecodeError:
        documents: list[Any] = []
    for row, value in enumerate(values):
        try:
            documents.append(None if value is None else _document(value))
        except ValueError:
            documents.append(None)
            unreadable[row] = True
    return documents


def _document(value: bytes) -> Any:
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return written_document(value)


def written_document(value: bytes) -> Any:
    """Return a value whose numbers are `Digits`. Raises ValueError for what is no JSON, or too deep."""
    try:
        return json.loads(
            value.decode(), parse_int=Digits, parse_float=Digits, parse_constant=_no_value
        )
    except RecursionError:
        raise ValueError("it is too deep") from None


def _no_value(_name: str) -> None:
    return None


def _places(documents: list[Any], steps: Sequence[Step]) -> list[Any]:
    """Return what stands at a place of each document, None where nothing does."""
    for step in steps:
        try:
            documents = list(
                map(dict.get, documents, repeat(step))
            )  # objects: no Python a document
        except TypeError:
            documents = [_step(each, step) for each in documents]
    return documents


def _step(at: Any, step: Step) -> Any:
    if type(at) is dict:
        return at.get(step)
    if type(at) is list and type(step) is int and -len(at) <= step < len(at):
        return at[step]
    return None


def _texts(
    places: list[Any], path: JsonPart, values: Sequence[bytes | None], unreadable: np.ndarray
) -> list[str | None]:
    kinds = set(map(type, places))
    if kinds <= _TEXTS and _are_unicode(places):
        return places
    if kinds == {int}:
        return list(map(str, places))
    return [_plain(at, path, values[row], unreadable, row) for row, at in enumerate(places)]


def _are_unicode(texts: list[str | None]) -> bool:
    """Return whether UTF-8 can encode all of them: JSON can escape half a surrogate pair."""
    try:
        "".join(filter(None, texts)).encode()
    except UnicodeEncodeError:
        return False
    return True


def _plain(
    at: Any, path: JsonPart, value: bytes | None, unreadable: np.ndarray, row: int
) -> str | None:
    """Return the text of a value that is no string, or may be none that UTF-8 can hold."""
    if type(at) is float and value is not None:
        at = _written(value, path)
    try:
        return plain_text(at)
    except ValueError:
        unreadable[row] = True
        return None


def plain_text(at: Any) -> str | None:
    """Return what stands at a path as a text. Raises ValueError for an object, a list, a lone surrogate."""
    if at is None:
        return None
    if type(at) is Digits:
        return number_text(at)
    if type(at) is str:
        at.encode()
        return at
    if type(at) is bool:
        return "true" if at else "false"
    if type(at) is int:
        return str(at)
    raise ValueError("it is not a plain value")


def _all_texts(
    document: Any, path: JsonPart, value: bytes | None, unreadable: np.ndarray, row: int
) -> list[str]:
    places = list(_walk(document, path.steps))
    if any(type(at) is float for at in places) and value is not None:
        try:
            places = list(_walk(written_document(value), path.steps))
        except ValueError:
            unreadable[row] = True
            return []
    texts = [_plain(at, path, value, unreadable, row) for at in places]
    return [text for text in texts if text is not None]


def _walk(at: Any, steps: Sequence[Step]) -> Any:
    for number, step in enumerate(steps):
        if isinstance(step, Every):
            for each in at if type(at) is list else ():
                yield from _walk(each, steps[number + 1 :])
            return
        at = _step(at, step)
    if at is not None:
        yield at


def _written(value: bytes, path: JsonPart) -> Any:
    """Return what stands at a path of a value whose numbers keep their digits."""
    try:
        return next(_walk(written_document(value), path.steps), None)
    except ValueError:  # deeper than `json` goes
        return []
