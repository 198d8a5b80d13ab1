"""The receipt of a request to forget messages: plain values, and their digest.

Depends on index_service.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tierdex.index_service.forget.receipt import Receipt


class ForgottenMessage(NamedTuple):
    """Where a message is forgotten."""

    topic: str
    queue_id: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetReceipt(Receipt):
    """The state of one request to forget messages of a log, and of what its index had of them.

    `messages` are hidden in every read since it was made, and stay so; `held_count` are those beside them
    that wait for their `deliver_at`, and copies of those that waited. `holding` are files that have something
    of them in their bytes, messages or entries, `rewritten` those that had. `is_complete` says that nothing
    was left unsearched, that the index has forgotten them as well, and, where files were to be
    written anew at once, that they are; `waiting` names what is missing. `elsewhere` are nodes whose own logs
    have messages under a name that was asked for: they are not asked, and do not count; ask there.
    """

    messages: list[ForgottenMessage] = field(default_factory=list)
    held_count: int = 0
    elsewhere: list[str] = field(default_factory=list)

    def _content(self) -> dict[str, Any]:
        return {
            **Receipt._content(self),
            "messages": [each._asdict() for each in self.messages],
            "held_count": self.held_count,
            "elsewhere": self.elsewhere,
        }
