"""Commits to a node whose owner is gone, in the owner's name: the node stays the owner's.

::

    closed, retired or adopted: draft on the newest state -> create number n+1 only if absent
    anything else             : NodeInUseError, nothing done

No epoch is claimed, so no owner is fenced: an owner that comes back meanwhile takes the next number, and
drafts what it commits on top of ours, as after any lost race. Each draft looks again whether the owner
is still gone as far as the manifest tells: a claim since is another epoch. For changes that are right
in any process: a file written anew, the objects of dropped files.

Depends on changes, file_row, manifest, manifest_log, liveness and errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierdex.errors import NodeInUseError
from tierdex.lifecycle.manifests import changes
from tierdex.lifecycle.manifests.liveness import CLOSED, RETIRED, standing_of
from tierdex.lifecycle.manifests.manifest import Change, Draft, ManifestState, NodeKind, NodeOwner

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.lifecycle.manifests.manifest_log import ManifestLog


class ClosedNode:
    """An owned node without an owner at work. `log` must not be that of an owner of the node."""

    def __init__(self, log: ManifestLog, adopted: Collection[NodeOwner] = ()) -> None:
        """`adopted` are the owners whose folders' files other nodes publish. Raises what the log raises."""
        log.refresh_live()
        self._adopted = adopted
        log.make_live = lambda: log.live  # the hint keeps what the owner said last
        self.log = log

    @property
    def state(self) -> ManifestState:
        return self.log.state

    def refresh(self) -> ManifestState:
        return self.log.refresh()

    def commit(self, build: Callable[[ManifestState], Change | None]) -> ManifestState:
        """Commit the change that `build` returns for the newest state; repeat after lost races.

        Raises NodeInUseError, and what `build` and the log raise.
        """

        def draft(state: ManifestState) -> Draft | None:
            standing = standing_of(state, self.log.live, self._adopted).standing
            if state.kind is not NodeKind.OWNED or standing not in (CLOSED, RETIRED):
                raise NodeInUseError(
                    f"the owner of node {state.node} may be at work: it does this itself",
                    node=state.node,
                )
            change = build(state)
            if change is None or change.is_empty:
                return None
            return Draft(NodeKind.OWNED, state.epoch, state.owner, change)

        return self.log.commit(draft)

    def merge(self, row: FileRow, merged: Sequence[bytes]) -> ManifestState:
        """List `row` in place of the files `merged`, at once. Raises ConflictError, FloorError."""
        return self.commit(lambda state: changes.merge_files(state, row, merged))
