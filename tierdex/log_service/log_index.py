"""The index beside the log: opened under the log's lock, cut to what the log has, filled from it, asked.

::

    open     log recovered -> index cut and recovered (`Leader.holds`) -> dispatcher begins where it ends
    seal     of an index file: the log is synced before (`Leader.make_durable`)
    loss     a failed sync took messages: the index is opened anew, which cuts it as after a crash

Depends on answer, dispatcher, committer, levels, errors, lifecycle, index_service and indexfile.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tierdex.errors import TierdexError
from tierdex.index_service.claiming import Claiming
from tierdex.index_service.index import Index
from tierdex.index_service.leader import Leader
from tierdex.index_service.open import open_components
from tierdex.log_service.answer import MissingMessages
from tierdex.log_service.dispatcher import Dispatcher
from tierdex.log_service.levels import Level

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tierdex.fileparts.predecessor import Predecessor
    from tierdex.index_service.components import Components
    from tierdex.index_service.health import NotReady
    from tierdex.indexfile.source import Source
    from tierdex.lifecycle.file_handle import FileHandle
    from tierdex.lifecycle.file_number import NextNumber
    from tierdex.lifecycle.file_table import FileTable
    from tierdex.lifecycle.folder_lock import SharedFolderLock
    from tierdex.log_service.committer import Committer
    from tierdex.log_service.gone_messages import GoneRecord
    from tierdex.log_service.key_lookups import Lookup
    from tierdex.log_service.reads import QueuePosition
    from tierdex.seams import Seams
    from tierdex.settings import Settings
    from tierdex.storage_layer.base import Store


class LogIndex:
    """The index of an open log. Safe to share between threads."""

    def __init__(
        self, data: Path, store: str | Store | None, settings: Settings, seams: Seams,
        lock: SharedFolderLock, table: FileTable, committer: Committer, numbers: NextNumber,
        gone: GoneRecord,
    ) -> None:  # fmt: skip
        """Open it; the log has recovered, and nothing was appended since. Raises as `Index.open`."""
        self._data = data
        self._store = store
        self._settings = settings
        self._seams = seams
        self._folder_lock = lock
        self._table = table
        self._committer = committer
        self._numbers = numbers
        self._gone = gone
        self._lock = threading.Lock()  # held while the index is opened anew
        self._is_stale = False
        self._open()

    @property
    def node(self) -> str:
        return self._settings.node

    @property
    def index(self) -> Index:
        """The index, for queries: whoever appends does so to the log. Raises as `Index.open`."""
        with self._lock:
            if self._is_stale:
                self._index.close()
                self._open()
                self._is_stale = False
            return self._index

    def health(self) -> list[NotReady]:
        """Return why the index is not ready. One that is to be opened anew is, by whoever asks it next."""
        return [] if self._is_stale else self._index.health()

    def catch_up(self) -> None:
        """Put everything that is written now. Raises UnavailableError and what the opening raises."""
        self.index  # noqa: B018 (opened anew where it must be)
        self._dispatcher.catch_up()

    def lag(self) -> MissingMessages | None:
        """Catch up; return why some of what is written is not indexed, None when all is."""
        try:
            self.catch_up()
        except TierdexError as error:
            return MissingMessages("index", f"messages are not indexed yet: {error}")
        return None

    def unindexed(self, lookup: Lookup) -> list[QueuePosition]:
        """Return where messages lie that the index has not got: nowhere, it was brought up to date."""
        return []

    def has_passed(self, handle: FileHandle) -> bool:
        """Say whether all of a sealed journal is in the index."""
        return not self._is_stale and self._dispatcher.has_passed(handle)

    def waiting_bytes(self) -> int:
        """Return how many bytes of journals are written and not indexed yet."""
        return self._dispatcher.waiting_bytes()

    def note_loss(self) -> None:
        """Messages that were written are gone: open the index anew before it is used again."""
        self._is_stale = True

    def close(self) -> None:
        """Put what is left, and close the index. Raises what either raises; it is closed all the same."""
        try:
            if not self._is_stale:
                self._dispatcher.catch_up()
        finally:
            self._index.close()

    # -- private ------------------------------------------------------------------------------------------

    def _open(self) -> None:
        components = open_components(
            self._data, self._store, None, settings=self._settings, seams=self._seams,
            claiming=Claiming(adopt=False, takeover=False, accept_rollback=False),
            leader=Leader(
                self._folder_lock.share(), self._numbers, self._holds, self._make_durable
            ),
        )  # fmt: skip
        assert components.writing is not None
        self._index = Index(components)
        put = components.writing.writer.append_led
        self._dispatcher = Dispatcher(self._table, put, source_of(components))

    def _holds(self, source: Source) -> bool:
        """Say whether the log has all batches up to `source`."""
        with self._table.snapshot() as snapshot:
            for handle in snapshot.file_list.local():
                parts: Sequence[Predecessor] = handle.reader.parts
                for end in parts:
                    if end.uuid == source.uuid:
                        is_same = source.partial or end.batch_crc == source.batch_crc
                        at_end = source.batch_count == end.batch_count
                        return source.batch_count < end.batch_count or (at_end and is_same)
        return source.uuid in self._gone.current.files  # it went as a whole, by its age

    def _make_durable(self) -> None:
        """Sync what was written. Raises UnavailableError: the index file is sealed later."""
        with self._committer.append_lock:
            commit = self._committer.join(Level.DISK)
        self._committer.wait(commit, Level.DISK)


def source_of(components: Components) -> Source | None:
    """Return up to where a log's index has everything, None when it has nothing. CorruptFileError."""
    with components.table.snapshot() as snapshot:
        for handle in reversed(snapshot.file_list.local()):
            source: Source | None = handle.reader.source
            if source is not None:
                return source
    return None
