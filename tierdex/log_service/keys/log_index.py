"""The index beside the log: opened under the log's lock, cut to what the log has, filled from it, asked.

::

    open     node claimed -> log recovered (`LogOwner.recover`) -> index cut (`LogOwner.holds`) -> dispatched
    seal     of an index file: the log is synced before (`LogOwner.make_durable`)
    publish  log files by the index's compactor, before index files that cover them (`LogOwner.may_publish`)
    loss     a failed sync took messages: the index is opened anew, which cuts it as after a crash

Depends on answer, compactor, dispatcher, committer, published_note, levels, errors, lifecycle, index_service
and indexfile.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from tierdex.compactor.worker import STORE_WORKER
from tierdex.errors import FencedError, TierdexError, UnavailableError
from tierdex.index_service.index import Index
from tierdex.index_service.opening.folder_owner import Claiming
from tierdex.index_service.opening.open import open_components
from tierdex.index_service.view.node_ages import NodeAges
from tierdex.indexfile.source import Source
from tierdex.log_service.answer import MissingMessages
from tierdex.log_service.keys.dispatcher import Dispatcher
from tierdex.log_service.levels import Level
from tierdex.log_service.notes.published_note import note_indexed, read_indexed
from tierdex.value_rules import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tierdex.compactor.components import CompactorComponents
    from tierdex.compactor.kind import Publication
    from tierdex.compactor.unit import FileClaims
    from tierdex.fileparts.predecessor import Predecessor
    from tierdex.filesystem import FolderLock
    from tierdex.index_service.health import NotReady
    from tierdex.index_service.opening.components import Components
    from tierdex.index_service.opening.open_view import View
    from tierdex.index_service.view.manifest_follower import ManifestFollower
    from tierdex.index_service.view.published_view import PublishedView
    from tierdex.indexfile.columns import ItemColumns
    from tierdex.lifecycle.file_number import NextNumber
    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.lifecycle.manifests.manifest import ManifestState
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.lifecycle.table.file_table import FileTable
    from tierdex.log_service.append.committer import Committer
    from tierdex.log_service.files.tier import Tier
    from tierdex.log_service.keys.key_lookups import Lookup
    from tierdex.log_service.notes.trim_record import TrimRecord
    from tierdex.log_service.read.reads import QueuePosition
    from tierdex.log_service.recovery.takeover import Succession
    from tierdex.log_service.tiering.log_kind import LogKind
    from tierdex.seams import Seams
    from tierdex.settings import Settings
    from tierdex.storage_layer.base import Store


NOT_KNOWN: Final = "the published files are not known: the store was not reached since the opening"


class OwnedLog(Protocol):
    """What the index's opening asks of the log; it is recovered by the first call of `recover`."""

    @property
    def folder(self) -> Path: ...  # the data folder
    @property
    def root(self) -> Path: ...  # of the log's files
    @property
    def settings(self) -> Settings: ...
    @property
    def seams(self) -> Seams: ...
    @property
    def tier(self) -> Tier: ...
    @property
    def gone(self) -> TrimRecord: ...
    @property
    def numbers(self) -> NextNumber: ...
    @property
    def claims(self) -> FileClaims: ...
    def share_lock(self) -> FolderLock: ...
    @property
    def succession(self) -> Succession: ...
    @property
    def adopted_node(self) -> str | None: ...  # whose folder this was until now
    def recover(self, state: ManifestState | None) -> None: ...
    def note_claim(self, state: ManifestState) -> None: ...
    def refuse(self, error: FencedError) -> None: ...
    @property
    def committer(self) -> Committer: ...
    @property
    def kind(self) -> LogKind: ...


