"""What a query asks about everything that is not one of its files: other nodes, quarantine, time.

Depends on nodes, quarantine, local_view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tierdex.index_service.answer import Missing
    from tierdex.index_service.local_view import LocalView
    from tierdex.index_service.nodes import Nodes
    from tierdex.index_service.quarantine import Quarantine
    from tierdex.lifecycle.file_handle import FileHandle


class ViewSurroundings:
    """Joins what the parts of one view know (`query.Surroundings`). Safe to share."""

    name = "refresh"

    def __init__(
        self, nodes: Nodes, quarantine: Quarantine | None, local_view: LocalView | None
    ) -> None:
        self._nodes = nodes
        self._quarantine = quarantine
        self._local_view = local_view

    def step(self) -> float:
        """Refresh once, for a background thread; what fails is named by `missing`."""
        self.refresh()
        return self._nodes.refresh_interval

    def refresh(self) -> int:
        """Look at the folder (when it is only read), the quarantine and every manifest."""
        if self._local_view is not None:
            self._local_view.refresh()
        if self._quarantine is not None:
            self._quarantine.refresh()
        return self._nodes.refresh()

    def missing(self) -> list[Missing]:
        missing = self._nodes.missing()
        if self._quarantine is not None:
            missing += self._quarantine.missing()
        if self._local_view is not None:
            missing += self._local_view.missing()
        return missing

    def as_of(self) -> int:
        return self._nodes.as_of()

    def hides(self, handle: FileHandle, topic: str) -> bool:
        return self._nodes.hides(handle, topic)
