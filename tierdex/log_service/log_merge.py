"""Merges of the log's grouped files, and what they leave out.

::

    GONE        where the queues end that are left out: durable, and they begin behind it
    write       compacted/N.tmp of all sources, queue by queue, compressed anew: synced, verified whole
    rename      compacted/N, the number of the newest source: it names them all, and wins over them
    unlink      the other sources; recovery removes those that a crash leaves
    table       one step: a read sees all sources or the merged file

Reads of the sources go on until they end: their descriptors and mappings stay. Depends on compactor, errors,
lifecycle, logfile and the other modules of this folder.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from tierdex.compactor.rewrite import AppendingFile
from tierdex.compactor.unit import Unit
from tierdex.errors import CorruptFileError
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.retention import is_hidden
from tierdex.lifecycle.transition import install, retire, sync_file, verify_temporary
from tierdex.log_service.log_file import GroupedLogFile, describe_parts
from tierdex.log_service.log_recovery import open_grouped
from tierdex.log_service.log_retention import sealed_times
from tierdex.log_service.merge_plan import MergeCandidate, plan_merge
from tierdex.logfile.check import check_log_file
from tierdex.logfile.grouped.merge import write_grouped
from tierdex.logfile.grouped.sources import GroupedSource
from tierdex.logfile.header import LogHeader
from tierdex.logfile.layout import COLD_PAGE_BYTES, TIMER_TOPIC, Codec, Form
from tierdex.logfile.queue_ends import NO_QUEUES, QueueEnds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tierdex.compactor.unit import FileClaims
    from tierdex.lifecycle.file_handle import FileHandle
    from tierdex.lifecycle.manifest import Retention
    from tierdex.lifecycle.paths import DataPaths
    from tierdex.log_service.gone_messages import GoneRecord
    from tierdex.log_service.log_kind import LogKind, LogWork
    from tierdex.seams import Seams

_LOOK_EVERY_S = 30.0


class MergeSource:
    """A grouped file that is merged, and the topics that its merge leaves out."""

    def __init__(
        self, reader: GroupedLogFile, sealed_at_ms: int, rules: Retention, now_ms: int
    ) -> None:
        self.reader = reader
        topics = reader.file.topics
        names = [topics.name(index) for index in range(len(topics))] if rules.has_limits else []
        hidden = [
            index
            for index, name in enumerate(names)
            if name != TIMER_TOPIC and is_hidden(rules, name.decode(), sealed_at_ms, now_ms)
        ]
        self.left_out = frozenset(names[index] for index in hidden)
        self.hidden_bytes = int(topics.rows["body_bytes"][hidden].sum())
        kept = (name for name in names if name != TIMER_TOPIC and name not in self.left_out)
        limits = (rules.of(name.decode()) for name in kept)
        self.retention_ms = min((limit for limit in limits if limit is not None), default=None)

    def candidate(self, handle: FileHandle) -> MergeCandidate:
        """Return the file as the plan sees it."""
        file = self.reader.file
        return MergeCandidate(
            file.bytes, file.payload_bytes, file.queue_count, self.reader.generation,
            handle.begin_ms, handle.sealed_at_ms or 0, self.retention_ms, file.body_bytes,
            self.hidden_bytes,
        )  # fmt: skip

    def ends_left_out(self, number: int) -> QueueEnds:
        """Return where the queues end that are left out. Raises CorruptFileError."""
        if not self.left_out:
            return NO_QUEUES
        return QueueEnds.of(*self.reader.ends(self.left_out), last_file=number)


class LogMerging:
    """Merges local grouped files. One thread at a time: the worker's."""

    def __init__(
        self, seams: Seams, paths: DataPaths, work: LogWork, kind: LogKind, gone: GoneRecord,
        claims: FileClaims,
    ) -> None:  # fmt: skip
        self._seams = seams
        self._paths = paths
        self._work = work
        self._kind = kind
        self._gone = gone
        self._claims = claims
        self._looked_at = float("-inf")

    def look_at_everything(self) -> None:
        """Look for what is worth it at once."""
        self._looked_at = float("-inf")

    def units(self) -> Iterator[Unit]:
        """Yield the merge that is worth it, now and then only."""
        now = self._seams.clock.monotonic()
        if now - self._looked_at < _LOOK_EVERY_S:
            return
        group = self._plan()
        if group:
            items, newest = sum(handle.item_count for handle in group), group[-1]
            yield Unit("merge", newest.file_id, items, lambda: self._try(group), newest.number)
        self._looked_at = now

    # -- private -----------------------------------------------------------------------------------------

    def _plan(self) -> list[FileHandle]:
        rules, now_ms = self._gone.current.rules, self._seams.clock.now_ms()
        with self._work.table.snapshot() as snapshot:
            files = sealed_times(snapshot.file_list.local())
            candidates = [
                MergeSource(handle.reader, sealed_at, rules, now_ms).candidate(handle)
                if handle.state is FileState.COMPACTED and not self._kind.is_left(handle)
                else None
                for handle, sealed_at in files
            ]
        group = [files[place][0] for place in plan_merge(candidates, self._work.settings)]
        free = self._seams.filesystem.free_bytes(self._paths.root)
        needed = sum(handle.bytes for handle in group) + self._work.settings.disk_reserve_bytes
        return group if free >= needed else []

    def _try(self, group: Sequence[FileHandle]) -> int:
        """Merge files; those that cannot be read stay as they are, and the others go on without them."""
        try:
            return self._merge(group)
        except CorruptFileError as error:
            named = [handle for handle in group if str(handle.path) == error.path]
            for handle in named or group:
                self._work.quarantine(handle, error.reason)
            return len(named or group)

    def _merge(self, group: Sequence[FileHandle]) -> int:
        """Merge files, oldest first; return how many, 0 when another worker has one of them."""
        table = self._work.table
        with ExitStack() as held:
            others = [held.enter_context(self._claims.hold(h.number)) for h in group[:-1]]
            snapshot = held.enter_context(table.snapshot())
            if not all(others) or any(table.get(*h.key) is not h for h in group):
                return 0
            sealed_at = dict(sealed_times(snapshot.file_list.local()))
            rules, now_ms = self._gone.current.rules, self._seams.clock.now_ms()
            sources = [MergeSource(h.reader, sealed_at[h], rules, now_ms) for h in group]
            ends = NO_QUEUES
            for source, handle in zip(sources, group, strict=True):
                ends = ends.joined(source.ends_left_out(handle.number))
            if len(ends):
                # Durable before the messages go; they were hidden before.
                self._gone.keep(self._gone.current.joined(ends, ()))
            merged = self._install(group, sources)
        table.replace(group, [merged])
        return len(group)

    def _install(self, group: Sequence[FileHandle], sources: Sequence[MergeSource]) -> FileHandle:
        """Write the merged file in place of its sources; return its handle."""
        filesystem, newest = self._seams.filesystem, group[-1]
        target = self._paths.path_of(FileState.COMPACTED, newest.number)
        temporary = self._paths.temporary(FileState.COMPACTED, newest.number)
        filesystem.unlink(temporary)  # of an earlier attempt
        self._write(temporary, group, sources)
        sync_file(filesystem, temporary)
        verify_temporary(filesystem, temporary, lambda path: check_log_file(filesystem, path))
        old = [handle.path for handle in group if handle.path is not None]
        install(filesystem, temporary, target, old)  # durable and visible: it names its sources
        retire(filesystem, [path for path in old if path != target])
        return open_grouped(filesystem, newest.node, newest.number, target)

    def _write(
        self, path: Path, group: Sequence[FileHandle], sources: Sequence[MergeSource]
    ) -> None:
        header = LogHeader(
            form=Form.GROUPED, uuid=self._seams.ids.uuid(), created_ms=self._seams.clock.now_ms(),
            generation=sources[-1].reader.generation, page_bytes=COLD_PAGE_BYTES,
            codec=Codec[self._work.settings.cold_codec.upper()],
        )  # fmt: skip
        extra: dict[str, Any] = {
            "begin_ms": min(handle.begin_ms for handle in group),
            "sealed_at_ms": max(handle.sealed_at_ms or 0 for handle in group),
            **describe_parts([source.reader for source in sources]),
        }
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            self._work.progress.advance(count - done, 0)
            done = count

        with_room = self._seams.filesystem.open(path, writable=True, create=True, exclusive=True)
        try:
            out = AppendingFile(with_room)
            write_grouped(
                [GroupedSource(source.reader.file, source.left_out) for source in sources],
                out.write, header=header, extra=extra, on_progress=advance,
            )  # fmt: skip
            out.flush()
        finally:
            with_room.close()
