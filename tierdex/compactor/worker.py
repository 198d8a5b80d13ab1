"""The compactor: takes every file of the node one step further, in the background, for ever.

::

    local    unsealed (rolled) --seal--> sealed --compact--> compacted
    store                                                    compacted --publish--> uploaded
                                                                     merge, expire, collect

Two workers, each with one unit at a time: a store that hangs must not keep files from being sealed and
compacted, and compaction must not keep files from leaving the disk (docs/decisions/0019). A unit is one
file's step, or one round of merging, expiring or collecting. `run_all` does both kinds in the caller's
thread, all local work first. Depends on the other modules of this folder.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from tierdex.compactor.local_work import LocalWork
from tierdex.compactor.store_work import StoreWork
from tierdex.compactor.unit import FileClaims, UnitWorker

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.compactor.components import CompactorComponents
    from tierdex.errors import FencedError
    from tierdex.lifecycle.manifest import ManifestState

LOCAL_WORKER = "compactor"
STORE_WORKER = "publisher"


class Compactor:
    """Both workers. Their threads (or the simulation) step them; `run_all` is for no threads."""

    def __init__(
        self,
        components: CompactorComponents,
        *,
        other_states: Callable[[], list[ManifestState]],
        on_fenced: Callable[[FencedError], None],
        on_compacted: Callable[[], None] = lambda: None,
    ) -> None:
        """`other_states` returns what the manifests of the other nodes say, as far as known.

        `on_fenced` is called once, when another owner turns out to have the node; `on_compacted` when
        a file can be published that could not before.
        """
        self._components = components
        self._on_fenced = on_fenced
        self._local_work = LocalWork(components, on_compacted)
        self._store_work = StoreWork(components, other_states)
        self.claims = FileClaims()
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
        """Do all that is due now, local work first; return the number of units, raise the first error.

        `yes`: what is in no manifest may be deleted even if that is more than half of the objects.
        """
        # Each unit under its worker's lock alone: who waits here for the store holds up no seal.
        with self.store.busy:
            self._store_work.look_at_everything()
        count = 0
        while self.local.run_first(self._local_work.units()) or self.store.run_first(
            self._store_work.units(yes=yes)
        ):
            count += 1
        return count

    def fence(self, error: FencedError) -> None:
        """Publish and delete nothing from here on: another owner has the node."""
        if self.fenced is None:
            self._store_work.fenced = error
            self._on_fenced(error)

    def stop(self, timeout_s: float) -> bool:
        """Begin no more units, and wait for those under way; say whether they ended. -1: for ever."""
        workers = (self.local, self.store)
        for worker in workers:
            worker.is_stopping = True
        deadline = self._components.clock.monotonic() + timeout_s
        with ExitStack() as entered:
            for worker in workers:
                remaining = max(0.0, deadline - self._components.clock.monotonic())
                if not worker.busy.acquire(timeout=-1 if timeout_s == -1 else remaining):
                    return False
                entered.callback(worker.busy.release)
        return True
