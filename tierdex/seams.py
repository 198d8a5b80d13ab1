"""The seams of one index or message log: its clock, ids and file system, and what runs its look-ahead reads.

A seam that the caller leaves out is the real one. Tests and simulations give their own.

Depends on the ground.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tierdex.clock import SystemClock
from tierdex.filesystem import LocalFileSystem
from tierdex.ids import SystemIds

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tierdex.clock import Clock
    from tierdex.filesystem import FileSystem
    from tierdex.ids import IdSource


class Seams(NamedTuple):
    """Everything but the store through which an index or log leaves its own threads and memory."""

    clock: Clock
    ids: IdSource
    filesystem: FileSystem
    executor: Executor | None = None  # None: an index makes threads of its own

    @classmethod
    def of(
        cls,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        filesystem: FileSystem | None = None,
        executor: Executor | None = None,
    ) -> Seams:
        """Return the given seams, the real one for each that is None."""
        return cls(
            clock or SystemClock(), ids or SystemIds(), filesystem or LocalFileSystem(), executor
        )
