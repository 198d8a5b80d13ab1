"""The shared state of all instances on one simulated disk, and the gate of every call.

Names and files, free space, locks, faults, crash points, the trace. After a crash the machine is
off: every further call raises SimulatedCrash, so that no clean-up of the dying program reaches the
disk.

Depends on simulated_faults, simulated_file and simulated_folders.
"""

from __future__ import annotations

import errno
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.simulation.simulated_faults import Call, CrashPoint, Fault, SimulatedCrash
from tests.simulation.simulated_file import PAGE, SimulatedFile
from tests.simulation.simulated_folders import FolderTree, failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tierdex.clock import Clock


class Disk:
    """What all instances on one disk share."""

    def __init__(self, tree: FolderTree, clock: Clock, capacity_bytes: int | None) -> None:
        self.tree = tree
        self.clock = clock
        self.capacity_bytes = capacity_bytes
        self.guard = threading.RLock()
        self.locked: dict[SimulatedFile, object] = {}
        self.faults: list[Fault] = []
        self.crash_points: list[CrashPoint] = []
        self.trace: list[Call] = []
        self.is_dead = False
        self.note_stores_at_every_call = False

    @contextmanager
    def call(
        self, kind: str, path: object, on_failure: Callable[[Fault], None] | None = None
    ) -> Iterator[None]:
        """Guard one call: trace it, fail it (after `on_failure` did its partial harm), crash around it."""
        with self.guard:
            if self.is_dead:
                raise SimulatedCrash("the machine is off")
            self.trace.append(Call(kind, str(path)))
            if self.note_stores_at_every_call:
                self.note_stores()
            reached = [point for point in self.crash_points if point.counts(kind)]
            if any(not point.after for point in reached):
                self.crash(f"before call {len(self.trace)}: {kind} {path}")
            struck = [fault for fault in self.faults if fault.strikes(kind)]
            if struck:
                if on_failure is not None:
                    on_failure(struck[0])
                raise struck[0].error(str(path))
            yield
            if reached:
                self.crash(f"after call {len(self.trace)}: {kind} {path}")

    def crash(self, moment: str) -> None:
        self.note_stores()  # what later stores do to mappings no longer reaches any device
        self.is_dead = True
        raise SimulatedCrash(moment)

    def note_stores(self) -> None:
        for file in self.tree.files():
            file.note_stores()

    def free_pages(self) -> int:
        if self.capacity_bytes is None:
            return 1 << 40
        in_use = {f for f in self.tree.files() if f.open_count} | self.tree.linked_files()
        return self.capacity_bytes // PAGE - sum(file.allocated_pages for file in in_use)

    def take_space(self, file: SimulatedFile, position: int, length: int) -> None:
        """Refuse a range that needs more blocks than are free. Raises OSError (ENOSPC)."""
        if self.capacity_bytes is not None:
            wanted = file.allocated_after(position, length) - file.allocated_pages
            if wanted > max(0, self.free_pages()):
                raise failure(errno.ENOSPC, file.path)
