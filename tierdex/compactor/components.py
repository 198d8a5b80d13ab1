"""The shared part of the compactor's jobs: seams, settings, file table, node, callbacks upward.

This layer reports to the one above through the callbacks, without importing it.

Depends on lifecycle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tierdex.lifecycle.manifests.forgotten import NOTHING_FORGOTTEN, ForgottenEntries

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection
    from pathlib import Path

    import numpy as np
    from typing_extensions import Buffer

    from tierdex.clock import Clock
    from tierdex.compactor.claim import NodeClaim
    from tierdex.compactor.progress import Progress
    from tierdex.compactor.queue_table import QueueTables
    from tierdex.fileparts.dictionary import Dictionaries
    from tierdex.filesystem import FileSystem
    from tierdex.ids import IdSource
    from tierdex.indexfile.compacted.sidecar import Sidecar
    from tierdex.indexfile.schema import Schema
    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.lifecycle.paths import DataPaths
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.lifecycle.table.file_table import FileTable
    from tierdex.settings import Settings
    from tierdex.storage_layer.base import Store


class PublishedReader(Protocol):
    """The reader of a published file, as far as this layer uses it."""

    def close(self) -> None: ...
    def sidecar(self) -> Sidecar: ...


def already_durable() -> None:
    """Return at once: what an index of no log has to wait for before a seal."""


def always(handle: FileHandle) -> bool:
    """Return True: an index of no log waits for nothing before a publication."""
    return True


def as_it_says(row: FileRow) -> FileRow:
    """Return the row: entries of no log are as old as their file."""
    return row


def note_nothing(handle: FileHandle) -> None:
    """Return at once: an index of no log notes nothing more before a local copy goes."""


def no_row(schema: Schema, dictionaries: Dictionaries, rows: np.ndarray) -> None:
    """Return None: no row of a file is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactorComponents:
    """Shared by all jobs; never changed after construction."""

    settings: Settings
    filesystem: FileSystem
    clock: Clock
    ids: IdSource
    paths: DataPaths
    table: FileTable
    store: Store
    claim: NodeClaim
    progress: Progress
    sync_lock: threading.Lock  # held while a file is sealed, so that no sync runs beside it
    is_active: Callable[[FileHandle], bool]  # whether the writer still appends to this file
    queue_tables: QueueTables
    reader_of_row: Callable[[FileRow], PublishedReader]  # reader of a published file of this node
    keep_sidecar: Callable[
        [FileRow, Buffer], object
    ]  # put a sidecar into the cache before a query needs it
    # After a commit of ours: bring the table up to it, and remove the given handles in the same step.
    show_manifest: Callable[..., None]
    next_number: Callable[[], int]  # a file number above every one known
    note_number: Callable[[int], None]  # durably, before a file of that number leaves the folder
    # Durably, a file whose next state is durable; queries, and readers in other processes, may have it still.
    give_up: Callable[[Path], None]
    on_loss: Callable[[str], None]  # a device lost entries that were never acknowledged at `disk`
    quarantine: Callable[[FileHandle, str], None]  # answers name a file that cannot be read
    quarantined_numbers: Callable[[], Collection[int]]  # of quarantined files
    # Beside a log: what is indexed is durable there before a file is sealed, and published before it is; and
    # a published file's copy goes once the log knows how far it went.
    before_seal: Callable[[], None] = already_durable
    may_publish: Callable[[FileHandle], bool] = always
    before_drop: Callable[[FileHandle], None] = note_nothing
    dated: Callable[[FileRow], FileRow] = as_it_says  # with the age of the messages that it names
    # What files that are written leave out, and published files of this node that are to be written anew.
    forgotten: Callable[[], ForgottenEntries] = lambda: NOTHING_FORGOTTEN
    files_to_rewrite: Callable[[], list[FileRow]] = list
    end_forgettings: Callable[[], int] = int  # of which no file holds an entry any more
    # Which rows (b1[n]) of a file besides are left out of what is written: None: none.
    dead_rows: Callable[[Schema, Dictionaries, np.ndarray], np.ndarray | None] = no_row