class LogIndex:
    """The index of an open log, and its log_owner as the index sees it. Safe to share between threads."""

    def __init__(self, log: OwnedLog, store: str | Store | None, claiming: Claiming) -> None:
        """Open it; the log recovers meanwhile. Raises as `Index.open`."""
        self._log = log
        self._store = store
        self._claiming = claiming
        self._lock = threading.Lock()  # held while the index is opened anew
        self._is_stale = False
        self._ages: tuple[NodeAges | None, NodeAges] = (None, NodeAges())
        self._manifests: ManifestFollower
        self._open()
        self._claiming = Claiming()  # what the caller permitted was for the opening

    @property
    def node(self) -> str:
        return self._log.settings.node

    @property
    def index(self) -> Index:
        """The index, for queries; messages are appended to the log. Raises as `Index.open`."""
        with self._lock:
            if self._is_stale:
                self._index.close()
                self._open()
                self._is_stale = False
            return self._index

    @property
    def index_table(self) -> FileTable:
        """The index's files."""
        return self._index_table

    def health(self) -> list[NotReady]:
        """Return why the index is not ready. A closed one counts as ready: the next query reopens it."""
        return [] if self._is_stale else self._index.health()

    def index_of_all(self) -> Index | None:
        """Return the index with all that is written now, None when it lacks some, or is to be opened anew."""
        if self._is_stale or (not self._dispatcher.has_all and self.lag() is not None):
            return None
        return self._index

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

    @property
    def ages(self) -> NodeAges:
        """What is known of the log's node now: it is ours, as of the last reading of its manifest."""
        all_ages, own = self._ages
        if self._read_view.ages is not all_ages:
            all_ages = self._read_view.ages
            own = all_ages.of_node(self.node)
            self._ages = all_ages, own
        return own

    def unindexed(self, lookup: Lookup) -> list[QueuePosition]:
        """Return where messages lie that the index has not got: nowhere, it was brought up to date."""
        return []

    def has_passed(self, handle: FileHandle) -> bool:
        """Return whether all of a sealed journal is in the index."""
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
                with suppress(FencedError):  # an adoption makes the index anew
                    self._dispatcher.catch_up()
        finally:
            self._index.close()

    # -- private ------------------------------------------------------------------------------------------

    def _open(self) -> None:
        components = open_components(
            self._log.folder, self._store, None, settings=self._log.settings, seams=self._log.seams,
            claiming=self._claiming, log_owner=self,
        )  # fmt: skip
        assert components.writing is not None
        self._index = Index(components)
        self._index_table, self._threads = components.table, components.threads
        self._read_view = components.read_view
        self.forgetter = components.forgetter
        try:
            self._dispatcher = self._dispatch(components)
        except BaseException:
            self._index.close()  # it has a share of the folder's lock, and threads
            raise

    def _dispatch(self, components: Components) -> Dispatcher:
        """Return who puts what follows the index's end. Raises UnavailableError, what the store raises."""
        assert components.writing is not None
        append = components.writing.writer.append_led

        def put(items: list[ItemColumns], source: Source) -> None:
            append([self._without_forgotten(each) for each in items], source)

        source = source_of(components) or self._published_source(components)
        behind = self._log.kind.note.number_before(source)
        wanted = [file for file in self._log.kind.note.files.values() if file.number > behind]
        if wanted and self._unknown() is not None:
            raise UnavailableError(
                "the index is lost, and it is rebuilt from messages of the store, which cannot be reached",
                retry_after_s=5.0,
            )
        return Dispatcher(self.table, self.node, put, source, behind=behind)

    def _without_forgotten(self, items: ItemColumns) -> ItemColumns:
        """Return items without those of forgotten messages, which a file may still hold."""
        places = self._log.gone.forgotten.places
        if not len(places):
            return items
        topics = [topic.encode() for topic in items.topic_list]
        fields = items.fields
        held = places.hold(topics, items.topic_index, fields["queue_id"], fields["offset"])
        return items if not held.any() else replace(items, valid=~held)

    def _published_source(self, components: Components) -> Source | None:
        """Return up to where the published index goes, as was noted here, else as its files say."""
        filesystem, root = self._log.seams.filesystem, self._log.root
        noted = read_indexed(filesystem, root)
        if noted is None:
            noted = published_source(components, self.node)
            if (
                noted is not None
            ):  # taken over, or the note was lost: the next opening needs no store
                note_indexed(filesystem, root, noted)
        return noted

    def note_if_published(self, handle: FileHandle) -> None:
        """Note that all up to the end of a file is in published index files, if that is so.

        It was indexed before it was compacted, and index files that hold anything are local or published.
        """
        with self._index_table.snapshot() as snapshot:
            if any(each.item_count for each in snapshot.file_list.local()):
                return
        note_indexed(
            self._log.seams.filesystem, self._log.root, Source(*handle.reader.end_of_batches)
        )

    def wake_publisher(self) -> None:
        """Wake the index's compactor to publish compacted files."""
        for thread in self._threads:
            if thread.name == STORE_WORKER:
                thread.wake()

    # -- as the owner of the log, for the index (`opening.log_owner`) ----------------------------------

    def share_lock(self) -> FolderLock:
        return self._log.share_lock()

    @property
    def numbers(self) -> NextNumber:
        return self._log.numbers

    @property
    def claims(self) -> FileClaims:
        return self._log.claims

    @property
    def table(self) -> FileTable:
        return self._log.tier.table

    def check_claim(self, view: View, state: ManifestState, is_ours: bool, is_over: bool) -> None:
        adopted = self._log.adopted_node
        if adopted is not None:
            old = view.manifests.log_of(adopted).refresh()
            self._log.succession.adopt(state, old, is_ours=is_ours)
        elif not is_ours:
            self._log.succession.succeed(state, is_over=is_over)

    def recover(self, view: View, state: ManifestState | None) -> PublishedView:
        self._manifests = view.manifests
        shelf = self._log.tier.bind(view.store)
        self._log.recover(state)
        self._log.tier.unknown = self._unknown
        return shelf

    def _unknown(self) -> str | None:
        """Return why what the note names is not in the table: the store was not reached yet."""
        if not self._log.kind.note.files or self._manifests.state_of(self.node).number:
            return None
        return NOT_KNOWN

    def note_claim(self, state: ManifestState) -> None:
        self._log.note_claim(state)

    def publication(self, components: CompactorComponents) -> Publication:
        return self._log.kind.publication(components)

    def note_published(self, handle: FileHandle) -> None:
        source: Source | None = handle.reader.source
        if source is not None:
            note_indexed(self._log.seams.filesystem, self._log.root, source)

    def refuse(self, error: FencedError) -> None:
        self._log.refuse(error)

    def may_publish(self, handle: FileHandle) -> bool:
        covers: Source | None = handle.reader.covers
        if covers is None:  # of no log
            return True
        with self.table.snapshot() as snapshot:
            local = snapshot.file_list.local()
            if any(part.uuid == covers.uuid for each in local for part in each.reader.parts):
                return False
        return covers.uuid in self._log.gone.current.files or self.is_published(covers.uuid)

    def dated(self, row: FileRow) -> FileRow:
        sealed_ms = row.sealed_at_ms
        with self.table.snapshot() as snapshot:
            for handle in snapshot.file_list.iterate():
                if handle.node == self.node and handle.begin_ms <= row.sealed_at_ms:
                    sealed_ms = max(sealed_ms, handle.sealed_at_ms or INT64_MAX)  # or it grows
        return replace(row, sealed_at_ms=sealed_ms)

    def holds(self, source: Source) -> bool:
        with self.table.snapshot() as snapshot:
            for handle in snapshot.file_list.local():
                parts: Sequence[Predecessor] = handle.reader.parts
                for end in parts:
                    if end.uuid == source.uuid:
                        return source.is_within(end.batch_count, end.batch_crc)
        # A file went as a whole by its age, or was published whole, after the index had been cut to it.
        return source.uuid in self._log.gone.current.files or self.is_published(source.uuid)

    def make_durable(self) -> None:
        """Sync what was written. Raises UnavailableError: the index file is sealed later."""
        committer = self._log.committer
        with committer.append_lock:
            commit = committer.join(Level.DISK)
        committer.wait(commit, Level.DISK)

    def is_published(self, uuid: bytes) -> bool:
        """Return whether a file of the log is published, as far as is known."""
        return self._log.kind.is_published(uuid, self._manifests.state_of(self.node))


def source_of(components: Components) -> Source | None:
    """Return up to where a log's index has everything, None when it has nothing. CorruptFileError."""
    with components.table.snapshot() as snapshot:
        for handle in reversed(snapshot.file_list.local()):
            source: Source | None = handle.reader.source
            if source is not None:
                return source
    return None


def published_source(components: Components, node: str) -> Source | None:
    """Return up to where the published index of a log goes, as its newest file says that tells.

    Raises what the store raises.
    """
    with components.table.snapshot() as snapshot:
        for handle in snapshot.file_list:  # newest first
            if handle.node == node and handle.row is not None:
                source: Source | None = handle.reader.sidecar().source
                if source is not None:
                    return source
    return None
