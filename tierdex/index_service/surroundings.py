"""What a query asks about everything that is not one of its files: other nodes, quarantine, time.

Depends on nodes, quarantine, local_view.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tierdex.index_service.answer import Missing
from tierdex.index_service.nodes import NOT_CALM

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.index_service.local_view import LocalView
    from tierdex.index_service.nodes import Calm, Nodes
    from tierdex.index_service.quarantine import Quarantine
    from tierdex.index_service.rocketmq_source import RocketmqView
    from tierdex.lifecycle.file_handle import FileHandle


class ViewSurroundings:
    """Joins what the parts of one view know (`query.Surroundings`). Safe to share."""

    name = "refresh"

    def __init__(
        self,
        nodes: Nodes,
        *,
        quarantine: Quarantine | None = None,
        local_view: LocalView | None = None,
        rocketmq: RocketmqView | None = None,
        unwritten: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`unwritten` says why received entries cannot be shown, if they cannot."""
        self._nodes = nodes
        self._quarantine = quarantine
        self._local_view = local_view
        self._rocketmq = rocketmq
        self._unwritten = unwritten
        self._refreshing = threading.Lock()

    def step(self) -> float:
        """Refresh once, for a background thread; what fails is named by `missing`."""
        self.refresh()
        return self._nodes.refresh_interval

    def refresh(self) -> int:
        """Look at the folder (when it is only read), the quarantine and every manifest."""
        with self._refreshing:
            vanished = () if self._local_view is None else self._local_view.refresh()
            if self._rocketmq is not None:
                self._rocketmq.refresh()
            if self._quarantine is not None:
                self._quarantine.refresh()
            return self._nodes.refresh(vanished)

    def missing(self) -> list[Missing]:
        missing = self._nodes.missing()
        for part in (self._quarantine, self._local_view, self._rocketmq):
            if part is not None:
                missing += part.missing()
        if (reason := self._unwritten()) is not None:
            missing.append(Missing("put buffer", reason))
        return missing

    @property
    def calm(self) -> Calm:
        """Return until when nothing is missing for any query, as far as is known now; see `Calm`.

        To be read after the files were asked, as `missing` is: a file is named before it leaves.
        """
        for part in (self._quarantine, self._local_view, self._rocketmq):
            if part is not None and part.missing():
                return NOT_CALM
        return NOT_CALM if self._unwritten() is not None else self._nodes.calm

    def as_of(self) -> int:
        return self._nodes.as_of()

    def hides(self, handle: FileHandle, topic: str) -> bool:
        return self._nodes.hides(handle, topic)
