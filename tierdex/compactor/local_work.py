"""The compactor's local work: seal rolled files, compact sealed ones. It sends no request.

All seals come first: a sealed file is safe, an unsealed one costs a recovery. Then the oldest file
is compacted.

Depends on unit and lifecycle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierdex.compactor.unit import LocalPlace, Unit
from tierdex.lifecycle.file_state import FileState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tierdex.compactor.kind import FileKind, Work
    from tierdex.lifecycle.table.file_handle import FileHandle


class LocalWork:
    """Yields seals and compactions."""

    def __init__(
        self, components: Work, kind: FileKind, on_compacted: Callable[[], None] = lambda: None
    ) -> None:
        """`on_compacted` is called when one more file can be published."""
        self._components = components
        self._kind = kind
        self._on_compacted = on_compacted

    def units(self) -> Iterator[Unit]:
        files = local_files(self._components)
        for handle in files:
            if handle.state is FileState.UNSEALED:
                yield file_unit("seal", self._components, handle, self._kind.seal)
        for handle in files:
            if handle.state is FileState.SEALED and self._kind.may_compact(handle):
                yield file_unit("compact", self._components, handle, self._compact)

    def _compact(self, handle: FileHandle) -> None:
        self._kind.compact(handle)
        self._on_compacted()


def local_files(components: Work) -> list[FileHandle]:
    """Return this node's local files to which the writer no longer appends, oldest first."""
    with components.table.snapshot() as snapshot:
        return [
            handle
            for handle in snapshot.file_list.local()
            if handle.node == components.settings.node and not components.is_active(handle)
        ]


def file_unit(
    job: str, work: Work, handle: FileHandle, advance: Callable[[FileHandle], None]
) -> Unit:
    """Return the unit that brings one local file to its next state."""

    def run() -> int:
        advance(handle)
        return 1

    place = LocalPlace(work, handle)
    return Unit(job, handle.file_id, handle.item_count, run, handle.number, place)
