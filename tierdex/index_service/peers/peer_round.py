"""What peers added to one query: the files that they have not published, who answered when, who did not.

Depends on nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tierdex.index_service.answer import Missing
    from tierdex.lifecycle.file_handle import FileHandle
    from tierdex.lifecycle.file_table import FileList


@dataclass(slots=True)
class PeerRound:
    """Filled while one query is answered; `answered` maps a node to when (ms) it was asked."""

    handles: list[FileHandle] = field(default_factory=list)
    answered: dict[str, int] = field(default_factory=dict)
    missing: list[Missing] = field(default_factory=list)

    def added_to(self, files: FileList) -> FileList:
        """Return the files of a snapshot with those of the peers that it does not show itself."""
        new = [handle for handle in self.handles if files.get(*handle.key) is None]
        return files.changed((), new) if new else files
