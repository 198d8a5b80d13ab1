"""`Patience`: steps of a follower that are tried for ever, with growing pauses; trouble is said once.

Depends on compactor.rounds, errors, seams and status.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from tierdex.compactor.rounds import Backoff
from tierdex.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.clock import Bell
    from tierdex.following.status import FollowStatus
    from tierdex.seams import Seams

logger = logging.getLogger(__name__)
_LONGEST_PAUSE_S: Final = 30.0


class Patience:
    """Tries the steps of one follower, in its thread."""

    def __init__(self, status: FollowStatus, stopping: Bell, seams: Seams) -> None:
        self._status = status
        self._stopping = stopping
        self._clock = seams.clock
        self._backoff = Backoff(seams.clock, seams.ids, _LONGEST_PAUSE_S)
        self._failed: Callable[[], None] | None = None

    def tried(self, step: Callable[[], None]) -> bool:
        """Do a step; after trouble that may pass, say so once, wait, and return False."""
        status = self._status
        try:
            step()
        except UnavailableError as error:
            status.retries += 1
            self._failed = step
            if status.trouble != str(error):
                status.trouble = str(error)
                logger.warning("waiting", extra={"source": status.source, "error": str(error)})
            self._backoff.fail()
            self._clock.wait(self._stopping, self._backoff.remaining_s())
            return False
        if status.trouble is not None and step == self._failed:
            logger.info("going on", extra={"source": status.source})
            status.trouble = None
            self._backoff.succeed()
        return True
