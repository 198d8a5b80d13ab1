"""Verifies every local block again, slowly, to find damage before a query meets it.

Each local file and each sidecar is verified once in `scrub_interval`: one file a step, with the
interval divided by the number of files as the pause. A step before the end of the pause does
nothing, so that waking the thread makes no file due. A damaged local file is quarantined and named
in answers. A damaged sidecar is dropped; the next query fetches it from the store.

Depends on errors, lifecycle, kind and unit.
"""

from __future__ import annotations

import logging
from itertools import chain
from typing import TYPE_CHECKING

from tierdex.errors import CorruptFileError
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.paths import LOCAL_STATES

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.compactor.kind import Work
    from tierdex.compactor.unit import FileClaims
    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.lifecycle.table.file_handle import FileHandle

logger = logging.getLogger(__name__)

_PAUSE_MIN_S = 1.0
_LOOK_EVERY_S = 60.0  # since new files make the pause shorter


class Scrubber:
    """Verifies one file a step, by rising numbers, round after round. For one thread."""

    name = "scrub"

    def __init__(
        self,
        components: Work,
        *,
        claims: FileClaims,
        scrub_sidecar: Callable[[FileRow], bool],
    ) -> None:
        """A file is claimed while it is quarantined, so that the compactor does not work on it.

        `scrub_sidecar` verifies a published file's sidecar if it is here; False: it was damaged, and dropped.
        """
        self._components = components
        self._claims = claims
        self._scrub_sidecar = scrub_sidecar
        self._last: tuple[int, str] = (-1, "")
        self._scrubbed_at = float("-inf")

    def step(self) -> float:
        """Verify the next file if it is due; return the seconds until the next look."""
        with self._components.table.snapshot() as snapshot:
            files = snapshot.file_list
            pause = max(_PAUSE_MIN_S, self._components.settings.scrub_interval / max(1, len(files)))
            now = self._components.clock.monotonic()
            if now < self._scrubbed_at + pause:
                return min(self._scrubbed_at + pause - now, _LOOK_EVERY_S)
            before = self._last
            behind = (h for h in files.iterate(before) if h.key > before)
            handle = next(filter(self._is_ours, chain(behind, files.iterate())), None)
            if handle is None:
                return _LOOK_EVERY_S
            # Before the work: the pause begins here, after an error too.
            self._scrubbed_at = now
            self._last = handle.key
            if handle.state in LOCAL_STATES:
                if not self._scrub_file(handle):
                    self._last = before
            elif handle.row is not None and not self._scrub_sidecar(handle.row):
                logger.warning("damaged sidecar dropped", extra={"file_id": handle.file_id})
        self._components.progress.count(scrubbed=1)
        return min(pause, _LOOK_EVERY_S)

    def _is_ours(self, handle: FileHandle) -> bool:
        """Return whether a file is verified here: published, or ours and no longer written.

        An unsealed file was verified or written by this process, and changes meanwhile.
        """
        return handle.row is not None or (
            handle.state is not FileState.UNSEALED and handle.node == self._components.settings.node
        )

    def _scrub_file(self, handle: FileHandle) -> bool:
        """Verify a local file; False when it is damaged and the compactor holds it: try again later."""
        try:
            wrong = handle.reader.check()
        except CorruptFileError as error:
            wrong = [error.reason]
        if not wrong:
            return True
        with self._claims.hold(handle.number) as is_ours:
            if is_ours and self._components.table.get(*handle.key) is handle:
                self._components.quarantine(handle, "; ".join(wrong[:3]))
            return is_ours
