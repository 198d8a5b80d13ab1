"""What the compactor's jobs share: seams, settings, the file table, the node, the callbacks upward.

Depends on lifecycle, storage_layer and the ground. The two callbacks are how this layer reports to
the one above without importing it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection

    from typing_extensions import Buffer

    from tierdex.clock import Clock
    from tierdex.compactor.claim import NodeClaim
    from tierdex.compactor.progress import Progress
    from tierdex.compactor.queue_table import QueueTables
    from tierdex.filesystem import FileSystem
    from tierdex.ids import IdSource
    from tierdex.indexfile.compacted.sidecar import Sidecar
    from tierdex.lifecycle.file_handle import FileHandle
    from tierdex.lifecycle.file_table import FileTable
    from tierdex.lifecycle.manifest import FileRow
    from tierdex.lifecycle.paths import DataPaths
    from tierdex.settings import Settings
    from tierdex.storage_layer.base import Store


class PublishedReader(Protocol):
    """The reader of a published file, as far as this layer cares."""

    def close(self) -> None: ...
    def sidecar(self) -> Sidecar: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactorComponents:
    """Shared by all jobs; nothing here is changed after construction."""

    settings: Settings
    filesystem: FileSystem
    clock: Clock
    ids: IdSource
    paths: DataPaths
    table: FileTable
    store: Store
    claim: NodeClaim
    progress: Progress
    sync_lock: threading.Lock  # held while a file is sealed: nobody else syncs it then
    is_active: Callable[[FileHandle], bool]  # does the writer still put into this file?
    queue_tables: QueueTables
    reader_of_row: Callable[[FileRow], PublishedReader]  # reader of a published file of this node
    keep_sidecar: Callable[[FileRow, Buffer], object]  # store a sidecar before it is asked for
    # A commit of ours was made: bring the table up to it, without the files given (none: ()).
    show_manifest: Callable[..., None]
    next_number: Callable[[], int]  # a file number above every one known
    note_number: Callable[[int], None]  # durably, before a file of that number leaves the folder
    on_loss: Callable[[str], None]  # a device lost what was put and never acknowledged at `disk`
    quarantine: Callable[[FileHandle, str], None]  # a file cannot be read: name it in answers
    quarantined_numbers: Callable[[], Collection[int]]  # of files that nobody could read
