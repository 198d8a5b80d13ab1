"""What differs between kinds of files on their way from state to state, and what does not.

::

    LocalWork   which file is next, claims, backoff, progress                  the same for every kind
    StoreWork   the oldest file of each kind, one kind after the other         the same for every kind
    FileKind    how a file is sealed, compacted, checked, named in a row       index files; the log's above

A kind of a layer above (the message log's) comes as an object. Depends on file_row, covering, rewrite,
seal, indexfile and lifecycle.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tierdex.compactor.covering import table_if_it_pays
from tierdex.compactor.file_row import make_row
from tierdex.compactor.rewrite import compact_file
from tierdex.compactor.seal import seal_file
from tierdex.indexfile.check import check_file
from tierdex.lifecycle.folders.transition import retire
from tierdex.lifecycle.manifests.file_row import INDEX_KIND

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from typing_extensions import Buffer

    from tierdex.clock import Clock
    from tierdex.compactor.components import CompactorComponents
    from tierdex.compactor.progress import Progress
    from tierdex.ids import IdSource
    from tierdex.indexfile.compacted.file import CompactedFile
    from tierdex.lifecycle.manifests.changes import TableDraft
    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.lifecycle.table.file_handle import Closing, FileHandle
    from tierdex.lifecycle.table.file_table import FileTable
    from tierdex.settings import Settings


class FileKind(Protocol):
    """One kind of file. Errors are OSError, CorruptFileError, UnavailableError: tried again later."""

    row_kind: str  # of the rows that list its files

    def seal(self, handle: FileHandle) -> None:
        """Bring a rolled file to `sealed`; remove an empty one."""
        ...

    def may_compact(self, handle: FileHandle) -> bool:
        """Return whether a sealed file may be compacted now."""
        ...

    def compact(self, handle: FileHandle) -> None:
        """Bring a sealed file to `compacted`."""
        ...

    def passes_over(self, handle: FileHandle) -> bool:
        """Return whether a file is never published, and those behind it do not wait for it."""
        ...

    def may_publish(self, handle: FileHandle) -> bool:
        """Return whether a compacted file may be published now: else it waits, and those behind it."""
        ...

    def prepare_publication(self) -> None:
        """Publish what the store must know before it lists one more file."""
        ...

    def check(self, path: Path) -> Sequence[str]:
        """Return the broken rules of a file, in words; read all of it."""
        ...

    def contents(self, handle: FileHandle) -> Buffer:
        """Return all bytes of a compacted file, mapped: its name may be gone."""
        ...

    def sidecar(self, handle: FileHandle) -> Buffer:
        """Return the bytes of a compacted file's tail."""
        ...

    def make_row(self, handle: FileHandle, object_key: str) -> tuple[FileRow, TableDraft | None]:
        """Return the row of a file that was uploaded, and a queue table to be committed with it."""
        ...

    def reader_of(self, row: FileRow) -> Closing:
        """Return the reader of a published file."""
        ...

    def drop_local_copy(self, handle: FileHandle) -> None:
        """Give a published file's local copy up, durably; reads of it may still be under way."""
        ...

    def note_shown(self) -> None:
        """Called after reads were directed to a published file."""
        ...


class Publication(NamedTuple):
    """Files of one kind on their way into the store: where they lie, and what differs."""

    components: CompactorComponents
    kind: FileKind


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

    row_kind = INDEX_KIND

    def __init__(self, components: CompactorComponents) -> None:
        self._components = components

    def seal(self, handle: FileHandle) -> None:
        self._components.before_seal()
        seal_file(self._components, handle)

    def may_compact(self, handle: FileHandle) -> bool:
        return True

    def compact(self, handle: FileHandle) -> None:
        compact_file(self._components, handle)

    def passes_over(self, handle: FileHandle) -> bool:
        return False

    def may_publish(self, handle: FileHandle) -> bool:
        return self._components.may_publish(handle)

    def prepare_publication(self) -> None:
        pass

    def check(self, path: Path) -> Sequence[str]:
        return check_file(self._components.filesystem, path)

    def contents(self, handle: FileHandle) -> Buffer:
        reader: CompactedFile = handle.reader
        return reader.mapped_bytes().data

    def sidecar(self, handle: FileHandle) -> Buffer:
        reader: CompactedFile = handle.reader
        return reader.sidecar_bytes().data

    def make_row(self, handle: FileHandle, object_key: str) -> tuple[FileRow, TableDraft | None]:
        components, reader = self._components, handle.reader
        dates = {"begin_ms": handle.begin_ms, "sealed_at_ms": handle.sealed_at_ms or 0}
        row = make_row(reader, handle.uuid, object_key, dates)
        row = replace(row, number=handle.number, tells=self._may_tell(handle))
        return row, table_if_it_pays(components, row, reader) if row.tells else None

    def _may_tell(self, handle: FileHandle) -> bool:
        """Return whether everything before the file's end offsets is published once the file is.

        Not while an older file that was never published is in quarantine: its entries have no level,
        and a replay must not begin behind them. Later files tell more once it is removed.
        """
        published = self._components.claim.get().state.lists_number
        quarantined = self._components.quarantined_numbers()
        return all(published(number) for number in quarantined if number < handle.number)

    def reader_of(self, row: FileRow) -> Closing:
        return self._components.reader_of_row(row)

    def drop_local_copy(self, handle: FileHandle) -> None:
        assert handle.path is not None
        self._components.note_number(handle.number)
        self._components.before_drop(handle)
        retire(self._components.filesystem, [handle.path])

    def note_shown(self) -> None:
        pass
