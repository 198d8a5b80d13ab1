"""Merges the log's grouped files, local or published, and omits hidden messages.

::

    GONE        where the queues end that are left out: durable, and they begin behind it
    write       compacted/N.tmp of all sources, queue by queue, compressed anew: verified whole
                N is the number of the newest source; it names them all

    local       sync, rename: it wins over its sources; these are unlinked, by recovery after a crash
                table, one step: a read sees all sources or the merged file
    published   upload, commit: one object and one row replace the sources, for every reader in one step
                their objects live on for the grace time; compacted/N.tmp goes  (`published_merge`)

Reads of the sources go on until they end: their descriptors, mappings and objects stay.

The oldest local file takes no part in local merges where files are published: its row may be listed although
the answer of the commit was lost, and its messages would be listed twice.

Depends on compactor, errors, lifecycle, logfile and the rest of log_service.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from tierdex.compactor.rewrite import AppendingFile
from tierdex.compactor.rounds import Rounds
from tierdex.compactor.unit import Unit
from tierdex.errors import ConflictError, CorruptFileError
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.folders.transition import install, retire, sync_file, verify_temporary
from tierdex.log_service.files.log_file import FORGETS, describe_parts
from tierdex.log_service.read.queue_parts import STORE_ERRORS
from tierdex.log_service.recovery.log_recovery import open_grouped
from tierdex.log_service.tiering.log_retention import sealed_times
from tierdex.log_service.tiering.merge_plan import plan_merge
from tierdex.log_service.tiering.merge_source import HiddenShares, candidate, open_sources
from tierdex.log_service.tiering.published_merge import publish_merged
from tierdex.logfile.check import check_log_file
from tierdex.logfile.grouped.merge import QueueGapError, write_grouped
from tierdex.logfile.grouped.sources import ForgettingSource
from tierdex.logfile.grouped.writer import BesideMessages
from tierdex.logfile.header import LogHeader
from tierdex.logfile.layout import COLD_PAGE_BYTES, Codec, Form
from tierdex.logfile.queue_ends import NO_QUEUES, QueueEnds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tierdex.compactor.unit import FileClaims
    from tierdex.lifecycle.paths import DataPaths
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.lifecycle.table.file_table import FileList
    from tierdex.log_service.notes.trim_record import TrimRecord
    from tierdex.log_service.tiering.log_kind import LogKind, LogWork
    from tierdex.log_service.tiering.merge_plan import MergeCandidate
    from tierdex.log_service.tiering.merge_source import MergeSource
    from tierdex.seams import Seams

logger = logging.getLogger(__name__)

_PASSED_OVER_S = 3600.0  # a source that could not be read is tried again then


class LogMerging:
    """Merges grouped files of the own node. One thread at a time: the worker's."""

    def __init__(
        self, seams: Seams, paths: DataPaths, work: LogWork, kind: LogKind, gone: TrimRecord,
        claims: FileClaims,
    ) -> None:  # fmt: skip
        self._seams = seams
        self._paths = paths
        self._work = work
        self._kind = kind
        self._gone = gone
        self._claims = claims
        self._hidden = HiddenShares()
        self._rounds = Rounds(seams.clock)
        self._passed_over: dict[bytes, float] = {}  # uuid -> until when
        self._behind_gaps: set[bytes] = set()  # files before which some expired

    def look_at_everything(self) -> None:
        """Make merging due now."""
        self._rounds.ask()

    def units(self) -> Iterator[Unit]:
        """Yield the merges that are worth it, now and then only."""
        if not self._rounds.is_due:
            return
        before: list[FileHandle] = []
        while (
            group := self._plan()
        ) and group != before:  # the same: another process has one of them
            yield self._unit(group)
            before = group
        self._rounds.end()

    def rewritable(self) -> set[FileHandle]:
        """Return the files that may be written anew now, here or in the store."""
        files = self._work.table.version.files
        return self._local(files) | self._published(files)

    def rewrite(self, handle: FileHandle) -> int:
        """Write a file anew, without what is forgotten or hidden by now; return 1 when it was."""
        return self._try([handle])

    # -- private -----------------------------------------------------------------------------------------

    def _unit(self, group: list[FileHandle]) -> Unit:
        items, newest = sum(handle.item_count for handle in group), group[-1]
        return Unit("merge", newest.file_id, items, lambda: self._try(group), newest.number)

    def _plan(self) -> list[FileHandle]:
        """Return the oldest files worth merging, those that lie here before published ones."""
        with self._work.table.snapshot() as snapshot:
            files = sealed_times(snapshot.file_list, self._work.settings.node)
            self._behind_gaps &= {handle.uuid for handle, _ in files}
            self._hidden.keep(self._gone.current.rules, {(h.uuid, at) for h, at in files})
            for mergeable in (self._local(snapshot.file_list), self._published(snapshot.file_list)):
                candidates = self._candidates(files, mergeable)
                group = [files[place][0] for place in plan_merge(candidates, self._work.settings)]
                free = self._seams.filesystem.free_bytes(self._paths.root) if group else 0
                needed = sum(h.bytes for h in group) + self._work.settings.disk_reserve_bytes
                if group and free >= needed:
                    return group
        return []

    def _local(self, files: FileList) -> set[FileHandle]:
        """Return the files that lie here and may be merged.

        Not the oldest where files are published: its row may be listed already, although the answer was lost.
        """
        local = files.local()
        if self._kind.components is not None:
            waiting = (handle for handle in local if not self._kind.passes_over(handle))
            next(waiting, None)
            local = list(waiting)
        return {
            h
            for h in local
            if h.state is FileState.COMPACTED
            and not self._kind.is_left(h)
            and not self._is_passed_over(h)
        }

    def _published(self, files: FileList) -> set[FileHandle]:
        """Return the published files that may be merged; none while the node is not ours."""
        components = self._kind.components
        if components is None or not components.claim.is_claimed:
            return set()
        return {h for h in files if h.row is not None and not self._is_passed_over(h)}

    def _is_passed_over(self, handle: FileHandle) -> bool:
        return self._seams.clock.monotonic() < self._passed_over.get(handle.uuid, 0.0)

    def _candidates(
        self, files: Sequence[tuple[FileHandle, int]], mergeable: set[FileHandle]
    ) -> list[MergeCandidate | None]:
        rules, now_ms = self._gone.current.rules, self._seams.clock.now_ms()
        found: list[MergeCandidate | None] = []
        for handle, sealed_at in files:
            told = None
            if handle in mergeable:
                try:
                    hidden = self._hidden.of(handle, sealed_at, rules, now_ms)
                    told = candidate(handle, sealed_at, hidden)
                    told = told._replace(is_behind_gap=handle.uuid in self._behind_gaps)
                except (CorruptFileError, *STORE_ERRORS) as error:
                    self._pass_over([handle], error)
            found.append(told)
        return found

    def _pass_over(self, files: Sequence[FileHandle], error: Exception) -> None:
        """Merge without these files for a while: answers name what is wrong with them."""
        now = self._seams.clock.monotonic()
        known = {uuid: until for uuid, until in self._passed_over.items() if now < until}
        self._passed_over = known | {handle.uuid: now + _PASSED_OVER_S for handle in files}
        logger.warning("not merged", extra={"files": len(files), "error": str(error)})

    def _try(self, group: Sequence[FileHandle]) -> int:
        """Merge files; those that cannot be read stay as they are, and the others go on without them."""
        try:
            return self._merge(group)
        except ConflictError:  # a commit of before took effect, and its answer was lost
            self._kind.publishing.show_manifest()
            return 0
        except QueueGapError as error:  # what lay between expired: those on either side go together
            behind = group[error.source]
            self._behind_gaps.add(behind.uuid)
            logger.info("merged with nothing older", extra={"file_id": behind.file_id})
            return 0
        except CorruptFileError as error:
            named = [h for h in group if error.path in (str(h.path), h.object_key)] or group
            if group[0].row is not None:
                self._pass_over(named, error)
            else:
                for handle in named:
                    self._work.quarantine(handle, error.reason)
            return 0

    def _merge(self, group: Sequence[FileHandle]) -> int:
        """Merge files, oldest first; return how many, 0 when another worker has one of them."""
        table = self._work.table
        with ExitStack() as held:
            others = [held.enter_context(self._claims.hold(h.number)) for h in group[:-1]]
            snapshot = held.enter_context(table.snapshot())
            if not all(others) or any(table.get(*h.key) is not h for h in group):
                return 0
            sealed_at = dict(sealed_times(snapshot.file_list, self._work.settings.node))
            rules, now_ms = self._gone.current.rules, self._seams.clock.now_ms()
            sources = open_sources([(h, sealed_at[h]) for h in group], rules, now_ms)
            ends = NO_QUEUES
            for source in sources:
                ends = ends.joined(source.ends_left_out())
            if len(ends):
                # Durable before the messages go; they were hidden before.
                self._gone.keep(self._gone.current.joined(ends, ()))
            for source in sources:
                ends = ends.joined(source.ends_left_out_before())
            temporary = self._paths.temporary(FileState.COMPACTED, group[-1].number)
            try:
                self._write(temporary, sources, ends)
                if group[0].row is None:
                    written = self._install(temporary, group)
                else:
                    written = publish_merged(self._kind, temporary, group)
            finally:
                self._seams.filesystem.unlink(temporary)
        gone = sum(handle.bytes for handle in group) - written
        self._work.progress.count(merged_bytes=written, given_back_bytes=max(0, gone))
        return len(group)

    def _install(self, temporary: Path, group: Sequence[FileHandle]) -> int:
        """Put the merged file in place of its sources; return its bytes."""
        filesystem, newest = self._seams.filesystem, group[-1]
        target = self._paths.path_of(FileState.COMPACTED, newest.number)
        sync_file(filesystem, temporary)
        old = [handle.path for handle in group if handle.path is not None]
        install(filesystem, temporary, target, old)  # durable and visible: it names its sources
        retire(filesystem, [path for path in old if path != target])
        merged = open_grouped(filesystem, newest.node, newest.number, target)
        self._work.table.replace(group, [merged])
        return merged.bytes

    def _write(self, path: Path, sources: Sequence[MergeSource], ends: QueueEnds) -> None:
        """Write and verify the merged file; `ends` are those of the queues that it left out, or lacks."""
        filesystem, group = self._seams.filesystem, [source.handle for source in sources]
        header = LogHeader(
            form=Form.GROUPED, uuid=self._seams.ids.uuid(), created_ms=self._seams.clock.now_ms(),
            generation=group[-1].reader.generation, page_bytes=COLD_PAGE_BYTES,
            codec=Codec[self._work.settings.cold_codec.upper()],
        )  # fmt: skip
        extra: dict[str, Any] = {
            "begin_ms": min(handle.begin_ms for handle in group),
            "sealed_at_ms": max(handle.sealed_at_ms or 0 for handle in group),
            **describe_parts([source.file for source in sources]),
        }
        forgotten = self._gone.forgotten.current
        if forgotten.number:
            extra[FORGETS] = forgotten.number
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            self._work.progress.advance(count - done, 0)
            done = count

        filesystem.unlink(path)  # of an earlier attempt
        file = filesystem.open(path, writable=True, create=True, exclusive=True)
        try:
            out = AppendingFile(file)
            rows = [source.rows for source in sources]
            write_grouped(
                [ForgettingSource(each, forgotten.places) for each in rows],
                out.write, header=header,
                beside=BesideMessages(
                    extra=extra, queue_table=ends.encode() if len(ends) else None
                ),
                shared_by=rows if group[0].row is not None else (),  # a stream may have read some
                on_progress=advance,
            )  # fmt: skip
            out.flush()
        finally:
            file.close()
        verify_temporary(filesystem, path, lambda written: check_log_file(filesystem, written))
