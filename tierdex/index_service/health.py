"""The reasons why an open index, or message log, is not ready.

An index without a reason is ready. A reason is a state that lasts; a single failed call is none.
`Index.health` returns the reasons, `/readyz` and `/metrics` show them.

Depends on nothing.
"""

from __future__ import annotations

from typing import Final, NamedTuple

CLOSED: Final = "closed"
FENCED: Final = "fenced"
NO_FILE: Final = "no-file"
UNREAD: Final = "unread"
REASONS: Final = (CLOSED, FENCED, NO_FILE, UNREAD)


class NotReady(NamedTuple):
    """One reason (of `REASONS`), with a detail for the operator."""

    reason: str
    detail: str
