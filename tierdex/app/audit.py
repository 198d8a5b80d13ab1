"""The audit: one line for each request that concerns topics: who asked, and for what.

::

    {"event": "audit", "caller": "key:1a2b3c4d", "route": "GET /v1/entries", "topics": ["orders"],
     "keys": ["5f0c…"], "status": 200, "request_id": "…"}

A key that was asked for is told as its digest: HMAC-SHA-256 under the setting `audit_secret`, cut to 128
bits. With the secret a known key can be searched for (`tierdex keys digest`); keys cannot be read
out of the lines. A line is written before the first byte of its answer, so that no answer goes without one.
A batch of many keys takes several lines of one request id. Puts tell their topics, no keys.

Depends on nothing.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tierdex.app.logs import JsonLogger
    from tierdex.app.rights import Caller

_DIGEST_HEX: Final = 32
_NAMES_A_LINE: Final = 1000


@dataclass(slots=True)
class AuditNotes:
    """What one request looked for; None among the topics: in every topic."""

    topics: set[str | None] = field(default_factory=set)
    keys: list[str] = field(default_factory=list)
    message_ids: list[str] = field(default_factory=list)


def digest_of(secret: str, name: str) -> str:
    """Return the digest of a key or message ID, hex."""
    mac = hmac.new(secret.encode(), name.encode("utf-8", "surrogatepass"), hashlib.sha256)
    return mac.hexdigest()[:_DIGEST_HEX]


class AuditTrail:
    """Writes the lines. Safe to share between threads."""

    def __init__(self, logger: JsonLogger, secret: str) -> None:
        self._logger = logger
        self._secret = secret

    def write(
        self, caller: Caller, notes: AuditNotes, *, route: str, status: int, request_id: str
    ) -> None:
        """Write the lines of one request, none where it looked into no topic.

        Raises OSError: then nothing may be answered.
        """
        if not (notes.topics or notes.keys or notes.message_ids):
            return
        asked: dict[str, Any] = {"caller": str(caller), "route": route}
        asked["topics"] = sorted(topic for topic in notes.topics if topic is not None)
        if None in notes.topics:
            asked["every_topic"] = True
        for names in self._parts(notes):
            self._logger.note("audit", **asked, **names, status=status, request_id=request_id)

    def _parts(self, notes: AuditNotes) -> Iterator[dict[str, list[str]]]:
        told = [("keys", name) for name in notes.keys]
        told += [("message_ids", name) for name in notes.message_ids]
        for first in range(0, max(len(told), 1), _NAMES_A_LINE):
            line: dict[str, list[str]] = {}
            for kind, name in told[first : first + _NAMES_A_LINE]:
                line.setdefault(kind, []).append(digest_of(self._secret, name))
            yield line


def names_of(values: Iterable[Any]) -> list[str]:
    """Return those of some values that name something: a lookup has a key or a message ID."""
    return [value for value in values if isinstance(value, str)]
