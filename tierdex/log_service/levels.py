"""The levels of acknowledgement, by the names that callers use.

    received   in this process: lost with it
    os         written: survives the process, not a power cut
    disk       synced: survives a power cut

Depends on errors only.
"""

from __future__ import annotations

from enum import IntEnum

from tierdex.errors import InvalidRequestError


class Level(IntEnum):
    """How safe a message is. Higher is safer."""

    RECEIVED = 0
    OS = 1
    DISK = 2


LEVELS = {level.name.lower(): level for level in Level}


def level_of(name: object, field: str) -> Level:
    """Return the level that a caller named. Raises InvalidRequestError."""
    level = LEVELS.get(name) if isinstance(name, str) else None
    if level is not None:
        return level
    if name == "remote":
        raise InvalidRequestError(
            "a message log has no store yet: `disk` is its highest", field=field
        )
    raise InvalidRequestError("must be received, os or disk", field=field)
