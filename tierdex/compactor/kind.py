"""What differs between kinds of files on their way from state to state, and what does not.

::

    LocalWork   which file is next, claims, backoff, progress      the same for every kind
    FileKind    how a file is sealed, and how it is compacted      index files here, the log's above

A kind of a layer above (the message log's) comes as an object. Depends on rewrite, seal and lifecycle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tierdex.compactor.rewrite import compact_file
from tierdex.compactor.seal import seal_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.clock import Clock
    from tierdex.compactor.components import CompactorComponents
    from tierdex.compactor.progress import Progress
    from tierdex.ids import IdSource
    from tierdex.lifecycle.file_handle import FileHandle
    from tierdex.lifecycle.file_table import FileTable
    from tierdex.settings import Settings


class FileKind(Protocol):
    """One kind of file. Errors are OSError, CorruptFileError, UnavailableError: tried again later."""

    def seal(self, handle: FileHandle) -> None:
        """Bring a rolled file to `sealed`; remove an empty one."""
        ...

    def may_compact(self, handle: FileHandle) -> bool:
        """Say whether a sealed file may be compacted now."""
        ...

    def compact(self, handle: FileHandle) -> None:
        """Bring a sealed file to `compacted`."""
        ...


class Work(Protocol):
    """What local work needs beside the kind, whichever it is."""

    @property
    def settings(self) -> Settings: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def ids(self) -> IdSource: ...
    @property
    def table(self) -> FileTable: ...
    @property
    def progress(self) -> Progress: ...
    @property
    def is_active(self) -> Callable[[FileHandle], bool]: ...
    @property
    def quarantine(self) -> Callable[[FileHandle, str], None]: ...
    @property
    def show_manifest(self) -> Callable[..., None]: ...


class IndexKind:
    """Index files: chained, then compacted."""

    def __init__(self, components: CompactorComponents) -> None:
        self._components = components

    def seal(self, handle: FileHandle) -> None:
        self._components.before_seal()
        seal_file(self._components, handle)

    def may_compact(self, handle: FileHandle) -> bool:
        return True

    def compact(self, handle: FileHandle) -> None:
        compact_file(self._components, handle)
