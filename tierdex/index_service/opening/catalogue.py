"""The operator's view: files, topics, the check of one file, the compactor's status, expiry by hand.

Depends on errors, file_info, compactor, readers, tables, view, indexfile and the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tierdex.compactor.progress import describe_backlog
from tierdex.errors import CorruptFileError, NotFoundError, ReadOnlyError, TierdexError
from tierdex.index_service.file_info import FileInfo, NodeInfo, TopicInfo, describe_handle
from tierdex.index_service.readers.published_file import PublishedFile
from tierdex.index_service.view.rocketmq_source import ROCKETMQ_NODE, RocketmqReader
from tierdex.index_service.view.topic_names import TopicNames
from tierdex.indexfile.chained.file import ChainedFile
from tierdex.indexfile.compacted.file import CompactedFile
from tierdex.indexfile.compacted.small_parts import TopicRow
from tierdex.indexfile.compacted.statistics import COMPACTED_AT, COMPACTION_MS
from tierdex.indexfile.schema import TABLE_ROW_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np

    from tierdex.clock import Clock
    from tierdex.compactor.components import CompactorComponents
    from tierdex.index_service.answer import Missing
    from tierdex.index_service.tables.dead_entries import DeadEntries
    from tierdex.index_service.view.manifest_follower import ManifestFollower
    from tierdex.index_service.view.read_view import ReadView
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.lifecycle.table.file_table import FileTable
    from tierdex.storage_layer.base import Store


_OF_TABLES: Final = TABLE_ROW_SCHEMA.encode().decode()


class Catalogue:
    """Read-mostly views for operators. Safe to share between threads."""

    def __init__(
        self,
        *,
        clock: Clock,
        table: FileTable,
        manifests: ManifestFollower,
        read_view: ReadView,
        compaction: CompactorComponents | None,
        worker_error: Callable[[], BaseException | None],
        dead: DeadEntries,
    ) -> None:
        self._dead = dead
        self._clock = clock
        self._topic_names = TopicNames()
        self._table = table
        self._manifests = manifests
        self._read_view = read_view
        self._compaction = compaction
        self._worker_error = worker_error

    def files(self) -> list[FileInfo]:
        """Return every file newest first, then the unreadable ones."""
        with self._table.snapshot() as snapshot:
            dead = self._dead.shown()
            shown = [self._measured(handle, dead) for handle in snapshot.files]
        return shown + self._read_view.unreadable_files()

    def file(self, file_id: str, store: Store) -> FileInfo:
        """Return one file; of a compacted one also when that was, of a published one its object's time.

        That takes three small requests of a published file. Raises NotFoundError, and what the store raises.
        """
        with self._table.snapshot() as snapshot:
            handle = next((each for each in snapshot.files if each.file_id == file_id), None)
            if handle is not None:
                return self._describe_life(handle, store)
        for unreadable in self._read_view.unreadable_files():
            if unreadable.file_id == file_id:
                return unreadable
        raise NotFoundError(f"there is no file {file_id}")

    def nodes(self) -> list[NodeInfo]:
        """Return every node of the store, also unreadable ones."""
        return self._manifests.describe()

    def _describe(self, handle: FileHandle) -> FileInfo:
        return describe_handle(handle, self._topic_names.known(handle))

    def _measured(self, handle: FileHandle, dead: Mapping[str, np.ndarray]) -> FileInfo:
        """Return a file's row, of one with rows of followed tables also how many of them are dead."""
        shown, reader = self._describe(handle), handle.reader
        if not dead or not isinstance(reader, CompactedFile | PublishedFile):
            return shown
        schema = (
            reader.row.schema
            if isinstance(reader, PublishedFile)
            else reader.schema.encode().decode()
        )
        if schema != _OF_TABLES:
            return shown
        try:
            whole = reader.whole() if isinstance(reader, PublishedFile) else reader
            share = self._dead.share(handle.uuid, whole, dead)
        except TierdexError:  # queries name a file that cannot be read
            return shown
        return shown._replace(dead_items=round(share * handle.item_count))

    def _describe_life(self, handle: FileHandle, store: Store) -> FileInfo:
        shown, key = self._measured(handle, self._dead.shown()), handle.object_key
        if key is not None:
            shown = shown._replace(published_at=store.head(key).modified_ms)
        if not isinstance(handle.reader, CompactedFile | PublishedFile):
            return shown
        at_ms, took_ms = map(handle.reader.extra.get, (COMPACTED_AT, COMPACTION_MS))
        if not isinstance(at_ms, int) or not isinstance(took_ms, int):
            return shown  # by a version, or a job, that does not tell it
        return shown._replace(compacted_at=at_ms, compaction_s=took_ms / 1000)

    def topics(self, missing: list[Missing] | None = None) -> list[str]:
        """Return the topics of all files, sorted. Raises what the store raises: see `TopicNames.of`."""
        with self._table.snapshot() as snapshot:
            return self._topic_names.of(snapshot.files, missing)

    def topic_infos(self) -> list[TopicInfo]:
        """Return the same with counts and times. Raises what the store raises."""
        with self._table.snapshot() as snapshot:
            return topic_totals(snapshot.files, self._topic_names)

    def verify(self, file_id: str) -> list[str]:
        """Check one file from end to end. Raises NotFoundError, and what the store raises."""
        with self._table.snapshot() as snapshot:
            for handle in snapshot.files:
                if handle.file_id == file_id:
                    return self._verify(handle)
        raise NotFoundError(f"there is no file {file_id}")

    def _verify(self, handle: FileHandle) -> list[str]:
        reader = handle.reader
        if isinstance(reader, ChainedFile | CompactedFile):
            return reader.check()
        if isinstance(reader, RocketmqReader):
            return reader.check()
        assert isinstance(reader, PublishedFile), reader
        try:
            return reader.whole().check()
        except CorruptFileError as error:
            return [error.reason]

    def compaction_status(self) -> dict[str, Any]:
        """Return the backlog, the running job, the last error and the totals."""
        with self._table.snapshot() as snapshot:
            local = [
                handle for handle in snapshot.file_list.local() if handle.node != ROCKETMQ_NODE
            ]
            is_active = self._compaction.is_active if self._compaction else lambda _handle: False
            status = describe_backlog(local, is_active, self._clock.now_ms())
        if self._compaction is not None:
            status |= self._compaction.progress.describe(self._clock.monotonic())
        error = self._worker_error()
        status["worker_error"] = None if error is None else f"{type(error).__name__}: {error}"
        return status

    def expire(self, before: int, *, dry_run: bool) -> list[FileInfo]:
        """Remove (or only return) this node's published files sealed before `before` (ms)."""
        if self._compaction is None:
            raise ReadOnlyError(
                "only the owner may expire files: open the index with its data folder"
            )
        from tierdex.compactor.expire import due_for_expiry, expire

        rows = due_for_expiry(self._compaction, before)
        node = self._compaction.settings.node
        shown = [self._describe(self._manifests.handle_of(row, node)) for row in rows]
        if dry_run:
            return shown
        gone = {row.uuid for row in expire(self._compaction, rows)}
        return [info for info, row in zip(shown, rows, strict=True) if row.uuid in gone]


