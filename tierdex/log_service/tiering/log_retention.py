"""Retention of the log's files: which are due, and how they are removed.

::

    due        the longest retention of its topics is over, or it was sealed before a time that is given; it
               is compacted, or will never be; the index has passed it, nothing of it is to be delivered
    GONE       where its queues end, and its name: durable         (`trim_record`)
    hidden     readers see the queues begin behind it; the file has left the table
    unlinked   a crash before leaves a file that the next opening removes, since the record names it
    unlisted   a published one leaves the manifest, and its object the store after the grace time

Topics of shorter retention are hidden although their file is kept; merges leave them out. Depends on
compactor, errors, lifecycle, logfile and the rest of log_service.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from itertools import accumulate
from typing import TYPE_CHECKING

from tierdex.compactor.rounds import Rounds
from tierdex.compactor.unit import Unit
from tierdex.errors import CorruptFileError
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.retention import is_expired, make_retention
from tierdex.log_service.recovery.repair import ends_of
from tierdex.logfile.queue_ends import NO_QUEUES, QueueEnds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tierdex.compactor.unit import FileClaims
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.lifecycle.table.file_table import FileList
    from tierdex.log_service.notes.trim_record import TrimRecord
    from tierdex.log_service.tiering.log_kind import LogKind, LogWork
    from tierdex.seams import Seams

logger = logging.getLogger(__name__)


def sealed_times(files: FileList, node: str) -> list[tuple[FileHandle, int]]:
    """Return the files of `node` that are sealed, oldest first, and when, for retention: int64 ms.

    None is older than those before it, whatever the clock did.
    """
    own = (handle for handle in files.iterate() if handle.node == node)
    sealed = [handle for handle in own if handle.sealed_at_ms is not None]
    times = accumulate((handle.sealed_at_ms or 0 for handle in sealed), max)
    return list(zip(sealed, times, strict=True))


class LogRetention:
    """Lets files of the log go, published ones as well. One thread at a time: the worker's."""

    def __init__(
        self, seams: Seams, work: LogWork, kind: LogKind, gone: TrimRecord, claims: FileClaims,
        is_needed: Callable[[FileHandle], bool],
    ) -> None:  # fmt: skip
        """`is_needed` says whether a file has messages that are still to be delivered."""
        self._is_needed = is_needed
        self._seams = seams
        self._work = work
        self._kind = kind
        self._gone = gone
        self._claims = claims
        self._rounds = Rounds(seams.clock)
        self._mute: set[bytes] = set()  # files that cannot say where their queues end
        self._left: list[Path] = []  # out of the table and named in the record, still in the folder

    def keep_rules(self) -> None:
        """Write the rules of the settings into the record. Raises OSError."""
        settings = self._work.settings
        rules = make_retention(settings.retention, settings.topic_retention)
        if rules != self._gone.current.rules:
            self._gone.keep(self._gone.current.ruled(rules))

    def look_at_everything(self) -> None:
        """Make expiry due now."""
        self._rounds.ask()

    def units(self) -> Iterator[Unit]:
        """Yield what is due, now and then only."""
        if not self._rounds.is_due:
            return
        due = self.due()
        if due or self._left:
            yield self.unit(due)
        self._rounds.end()

    def unit(self, due: Sequence[FileHandle]) -> Unit:
        """Return the work that lets `due` go, as far as they are there by then."""
        return Unit("expire", "", sum(h.item_count for h in due), lambda: self._expire(due))

    def due(self, before_ms: int | None = None) -> list[FileHandle]:
        """Return the files that may go now, oldest first; with `before_ms` those sealed before it, too.

        A file counts as no older than those before it. Of a published one the store may be asked.
        """
        rules, now_ms = self._gone.current.rules, self._seams.clock.now_ms()
        with self._work.table.snapshot() as snapshot:
            files = sealed_times(snapshot.file_list, self._work.settings.node)
            return [
                handle
                for handle, sealed_at in files
                if is_expired(rules, handle.topics, sealed_at, now_ms)
                or (before_ms is not None and sealed_at < before_ms)
                if handle.row is not None or self._may_go(handle)
                if handle.uuid not in self._mute
                if not self._is_needed(handle)
            ]

    def _may_go(self, handle: FileHandle) -> bool:
        """Return whether a local file is compacted, or stays damaged, and is in the index."""
        is_settled = handle.state is FileState.COMPACTED or self._kind.is_left(handle)
        return is_settled and self._kind.is_indexed(handle)

    def _expire(self, planned: Sequence[FileHandle]) -> int:
        """Drop files; return how many. What is left after an error is dropped later.

        Raises OSError, and for published ones what the store raises, FencedError.
        """
        with ExitStack() as held:
            claimed = [h for h in planned if held.enter_context(self._claims.hold(h.number))]
            return self._let_go([h for h in claimed if self._work.table.get(*h.key) is h])

    def _let_go(self, planned: Sequence[FileHandle]) -> int:
        files, ends = [], NO_QUEUES
        for handle in planned:
            try:
                told = QueueEnds.of(*ends_of(handle.reader), last_file=handle.number)
            except CorruptFileError as error:  # it stays: only it tells where its queues end
                self._mute.add(handle.uuid)
                logger.error("kept", extra={"file_id": handle.file_id, "reason": error.reason})
                continue
            files.append(handle)
            ends = ends.joined(told)
        if files:
            # Durable: where their queues go on. Visible: these begin behind them.
            self._gone.keep(self._gone.current.joined(ends, files))
            published = [handle for handle in files if handle.row is not None]
            local = [handle for handle in files if handle.row is None]
            self._work.table.remove(*local)
            self._left += [handle.path for handle in local if handle.path is not None]
            if published:
                self._kind.unlist(published)
            self._work.progress.count(given_back_bytes=sum(handle.bytes for handle in files))
        while self._left:
            self._seams.filesystem.unlink(self._left[0])
            self._seams.filesystem.sync_folder(self._left[0].parent)
            self._left.pop(0)
        return len(files)
