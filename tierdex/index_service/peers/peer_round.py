"""The part of peers in one query: their unpublished files, who answered, who did not.

Depends on nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tierdex.index_service.answer import Missing
    from tierdex.index_service.view.node_ages import NodeAges
    from tierdex.lifecycle.manifests.live_record import OwnerAddress
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.lifecycle.table.file_table import FileList


@dataclass(slots=True)
class PeerRound:
    """Filled while one query is answered; `ages` are those of the files that it searched."""

    ages: NodeAges | None = None
    handles: list[FileHandle] = field(default_factory=list)
    given_by: list[OwnerAddress] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    has_refreshed: bool = False  # a peer asked for a newer manifest than the files before

    @property
    def answered(self) -> frozenset[str]:
        """The nodes that answered for themselves: by the owner that is theirs where the files were taken."""
        if not self.given_by:
            return frozenset()
        states = {} if self.ages is None else self.ages.states
        return frozenset(
            peer.node
            for peer in self.given_by
            if (state := states.get(peer.node)) is not None
            and (state.epoch, state.owner.hex()) == (peer.epoch, peer.owner)
        )

    def as_of(self) -> int:
        """Return the time (ms) before which everything acknowledged anywhere was looked at."""
        assert self.ages is not None
        return self.ages.as_of(self.answered)

    def added_to(self, files: FileList) -> FileList:
        """Return the files of a snapshot with those of the peers that it does not show itself."""
        new = [handle for handle in self.handles if files.get(*handle.key) is None]
        return files.changed((), new) if new else files

    def changes(self, files: FileList) -> bool:
        """Return whether a search of `files`, taken before the peers answered, is not the whole answer."""
        return self.has_refreshed or self.added_to(files) is not files
