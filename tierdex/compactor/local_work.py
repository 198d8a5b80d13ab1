"""The compactor's local work: seal rolled files, compact sealed ones. It sends no request.

All seals come first: a sealed file is safe, an unsealed one costs a recovery. Then the oldest file
is compacted.

Depends on seal, rewrite, unit and lifecycle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierdex.compactor.rewrite import compact_file
from tierdex.compactor.seal import seal_file
from tierdex.compactor.unit import Unit
from tierdex.lifecycle.file_state import FileState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tierdex.compactor.components import CompactorComponents
    from tierdex.lifecycle.file_handle import FileHandle


class LocalWork:
    """Yields seals and compactions."""

    def __init__(self, components: CompactorComponents, on_compacted: Callable[[], None]) -> None:
        """`on_compacted` is called when one more file can be published."""
        self._components = components
        self._on_compacted = on_compacted

    def units(self) -> Iterator[Unit]:
        files = local_files(self._components)
        for handle in files:
            if handle.state is FileState.UNSEALED:
                yield file_unit("seal", handle, self._seal)
        for handle in files:
            if handle.state is FileState.SEALED:
                yield file_unit("compact", handle, self._compact)

    def _seal(self, handle: FileHandle) -> None:
        self._components.before_seal()
        seal_file(self._components, handle)

    def _compact(self, handle: FileHandle) -> None:
        compact_file(self._components, handle)
        self._on_compacted()


def local_files(components: CompactorComponents) -> list[FileHandle]:
    """Return this node's local files to which the writer no longer appends, oldest first."""
    with components.table.snapshot() as snapshot:
        return [
            handle
            for handle in snapshot.file_list.local()
            if handle.node == components.settings.node and not components.is_active(handle)
        ]


def file_unit(job: str, handle: FileHandle, advance: Callable[[FileHandle], None]) -> Unit:
    """Return the unit that brings one local file to its next state."""

    def run() -> int:
        advance(handle)
        return 1

    return Unit(job, handle.file_id, handle.item_count, run, handle.number, handle)
