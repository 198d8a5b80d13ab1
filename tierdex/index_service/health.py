"""Why an open index cannot do its work: the answer to "may requests be sent here?".

An index with no reason is ready. A reason is a state that trying again does not end by itself at once;
a single failed call is none. `Index.health` returns the reasons, `/readyz` and `/metrics` show them.

Depends on nothing.
"""

from __future__ import annotations

from typing import Final, NamedTuple

CLOSED: Final = "closed"
FENCED: Final = "fenced"
NO_FILE: Final = "no-file"
REASONS: Final = (CLOSED, FENCED, NO_FILE)


class NotReady(NamedTuple):
    """One reason (of `REASONS`), and what an operator should know about it."""

    reason: str
    detail: str
