"""The levels of acknowledgement, by the names that callers use.

    received   in this process: lost with it
    os         written: survives the process, not a power cut
    disk       synced: survives a power cut
    remote     in a file that is published: survives the machine

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
    REMOTE = 3


LEVELS = {level.name.lower(): level for level in Level}


def level_of(name: object, field: str) -> Level:
    """Return the level that a caller named. Raises InvalidRequestError."""
    level = LEVELS.get(name) if isinstance(name, str) else None
    if level is None:
        raise InvalidRequestError("must be received, os, disk or remote", field=field)
    return level
