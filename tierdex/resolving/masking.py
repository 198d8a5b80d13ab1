"""Masks: values that are replaced before a message leaves the process.

A path into a body that cannot be read as JSON cannot be masked: then the body is withheld, whole.

Depends on errors, following and json_text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tierdex.errors import InvalidRequestError
from tierdex.following.selectors import (
    HeaderPart,
    JsonPart,
    KeyPart,
    Selector,
    TracesPart,
    ValuePart,
    WordsPart,
)
from tierdex.resolving.json_text import MASK, mask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.following.selectors import Part

    Headers = tuple[tuple[str, bytes], ...]


class CannotMaskError(Exception):
    """The body is no JSON, so what is to be masked in it cannot be found."""


class Masked(NamedTuple):
    """A message's parts as they may be seen; `places` are the masks that had something to replace."""

    key: bytes | None
    headers: Headers
    tree: Any  # of the body; None where it was not read as JSON
    hides_body: bool
    places: tuple[str, ...]


class Masks:
    """The masks of one topic."""

    def __init__(self, places: Sequence[str]) -> None:
        self._parts: list[tuple[str, Part]] = []
        for place in places:
            (part,) = Selector.parse(place, field="mask").parts
            assert not isinstance(part, str)
            if isinstance(part, TracesPart):
                raise InvalidRequestError(f"{place!r} cannot be masked: mask `value`", field="mask")
            # A key or header of which only some words were hidden would show how many there are.
            self._parts.append((place, part.whole if isinstance(part, WordsPart) else part))

    def __bool__(self) -> bool:
        return bool(self._parts)

    @property
    def reaches_into_body(self) -> bool:
        return any(isinstance(part, JsonPart) for _, part in self._parts)

    def apply(
        self, key: bytes | None, headers: Headers, body: bytes | None, tree: Any, *, is_json: bool
    ) -> Masked:
        """Return the parts as they may be seen; `tree` is changed. Raises CannotMaskError."""
        if self.reaches_into_body and body and not is_json:
            raise CannotMaskError
        places, hides_body = [], False
        for place, part in self._parts:
            count = 0
            if isinstance(part, KeyPart) and key is not None:
                key, count = MASK.encode(), 1
            elif isinstance(part, ValuePart) and body:
                hides_body, count = True, 1
            elif isinstance(part, HeaderPart):
                count = sum(name == part.name for name, _ in headers)
                headers = tuple(
                    (name, MASK.encode() if name == part.name else value) for name, value in headers
                )
            elif isinstance(part, JsonPart) and is_json:
                tree, count = mask(tree, part.steps)
            if count:
                places.append(place)
        return Masked(key, headers, tree, hides_body, tuple(places))
