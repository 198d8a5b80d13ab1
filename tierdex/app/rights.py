"""The rights of a caller: grants, each a scope in the topics of a pattern.

A grant reads ``SCOPE`` or ``SCOPE:PATTERN``, in `tierdex keys create --scope`, in the key file and in
the claims of a token alike. In a pattern `*` stands for any characters; all else stands for itself::

    read                 look entries, topics, watermarks and a log's queues up, in every topic; read metrics
    message:orders.*     read, and see messages: a log's, and those that entries point at; in `orders.eu`, not
                         in `orders`; not part of `write`
    write:orders         read, and put entries, in this topic
    admin                all of it in every topic, and files, compaction, roll, expire, verify

The grants of a caller add up. What concerns no single topic (files, metrics of a node, a message ID
without its topic) needs a grant for every topic.

Depends on errors.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable

EVERY_TOPIC: Final = "*"
_LONGEST_PATTERN_BYTES: Final = 255  # as of a topic


class Scope(Enum):
    """What may be done."""

    NONE = 0
    READ = 1
    WRITE = 2
    ADMIN = 3
    MESSAGE = 4

    def covers(self, needed: Scope) -> bool:
        """Return whether a caller of this scope may do what needs another one."""
        return needed in (self, Scope.NONE) or needed in _INCLUDED[self]


_INCLUDED: Final[dict[Scope, frozenset[Scope]]] = {
    Scope.NONE: frozenset(),
    Scope.READ: frozenset(),
    Scope.MESSAGE: frozenset({Scope.READ}),
    Scope.WRITE: frozenset({Scope.READ}),
    Scope.ADMIN: frozenset({Scope.READ, Scope.MESSAGE, Scope.WRITE}),
}


def parse_scope(name: str) -> Scope:
    """Return the scope of this name. Raises InvalidRequestError."""
    try:
        scope = Scope[name.upper()]
    except KeyError:
        scope = Scope.NONE
    if scope is Scope.NONE:
        raise InvalidRequestError("must be read, message, write or admin", field="scope")
    return scope


class Grant(NamedTuple):
    """One scope in the topics that a pattern names."""

    scope: Scope
    pattern: str = EVERY_TOPIC

    def __str__(self) -> str:
        name = self.scope.name.lower()
        return name if self.is_for_every_topic else f"{name}:{self.pattern}"

    @property
    def is_for_every_topic(self) -> bool:
        return not self.pattern.strip("*")

    def names(self, topic: str) -> bool:
        """Return whether the pattern names a topic; takes time linear in both."""
        first, *rest = self.pattern.split("*")
        if not rest:
            return topic == first
        *between, last = rest
        end = len(topic) - len(last)
        if end < len(first) or not (topic.startswith(first) and topic.endswith(last)):
            return False
        place = len(first)
        for part in between:
            place = topic.find(part, place, end)
            if place < 0:
                return False
            place += len(part)
        return True


def parse_grant(text: str) -> Grant:
    """Return the grant of a text like `read` or `write:orders.*`. Raises InvalidRequestError."""
    name, colon, pattern = text.partition(":")
    if not colon:
        return Grant(parse_scope(name))
    if not pattern or len(pattern.encode("utf-8", "replace")) > _LONGEST_PATTERN_BYTES:
        raise InvalidRequestError(
            f"a pattern of 1 to {_LONGEST_PATTERN_BYTES} bytes follows the colon, as in `read:orders.*`",
            field="scope",
        )
    return Grant(parse_scope(name), pattern)


class Rights:
    """The grants of one caller. Immutable, safe to share."""

    __slots__ = ("_everywhere", "_grants")

    def __init__(self, grants: Iterable[Grant]) -> None:
        self._grants = tuple(grants)
        self._everywhere = frozenset(
            needed
            for needed in Scope
            if any(g.is_for_every_topic and g.scope.covers(needed) for g in self._grants)
        )

    def __str__(self) -> str:
        return " ".join(map(str, self._grants)) or "none"

    @property
    def grants(self) -> tuple[Grant, ...]:
        return self._grants

    def anywhere(self, needed: Scope) -> bool:
        """Return whether the caller may do this in some topic."""
        return needed is Scope.NONE or any(g.scope.covers(needed) for g in self._grants)

    def everywhere(self, needed: Scope) -> bool:
        """Return whether the caller may do this in every topic."""
        return needed in self._everywhere

    def in_topic(self, needed: Scope, topic: str) -> bool:
        """Return whether the caller may do this in a topic."""
        return needed in self._everywhere or any(
            g.scope.covers(needed) and g.names(topic) for g in self._grants
        )


NO_RIGHTS: Final = Rights(())


class Caller(NamedTuple):
    """Who calls. `kind` is `key`, `token` or `anonymous`; `rate_limit` requests a second, or None."""

    kind: str
    name: str  # the key's id, the token's subject
    rights: Rights
    rate_limit: float | None = None

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else self.kind


ANONYMOUS: Final = Caller("anonymous", "", NO_RIGHTS)
