"""The compactor: brings every file of the node from state to state, in the background.

::

    local    unsealed (rolled) --seal--> sealed --compact--> compacted
    store                                                    compacted --publish--> uploaded
                                                                     merge, expire, collect

Two workers do one unit at a time each, so that a store that hangs does not delay seals and
compactions, and a compaction does not delay publications: with one worker a store that hung for 5 s a
call left 40 files unsealed. Publication goes in order of the numbers, so `remote` is a prefix. A unit is one
file's step, or one round of merging, expiring or collecting. `run_all` does both kinds in the
caller's thread, all local work first.

Depends on the other modules of this folder.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from tierdex.compactor.kind import IndexKind, Publication
from tierdex.compactor.local_work import LocalWork
from tierdex.compactor.store_work import StoreWork
from tierdex.compactor.unit import FileClaims, UnitWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tierdex.compactor.components import CompactorComponents
    from tierdex.errors import FencedError
    from tierdex.lifecycle.manifests.manifest import ManifestState

LOCAL_WORKER = "compactor"
STORE_WORKER = "publisher"


class Compactor:
    """Both workers. Their threads (or the simulation) step them; `run_all` needs no threads."""

    def __init__(
        self,
        components: CompactorComponents,
        *,
        other_states: Callable[[], list[ManifestState]],
        on_fenced: Callable[[FencedError], None],
        on_compacted: Callable[[], None] = lambda: None,
        claims: FileClaims | None = None,
        before: Sequence[Publication] = (),
    ) -> None:
        """`other_states` returns the known manifests of the other nodes; `before` is published first.

        `on_fenced` is called once, when another owner is found to have the node; `on_compacted` is
        called when one more file can be published.
        """
        self.components = components
        self._on_fenced = on_fenced
        kind = IndexKind(components)
        self._local_work = LocalWork(components, kind, on_compacted)
        self._store_work = StoreWork([*before, Publication(components, kind)], other_states)
        self.claims = claims or FileClaims()
        self.local = UnitWorker(
            LOCAL_WORKER, components, self.claims, self._local_work.units, self.fence
        )
        self.store = UnitWorker(
            STORE_WORKER, components, self.claims, self._store_work.units, self.fence
        )

    @property
    def fenced(self) -> FencedError | None:
        return self._store_work.fenced

    def run_all(self, *, yes: bool = False) -> int:
        """Do all that is due, local work first; return the number of units. Raises the first error.

        With `yes` garbage collection may delete more than half of the node's objects.
        """
        # Only the unit's own worker is locked: a wait for the store delays no seal.
        with self.store.busy:
            self._store_work.look_at_everything()
        count = 0
        while self.local.run_first(self._local_work.units()) or self.store.run_first(
            self._store_work.units(yes=yes)
        ):
            count += 1
        return count

    def seal_rolled(self) -> None:
        """Seal all files that are rolled: no later opening goes on with them. Raises the first error."""
        while self.local.run_first(u for u in self._local_work.units() if u.job == "seal"):
            pass

    def fence(self, error: FencedError) -> None:
        """Publish and delete nothing from here on: another owner has the node."""
        if self.fenced is None:
            self._store_work.fenced = error
            self._on_fenced(error)

    def stop(self, timeout_s: float) -> bool:
        """Begin no more units; wait for those under way; return whether they ended. -1: no limit."""
        workers = (self.local, self.store)
        for worker in workers:
            worker.is_stopping = True
        deadline = self.components.clock.monotonic() + timeout_s
        with ExitStack() as entered:
            for worker in workers:
                remaining = max(0.0, deadline - self.components.clock.monotonic())
                if not worker.busy.acquire(timeout=-1 if timeout_s == -1 else remaining):
                    return False
                entered.callback(worker.busy.release)
        return True
