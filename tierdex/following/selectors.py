"""Selectors: the place of a key, a message ID or a time in a record.

::

    key              the record's own key            header:region    a header (also: a field, a named group)
    value            its whole value                 $.order.id       a JSON path into its value
    {key}-{$.line}   a template of selectors; it gives nothing where one of them gives nothing

JSON paths have names (``$.a.b``, ``$['a b']``), places (``$.a[0]``) and "every" (``$.items[*].sku``), which
gives several texts a record. So do ``key[*]`` and ``header:KEYS[*]``: each word of the key or header, where
blanks stand between several keys, as in RocketMQ's messages. ``otlp:trace_id`` gives the ID of each trace
that a value of OTLP has spans of (`ExportTraceServiceRequest`, as collectors write it to Kafka). A template
takes none of these.

Depends on errors only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from tierdex.errors import InvalidRequestError

Step: TypeAlias = "str | int | Every"
_STEP = re.compile(
    r"\.(?P<name>[^.\[\]'\"\s{}]+)|\[(?P<place>-?\d{1,9})\]|\[(?P<every>\*)\]"
    r"|\['(?P<single>[^']*)'\]|\[\"(?P<double>[^\"]*)\"\]"
)
_BRACES = re.compile(r"\{([^{}]*)\}")
_EVERY = "[*]"


class Every:
    """The step ``[*]``: every element of a list."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Every)

    def __hash__(self) -> int:
        return hash(Every)


@dataclass(frozen=True)
class KeyPart:
    """The record's own key."""


@dataclass(frozen=True)
class ValuePart:
    """The whole value."""


@dataclass(frozen=True)
class HeaderPart:
    """A header's value; of several of one name the last."""

    name: str


@dataclass(frozen=True)
class WordsPart:
    """Each word of the key or of a header; words are what blanks divide."""

    whole: KeyPart | HeaderPart


@dataclass(frozen=True)
class TracesPart:
    """The IDs of the traces in a value of OTLP, each once."""


@dataclass(frozen=True)
class JsonPart:
    """A place, or several, in the value read as JSON."""

    steps: tuple[Step, ...]

    @property
    def gives_several(self) -> bool:
        return any(isinstance(step, Every) for step in self.steps)


Part: TypeAlias = KeyPart | ValuePart | HeaderPart | WordsPart | TracesPart | JsonPart


@dataclass(frozen=True)
class Selector:
    """The parts in order, between them literal text: a part alone is a selector, else a template."""

    text: str
    parts: tuple[Part | str, ...]

    @classmethod
    def parse(cls, text: str, *, field: str) -> Selector:
        """Return the selector that `text` spells. Raises InvalidRequestError naming the option `field`."""
        if text.startswith("$") or "{" not in text:
            return cls(text, (_part(text, field),))
        parts: list[Part | str] = []
        for number, piece in enumerate(_BRACES.split(text)):
            if number % 2:
                parts.append(_part(piece, field))
            elif "{" in piece or "}" in piece:
                raise InvalidRequestError(f"{text!r} has an unmatched brace", field=field)
            elif piece:
                parts.append(piece)
        template = cls(text, tuple(parts))
        if template.gives_several:
            raise InvalidRequestError(f"{text!r}: a template takes no [*]", field=field)
        return template

    @property
    def sources(self) -> tuple[Part, ...]:
        """The parts of a record that it needs."""
        return tuple(part for part in self.parts if not isinstance(part, str))

    @property
    def gives_several(self) -> bool:
        """Whether a record may have several texts of it."""
        return any(
            isinstance(part, WordsPart | TracesPart)
            or (isinstance(part, JsonPart) and part.gives_several)
            for part in self.parts
        )


def _part(text: str, field: str) -> Part:
    if text == "key":
        return KeyPart()
    if text == "value":
        return ValuePart()
    if text == "otlp:trace_id":
        return TracesPart()
    if text == f"key{_EVERY}":
        return WordsPart(KeyPart())
    if text.startswith("header:") and len(text) > len("header:"):
        name = text.removeprefix("header:")
        if name.endswith(_EVERY) and name != _EVERY:
            return WordsPart(HeaderPart(name.removesuffix(_EVERY)))
        return HeaderPart(name)
    if text.startswith("$"):
        return JsonPart(_steps(text, field))
    raise InvalidRequestError(
        f"{text!r} is not a place in a record: key, value, header:NAME, $.json.path, otlp:trace_id, or a "
        "template of these in braces",
        field=field,
    )


def _steps(text: str, field: str) -> tuple[Step, ...]:
    steps: list[Step] = []
    at = 1
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None:
            raise InvalidRequestError(
                f"{text!r} is not a JSON path: {text[at:]!r} is not .name, [0], [*] or ['a name']",
                field=field,
            )
        if found["every"]:
            steps.append(Every())
        elif found["place"]:
            steps.append(int(found["place"]))
        else:
            name = found["name"] or found["single"] or found["double"]
            steps.append(name or "")
        at = found.end()
    return tuple(steps)
