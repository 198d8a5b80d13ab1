"""Writes the owner's heartbeat and how far it has published to the store; notices a takeover.

An idle owner commits nothing for days. It writes its live record within every `live_interval`, and often
enough that a sign is never older than a quarter of `takeover_after`: three may fail before another
owner takes the node for abandoned. It has a thread of its own, since one merge may take the
publisher's for longer.

Each step also looks how far all is published: a file counts from the look before it was found.

The manifest shows a takeover, and the index reads it every few seconds: an owner that has nothing
to publish notices the takeover here, without a request, and puts are refused from then on.

Depends on errors only.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from tierdex.errors import FencedError, TierdexError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.compactor.components import CompactorComponents

logger = logging.getLogger(__name__)

_SIGNS: Final = 4  # in `takeover_after`
EARLY: Final = 0.8  # of `live_interval`: a record of a healthy owner is never late to its readers
_LOOK_EVERY_S: Final = 1.0


class Heartbeat:
    """Checks that we are still the owner, and signs when a sign is due. For one thread."""

    name = "sign"

    def __init__(
        self,
        components: CompactorComponents,
        *,
        on_fenced: Callable[[FencedError], None],
        is_asked: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_asked` says whether a caller waits for a heartbeat that is not due yet."""
        self._is_asked = is_asked
        self._components = components
        self._on_fenced = on_fenced
        self._signed_at = components.clock.monotonic()  # the claim's commit is a sign, now or later

    def step(self) -> float:
        """Scan, and write a heartbeat if one is due; return the seconds until the next step."""
        claim, clock = self._components.claim, self._components.clock
        if not claim.is_claimed:
            return _LOOK_EVERY_S
        node = claim.get()
        try:
            node.check()
            node.look()
            if clock.monotonic() - self._signed_at >= self._interval() or self._is_asked():
                node.sign()
                self._signed_at = clock.monotonic()
        except FencedError as error:
            self._on_fenced(error)
        return _LOOK_EVERY_S

    def _interval(self) -> float:
        settings = self._components.settings
        longest = settings.takeover_after / _SIGNS or settings.live_interval
        return min(EARLY * settings.live_interval, longest)

    def say_closed(self, timeout_s: float | None) -> None:
        """Write that nothing more is acknowledged here.

        Waits `timeout_s` at most; None writes in this thread.

        Best effort: without it the node looks silent, and holds up others' `as_of`, until it opens
        again.
        """
        if not self._components.claim.is_claimed:
            return
        if timeout_s is None:
            self._say_closed()
            return
        thread = threading.Thread(target=self._say_closed, name="tierdex-closed", daemon=True)
        thread.start()
        thread.join(timeout_s)

    def _say_closed(self) -> None:
        try:
            self._components.claim.get().sign_closed()
        except TierdexError as error:  # fenced: the new owner writes the record
            logger.debug("not said that it is closed", extra={"error": str(error)})
