"""Looks keys up: one way for a single query and for many, whatever the form and place of the files.

::

    Lookups -> snapshot -> plan (time, topics), newest file first, no further than anything is wanted
            -> for each file: search -> rows that retention shows, without repeats -> Matches   (walk.py)
            -> what a door renders: entries (answers.py), an Arrow table (batch/)

With `peers`, live owners are asked at the same time for what they have not published. Most hold nothing of
the keys: the search of the store's files is the answer then. Else the files are searched again with theirs
among them, in their order; pages that were read are in the page cache.

A file that cannot be read ends up in `missing`; it never looks like "not found". A listed object that is
gone means that the plan is old: refresh, plan again once. A page that a cursor's place does not tell is
taken by a walk (paging.py).

A single query is a batch of one. Two doors ask local files before this one, by searches of the same kernels,
and each is held to it by a property test: `in_memory` (a local key: 1.6 us against 40) and
`batch/local_table` (a table of 1,000 keys: 0.1 ms against 0.36).

Depends on walk, matches, paging, peers, stages, trace, readers, requests, view, lifecycle, answer,
settings and errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from tierdex.errors import IncompleteAnswerError, UnavailableError
from tierdex.index_service.peers.peer_round import PeerRound
from tierdex.index_service.query.paging import Page, WalkNeededError
from tierdex.index_service.query.stages import StageTimes
from tierdex.index_service.query.trace import Trace
from tierdex.index_service.query.walk import PlanIsOldError, Walk
from tierdex.index_service.readers.file_reader import Budget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Executor

    from tierdex.clock import Clock
    from tierdex.index_service.answer import Missing
    from tierdex.index_service.peers.asking import Peers
    from tierdex.index_service.query.matches import Matches
    from tierdex.index_service.query.memory_search import PartialLookup
    from tierdex.index_service.requests.cursor import Cursor
    from tierdex.index_service.requests.lookups import Lookups
    from tierdex.index_service.view.freshness import Freshness
    from tierdex.index_service.view.read_view import ReadView
    from tierdex.lifecycle.table.file_table import FileList, FileTable
    from tierdex.settings import Settings

AT_ONCE: Final = 10_000  # items, and entries, of a batch that is answered without waiting


class TableLearnedError(Exception):
    """Rows of a table were found of which nothing was known, and now it is: the lookup is asked again."""


class Result(NamedTuple):
    """What was found, and what that says of everything that was not."""

    matches: Matches
    files: FileList  # of the snapshot
    everywhere: list[Missing]  # missing from every lookup
    as_of: int
    cursor: Cursor | None  # that the page began with
    trace: Trace
    manifest_requests: int

    def refuse_incomplete(self) -> None:
        """Raise IncompleteAnswerError if anything is missing from any lookup."""
        refuse_incomplete([*self.everywhere, *(row.missing for row in self.matches.missing)])


@dataclass(slots=True)
class _Run:
    """One call of `run`: what is asked, and what it took so far."""

    lookups: Lookups
    cursor: Cursor | None
    begun: PartialLookup | None
    round_: PeerRound
    trace: Trace
    explain: bool
    manifest_requests: int = 0


class LookupExecutor:
    """Answers lookups from the files of one table. Safe to share between threads."""

    def __init__(
        self,
        *,
        settings: Settings,
        clock: Clock,
        table: FileTable,
        read_view: ReadView,
        executor: Executor,
        peers: Peers | None = None,
    ) -> None:
        """Ask `peers` as well for what is not published; with them no fast path may be taken."""
        self.peers = peers
        self.settings = settings
        self.clock = clock
        self.read_view = read_view
        self.executor = executor
        self.table = table
        self.stage_times = StageTimes()
        self.learn_tables: Callable[[], bool] = lambda: False

    def run(
        self,
        lookups: Lookups,
        cursor: Cursor | None = None,
        *,
        begun: PartialLookup | None = None,
        explain: bool = False,
        peer_round: PeerRound | None = None,
        of_table: bool = False,
    ) -> Result:
        """Look up everything; a cursor, or what memory has `begun`, belongs to a single lookup.

        Fills `peer_round`. Without `of_table` rows of a lake's table are missing: the caller does not know
        which of them are live.

        Raises CursorExpiredError, and UnavailableError when the file of the cursor cannot be read.
        """
        trace = begun.trace if begun is not None and begun.trace is not None else Trace(self.clock)
        run = _Run(lookups, cursor, begun, peer_round or PeerRound(), trace, explain)
        run.trace.stages.enter("manifests")
        run.manifest_requests = self.read_view.catch_up()
        run.trace.stages.enter("plan")
        if self.peers is None:
            walk = self._walk_planned(run)
        else:
            walk = self._walk_beside_peers(run, self.peers)
        if not of_table:
            self._hide_tables(walk)
        everywhere = self.read_view.missing() + run.round_.missing
        result = Result(
            walk.matches, walk.files, everywhere, run.round_.as_of(), cursor, run.trace,
            run.manifest_requests,
        )  # fmt: skip
        run.trace.stages.enter("answer")
        return result

    def _hide_tables(self, walk: Walk) -> None:
        """Call rows of unknown tables missing. Raises TableLearnedError when their state can be had."""
        if walk.matches.hide_tables() and self.learn_tables():
            raise TableLearnedError

    def note_answered(self, result: Result) -> None:
        """Count what a result of `run` took, now that its answer is made."""
        watch = result.trace.stages
        watch.enter("answer")
        self.stage_times.add(watch.seconds)

    def is_still_fresh(self, freshness: Freshness) -> bool:
        """Return whether nothing is missing for any lookup, as it was before the files."""
        return self.read_view.freshness is freshness and self.clock.now_ms() <= freshness.until

    def _walk_beside_peers(self, run: _Run, peers: Peers) -> Walk:
        """Walk the files while peers are asked; once more if that adds files.

        Raises UnavailableError for a page when a peer does not answer: its file may be there, and to begin
        elsewhere would skip or repeat.
        """
        is_page = run.cursor is not None
        questions = peers.begin(run.lookups, self.read_view.ages, is_page=is_page)
        walk = None if is_page else self._walk_planned(run)
        run.trace.stages.enter("peers")
        peers.finish(questions, run.round_)
        run.trace.stages.enter("plan")
        if is_page and run.round_.missing:
            name, reason = run.round_.missing[0]
            raise UnavailableError(f"{name} {reason}: try again, or without the cursor")
        if walk is not None:
            if not run.round_.changes(walk.files):
                return walk
            run.trace = run.trace.again()
        return self._walk_planned(run)

    def _walk_planned(self, run: _Run) -> Walk:
        """Walk the files of a snapshot; once more if the plan turns out to be old."""
        try:
            return self._walk(run, may_replan=True)
        except PlanIsOldError:
            run.trace.stages.enter("manifests")
            run.manifest_requests += self.read_view.refresh()
            run.trace.stages.enter("plan")
            run.trace = run.trace.again()
            return self._walk(run, may_replan=False)

    @staticmethod
    def _page(run: _Run, files: FileList, *, may_jump: bool) -> Page:
        """Return the page to take; only a single lookup has a cursor."""
        key_hash = int(run.lookups.hashes[0]) if run.lookups.count else 0
        return Page(run.cursor, files, key_hash, may_jump=may_jump)

    def _walk(self, run: _Run, *, may_replan: bool) -> Walk:
        for may_jump in (True, False):
            # Before the snapshot: it must not promise more, nor forget what the files still hold.
            run.round_.ages = self.read_view.ages
            with self.table.snapshot() as snapshot:
                files = run.round_.added_to(snapshot.file_list)
                budget = self._budget(run.lookups)
                begun = self._usable(run.begun, files)
                if begun is None and run.begun is not None:
                    run.trace.forget_memory()  # its files are searched anew
                walk = Walk(
                    self, run.lookups, files, run.trace, budget,
                    forgotten=run.round_.ages.forgotten, may_replan=may_replan,
                )  # fmt: skip
                try:
                    page = self._page(run, files, may_jump=may_jump)
                    walk.run(page, begun, is_explained=run.explain)
                    if run.explain:
                        run.trace.note_rest(walk.rest())
                except WalkNeededError:
                    run.trace.forget_files()
                    continue
                finally:
                    budget.close()
                return walk
        raise AssertionError("a walk needs no other")

    def _usable(self, begun: PartialLookup | None, files: FileList) -> PartialLookup | None:
        """Return what memory told of a lookup, if it told it of these files, and as fresh as they are."""
        if begun is None or begun.files is not files:
            return None
        return begun if begun.freshness is self.read_view.freshness else None

    def _budget(self, lookups: Lookups) -> Budget:
        most = self.settings
        entries = most.query_max_entries
        if lookups.count == 1:
            entries = max(entries, int(lookups.max_count[0]))
        return _budget(most.query_max_items, entries, most.query_max_requests, lookups.count)


def _budget(items: int, entries: int, requests: int, count: int) -> Budget:
    """Return what `count` lookups may cost: so much, and for each of many a little more."""
    others = count - 1
    return Budget(
        requests=requests + others, items=items + 64 * others, entries=max(entries, count)
    )


def refuse_incomplete(found: Iterable[Missing]) -> None:
    """Raise IncompleteAnswerError when anything is missing."""
    missing = list(dict.fromkeys(found))
    if missing:
        names = ", ".join(f"{name} ({reason})" for name, reason in missing[:3])
        raise IncompleteAnswerError(
            f"{len(missing)} files could not be asked: {names}", missing=missing
        )