READS_AT_ONCE: Final = 32  # files, two small requests each


def topic_totals(handles: Sequence[FileHandle], names: TopicNames) -> list[TopicInfo]:
    """Return the topics of these files (newest first), sorted. Raises what the store raises."""
    found = {name: TopicInfo(name) for name in names.of(handles)}
    reads = READS_AT_ONCE
    for handle in handles:
        if not handle.item_count:
            continue
        held = list((handle.reader.topics if handle.row is None else names.known(handle)) or ())
        times = handle.min_time, handle.max_time
        rows = [TopicRow(held[0], handle.item_count, *times)] if len(held) == 1 else _kept(handle)
        if rows is None and isinstance(handle.reader, PublishedFile) and reads:
            rows, reads = handle.reader.listed_topics, reads - 1
        if rows is None:
            whole = {"uncounted": handle.item_count}
            rows = [TopicRow(topic, 0, *times) for topic in held]
        else:
            whole = {}
        for topic, *counted in rows:
            found[topic] = found.get(topic, TopicInfo(topic)).with_file(*counted, **whole)
    return [found[topic] for topic in sorted(found)]


def _kept(handle: FileHandle) -> list[TopicRow] | None:
    """Return what a file lists when that is here, None for a chained file: it lists nothing."""
    reader = handle.reader
    if isinstance(reader, CompactedFile):
        return reader.listed_topics
    return reader.kept_topics() if isinstance(reader, PublishedFile) else None
