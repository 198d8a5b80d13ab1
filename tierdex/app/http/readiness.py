"""The service's readiness: the answer of `/readyz`, a metric, and a log line at each change.

Depends on index_service.health.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierdex.index_service.health import NotReady

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.app.logs import JsonLogger

NOT_SERVING = NotReady("not-serving", "the service is starting or stopping")


class Readiness:
    """Lives on the event loop. `is_serving` is set while the application runs.

    `health` returns the reasons of index and log.
    """

    def __init__(self, health: Callable[[], list[NotReady]], logger: JsonLogger) -> None:
        self._health = health
        self._logger = logger
        self._told: frozenset[str] = frozenset()
        self.is_serving = False

    def reasons(self) -> list[NotReady]:
        """Return the reasons why no request should be sent here; empty when ready."""
        reasons = self._health() if self.is_serving else [NOT_SERVING]
        self._tell(reasons)
        return reasons

    def _tell(self, reasons: list[NotReady]) -> None:
        names = frozenset(found.reason for found in reasons if found is not NOT_SERVING)
        if names == self._told:
            return
        for found in reasons:
            if found.reason not in self._told:
                self._logger.error("not ready", reason=found.reason, detail=found.detail)
        for name in sorted(self._told - names):
            self._logger.note("no longer", reason=name)
        self._told = names
