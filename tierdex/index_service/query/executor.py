"""Looks keys up: one way for a single query and for many, whatever the form and place of the files.

::

    Lookups -> snapshot -> plan (time, topics), newest file first, no further than anything is wanted
            -> for each file: search -> rows that retention shows, without repeats -> Matches
            -> what a door renders: entries (answers.py), an Arrow table (batch/)

**Many lookups** share each file: it is searched once for all that still want entries, the ranges of a
published one side by side. Each may look at its share of what the batch may cost: a lookup that is cut
before it has enough is parked, and goes on alone, from the place where it stopped, when all others are
done. So a hot key, or keys that somebody chose to collide, cost the others nothing.

**One lookup** goes on in the same file until it has enough. Files are consumed in order; published ones are
searched a little ahead, by as many as there are entries still wanted: each file before holds at least one,
or costs nothing.

A file that cannot be read ends up in `missing`; it never looks like "not found". A listed object that is
gone means that the plan is old: refresh, plan again once.

Depends on answer, readers, indexfile, lifecycle and the other modules of this folder.
"""

from __future__ import annotations

import logging
from collections import deque
from concurrent.futures import CancelledError, Executor, Future
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tierdex.errors import (
    CorruptFileError,
    IncompleteAnswerError,
    NotFoundError,
    StoreRefusedError,
    UnavailableError,
)
from tierdex.index_service.answer import Missing
from tierdex.index_service.query.matches import FileMatches, FileMissing, Matches
from tierdex.index_service.query.paging import Page, WalkNeededError
from tierdex.index_service.query.plan import Plan
from tierdex.index_service.query.trace import Trace
from tierdex.index_service.readers.file_reader import Budget, FileMeter, FileRows, FileSearch
from tierdex.index_service.readers.local_file import query_reader
from tierdex.indexfile.layout import TOPIC_MASK
from tierdex.indexfile.lookup import DONE
from tierdex.indexfile.schema import TOPIC_DICTIONARY
from tierdex.indexfile.work_limit import NO_LIMIT, BudgetExceededError
from tierdex.lifecycle.topic_set import may_hold

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tierdex.clock import Clock
    from tierdex.index_service.readers.file_reader import QueryReader
    from tierdex.index_service.requests.cursor import Cursor
    from tierdex.index_service.requests.lookups import Lookups
    from tierdex.index_service.view.manifest_follower import Freshness
    from tierdex.index_service.view.read_view import ReadView
    from tierdex.lifecycle.file_handle import FileHandle
    from tierdex.lifecycle.file_table import FileList, FileTable
    from tierdex.settings import Settings

logger = logging.getLogger(__name__)

# Errors that concern one file: the answer goes on without it and says so.
FILE_ERRORS: Final = (
    CorruptFileError,
    UnavailableError,
    NotFoundError,
    StoreRefusedError,
    BudgetExceededError,
    OSError,
)
_LEAST_ALONE: Final = (
    65_536  # items that a parked lookup may look at, whatever is left for the others
)
AT_ONCE: Final = 10_000  # items, and entries, of a batch that is answered without waiting
_CHUNK: Final = 4096  # rows that one lookup takes at once beyond what it wants, at most


class _PlanIsOldError(Exception):
    """A listed object is gone: refresh and plan again."""


class _WouldWaitError(Exception):
    """A file is not local: searching it may take a request."""


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
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.read_view = read_view
        self.executor = executor
        self.table = table

    def run(
        self, lookups: Lookups, cursor: Cursor | None = None, *, explain: bool = False
    ) -> Result:
        """Look everything up; a cursor belongs to a single lookup.

        Raises CursorExpiredError, and UnavailableError when the file of the cursor cannot be read.
        """
        manifest_requests = self.read_view.catch_up()
        trace = Trace(self.clock)
        try:
            walk = self._walk(lookups, cursor, trace, explain=explain, may_replan=True)
        except _PlanIsOldError:
            manifest_requests += self.read_view.refresh()
            trace = trace.again()
            walk = self._walk(lookups, cursor, trace, explain=explain, may_replan=False)
        everywhere = self.read_view.missing()
        return Result(
            walk.matches, walk.files, everywhere, walk.as_of, cursor, trace, manifest_requests
        )

    def run_at_once(self, lookups: Lookups) -> Result | None:
        """Look everything up in local files, quickly, with nothing missing; None: it takes more.

        For callers that must not wait. None says nothing about the keys.
        """
        freshness = self.read_view.freshness  # before the files: its `as_of` must not promise more
        trace = Trace(self.clock)
        with self.table.snapshot() as snapshot:
            files = snapshot.file_list
            budget = _budget(AT_ONCE, AT_ONCE, 0, lookups.count)
            walk = _Walk(self, lookups, files, freshness.as_of, trace, budget, may_replan=False)
            if not walk.run_at_once():
                return None
        # After the files: what is missing is named before it leaves the table.
        if not self.is_still_fresh(freshness):
            return None
        return Result(walk.matches, files, [], walk.as_of, None, trace, 0)

    def is_still_fresh(self, freshness: Freshness) -> bool:
        """Say whether nothing is missing for any lookup, as it was before the files."""
        return self.read_view.freshness is freshness and self.clock.now_ms() <= freshness.until

    def _walk(
        self,
        lookups: Lookups,
        cursor: Cursor | None,
        trace: Trace,
        *,
        explain: bool,
        may_replan: bool,
    ) -> _Walk:
        for may_jump in (True, False):
            as_of = self.read_view.as_of()  # before the snapshot: it must not promise more
            with self.table.snapshot() as snapshot:
                files = snapshot.file_list
                budget = self._budget(lookups)
                walk = _Walk(self, lookups, files, as_of, trace, budget, may_replan=may_replan)
                try:
                    walk.run(Page(cursor, files, may_jump=may_jump))
                    if explain:
                        trace.note_rest(walk.rest())
                except WalkNeededError:
                    trace.forget_files()
                    continue
                finally:
                    budget.close()
                return walk
        raise AssertionError("a walk needs no other")

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


class _Walk:
    """One pass over the files of a snapshot. One thread."""

    def __init__(
        self,
        owner: LookupExecutor,
        lookups: Lookups,
        files: FileList,
        as_of: int,
        trace: Trace,
        budget: Budget,
        *,
        may_replan: bool,
    ) -> None:
        self.matches = Matches(lookups)
        self.files = files
        self.as_of = as_of
        self._budget = budget
        self._most_alone = owner.settings.query_max_items
        self._look_ahead = owner.settings.look_ahead
        self._executor = owner.executor
        self._hides = owner.read_view.hides
        self._lookups = lookups
        self._trace = trace
        self._may_replan = may_replan
        self._is_local_only = False
        self._parked: dict[int, tuple[FileHandle, int]] = {}  # where each lookup goes on alone
        self._is_parked = np.zeros(lookups.count, bool)

    def run(self, page: Page) -> None:
        """Search the files; `page` is that of a single lookup."""
        count = self._lookups.count
        if count == 1:
            self._go_alone(0, self._budget, page)
        elif count:
            self._go_together()
            self._go_on(page)

    def run_at_once(self) -> bool:
        """Search local files, none twice; say whether that answers everything."""
        self._is_local_only = True
        if self._lookups.count:
            try:
                self._go_together()
            except _WouldWaitError:
                return False
        return not self._parked and not self.matches.missing

    def rest(self) -> Iterator[tuple[FileHandle, str]]:
        """Yield the files that were not searched, with the reason: O(files)."""
        rest = Plan(self.files, self._lookups, slice(None)).rest(self._trace.file_ids())
        for name, handles in zip(rest._fields, rest, strict=True):
            for handle in handles:
                yield handle, name

    # -- many lookups ------------------------------------------------------------------------------

    def _go_together(self) -> None:
        plan = Plan(self.files, self._lookups, slice(None))
        for handle in plan.candidates():
            wants = (self.matches.counts < self._lookups.max_count) & ~self._is_parked
            if not wants.any():
                break
            wanted = self._that_may_match(handle, wants)
            if len(wanted):
                try:
                    self._search_together(handle, wanted)
                except FILE_ERRORS as error:
                    self._note_missing(handle, error, wanted)

    def _that_may_match(self, handle: FileHandle, wants: np.ndarray) -> np.ndarray:
        """Return the lookups (i8) of `wants` (b1) that this file's times and topics may answer."""
        lookups = self._lookups
        mask = wants & (lookups.begin <= handle.max_time) & (lookups.end >= handle.min_time)
        if handle.topics is not None:
            held = [may_hold(handle.topics, topic) for topic in lookups.topics]
            mask &= np.array([*held, True])[lookups.topic_index]  # NO_TOPIC is the last
        return np.flatnonzero(mask)

    def _search_together(self, handle: FileHandle, wanted: np.ndarray) -> None:
        lookups, counts = self._lookups, self.matches.counts
        share = self._budget.work_limit().share_of(len(wanted))
        limits = np.minimum(lookups.max_count[wanted] - counts[wanted], share.rows)
        search = FileSearch(lookups, wanted, limits, None, share.items)
        reader, meter = query_reader(handle.reader), FileMeter(self._budget)
        if self._is_local_only and not reader.is_local:
            raise _WouldWaitError
        answer = reader.search(search, meter, self._executor)
        self.matches.add(self._shown(_matches_of(handle, reader, answer)))
        meter.charge(answer.found.items, len(answer.found.rows))
        cut = np.flatnonzero(answer.found.following != DONE)
        if len(cut):
            numbers = answer.wanted[cut]
            want = self.matches.counts[numbers] < lookups.max_count[numbers]
            self._is_parked[numbers[want]] = True
            places = answer.found.following[cut[want]].tolist()
            for number, place in zip(numbers[want].tolist(), places, strict=True):
                self._parked[number] = handle, place

    def _shown(self, found: FileMatches) -> FileMatches:
        """Return the rows that retention shows, without repeats."""
        hidden = self._hidden(found)
        return self.matches.without_repeats(found if hidden is None else found.taken(~hidden))

    def _hidden(self, found: FileMatches) -> np.ndarray | None:
        """Return which rows (b1) retention hides; None: no row."""
        if found.handle.sealed_at_ms is None or not len(found.rows):  # it counts from the sealing
            return None
        names = found.dictionaries.strings(TOPIC_DICTIONARY)
        tags = found.rows["tag"] & np.uint32(TOPIC_MASK)
        used = [0] if len(names) == 1 else np.unique(tags).tolist()
        hidden = [number for number in used if self._hides(found.handle, names[number])]
        return np.isin(tags, hidden) if hidden else None

    def _go_on(self, page: Page) -> None:
        """Let the parked lookups go on, one by one, within what the batch may still cost."""
        for done, (number, where) in enumerate(sorted(self._parked.items())):
            try:
                left = self._budget.work_limit()
            except BudgetExceededError as error:
                missing = Missing("(batch)", str(error))
                self.matches.missing.append(FileMissing(missing, np.array([number])))
                continue
            # None takes so much that nothing would be left for those behind it, or more than a query may.
            items = max(_LEAST_ALONE, left.items // (len(self._parked) - done))
            items = min(items, self._most_alone)
            own = Budget(requests=NO_LIMIT.items, items=items, parent=self._budget)
            self._go_alone(number, own, page, where)

    # -- one lookup --------------------------------------------------------------------------------

    def _go_alone(
        self,
        number: int,
        budget: Budget,
        page: Page,
        where: tuple[FileHandle, int] | None = None,
    ) -> None:
        """Take one lookup's entries, from `where` on if it was parked there."""
        newest = page.newest if where is None else where[0].key
        plan = Plan(self.files, self._lookups, np.array([number]))
        searches = _Searches(
            plan.candidates(newest),
            _Single(self._lookups, number, page, where),
            budget,
            self._executor,
            self._look_ahead,
            self._trace,
        )
        try:
            while want := self._want(number):
                search = searches.next(want)
                if search is None:
                    page.check_begun()  # else the cursor's file no longer answers this query
                    break
                self._consume(search, page)
        finally:
            searches.cancel()
        for search in searches.under_way:
            self._trace.note(search, "skipped", 0, 0)

    def _want(self, number: int) -> int:
        """Return how many entries a lookup still wants."""
        return int(self._lookups.max_count[number] - self.matches.counts[number])

    def _consume(self, search: _Search, page: Page) -> None:
        number, outcome = search.single.number, "read"
        matched, before = 0, int(self.matches.counts[number])
        try:
            while (answer := search.next(self._want(number), is_begun=page.is_begun)) is not None:
                matched += len(answer.found.rows)
                self._take(search, answer, page)
                if not self._want(number):
                    break
            page.check_begun(search.handle)
        except FILE_ERRORS as error:
            if page.begins_in(search.handle) and not self._is_old(error):
                # Without this file nobody knows where the page begins: neither skip nor repeat.
                raise UnavailableError(
                    f"the file {search.handle.file_id}, in which the cursor points, cannot be read "
                    f"({error}); try again"
                ) from error
            self._trace.note(search, "missing", 0, matched)
            self._note_missing(search.handle, error, np.array([number]))
            return
        except CancelledError:
            outcome = "skipped"
        if search.meter.filtered:
            outcome = "pruned_by_filter"
        taken = int(self.matches.counts[number]) - before
        self._trace.note(search, outcome, taken, matched)

    def _take(self, search: _Search, answer: FileRows, page: Page) -> None:
        """Add the rows that belong to the page, no more than are wanted."""
        found = _matches_of(search.handle, search.reader, answer)
        if not page.is_begun:
            hidden = self._hidden(found)
            is_hidden = np.zeros(len(found.rows), bool) if hidden is None else hidden
            fingerprints = found.decoder().fingerprints(found.rows)
            found = found.taken(slice(page.pass_over(search.handle, fingerprints, is_hidden), None))
        found = self._shown(found)
        want = self._want(search.single.number)
        if not page.owes_all:
            # What a page returned before is only looked for as far as this one goes.
            found = self._owed(found, page, want)
        found = found.taken(slice(want))
        self.matches.add(found)
        search.meter.charge(answer.found.items, len(found.rows))

    @staticmethod
    def _owed(found: FileMatches, page: Page, want: int) -> FileMatches:
        decoder, owed, begin = found.decoder(), np.zeros(len(found.rows), bool), 0
        while want > 0 and begin < len(found.rows):
            end = begin + want
            owed[begin:end] = page.owes(decoder.decode(found.rows[begin:end]))
            want -= int(np.count_nonzero(owed[begin:end]))
            begin = end
        return found if owed.all() else found.taken(owed)

    # -- what is missing ---------------------------------------------------------------------------

    def _is_old(self, error: Exception) -> bool:
        return self._may_replan and isinstance(error, NotFoundError)

    def _note_missing(self, handle: FileHandle, error: Exception, wanted: np.ndarray) -> None:
        if self._is_old(error):
            raise _PlanIsOldError from error  # what was found is thrown away
        extra = {"file_id": handle.file_id, "error": str(error)}
        logger.warning("file not searched", extra=extra)
        missing = Missing(handle.file_id, str(error) or type(error).__name__)
        self.matches.missing.append(FileMissing(missing, wanted))


class _Single(NamedTuple):
    """One lookup that goes alone, from its newest file, its cursor or where it was parked."""

    lookups: Lookups
    number: int
    page: Page
    where: tuple[FileHandle, int] | None

    def place_in(self, handle: FileHandle) -> int | None:
        if self.where is not None and handle is self.where[0]:
            return self.where[1]
        return self.page.place_in(handle)


class _Search:
    """The search of one file for one lookup: its first step may be under way on another thread."""

    def __init__(self, single: _Single, handle: FileHandle, budget: Budget, started: float) -> None:
        self.single = single
        self.handle = handle
        self.reader: QueryReader = query_reader(handle.reader)
        self.meter = FileMeter(budget)
        self.started = started
        self._place = single.place_in(handle)
        self._first: Future[FileRows] | None = None
        self._room = 16  # rows of the next step, at least: it grows where rows are not returned

    def begin(self, executor: Executor, want: int) -> None:
        """Let another thread do the first step."""
        is_begun = self.single.page.is_begun
        self._first = executor.submit(self._step, want, is_begun=is_begun)

    def cancel(self) -> None:
        if self._first is not None:
            self._first.cancel()

    @property
    def is_under_way(self) -> bool:
        return self._first is not None

    def next(self, want: int, *, is_begun: bool) -> FileRows | None:
        """Return the next rows; None when the file has no more."""
        if self._place == DONE:
            return None
        if self._first is not None:
            answer, self._first = self._first.result(), None
        else:
            answer = self._step(want, is_begun=is_begun)
        following = answer.found.following
        self._place = int(following[0]) if len(following) else DONE
        return answer

    def _step(self, want: int, *, is_begun: bool) -> FileRows:
        left = self.meter.budget.work_limit()
        # The entry of the cursor itself is passed over, and what lies before it in a walk.
        limit = min(max(want + (not is_begun), self._room), left.rows + (not is_begun))
        self._room = min(4 * self._room, _CHUNK)
        place = None if self._place is None else np.array([self._place])
        search = FileSearch(
            self.single.lookups,
            np.array([self.single.number]),
            np.array([limit]),
            place,
            left.items,
        )
        return self.reader.search(search, self.meter)


class _Searches:
    """The files of one lookup in order, published ones begun a little ahead."""

    def __init__(
        self,
        candidates: Iterator[FileHandle],
        single: _Single,
        budget: Budget,
        executor: Executor,
        look_ahead: int,
        trace: Trace,
    ) -> None:
        self._waiting = candidates
        self._single = single
        self._key_hash = int(single.lookups.hashes[single.number])
        self._budget = budget
        self._executor = executor
        self._look_ahead = look_ahead
        self._trace = trace
        self.under_way: deque[_Search] = deque()  # begun, and not returned by `next`

    def next(self, want: int) -> _Search | None:
        """Return the next file's search, beginning at most `want` files ahead."""
        while len(self.under_way) < max(1, min(self._look_ahead, want)):
            handle = next(self._waiting, None)
            if handle is None:
                break
            search = _Search(self._single, handle, self._budget, self._trace.now())
            if search.reader.excludes(self._key_hash) and not self._single.page.begins_in(handle):
                search.meter.filtered = True
                self._trace.note(search, "pruned_by_filter", 0, 0)
                continue
            if not search.reader.is_local:
                search.begin(self._executor, want)
            self.under_way.append(search)
            if not self.under_way[0].is_under_way:
                break  # a local file is searched when its turn comes: nothing to look ahead for
        return self.under_way.popleft() if self.under_way else None

    def cancel(self) -> None:
        for search in self.under_way:
            search.cancel()


def _matches_of(handle: FileHandle, reader: QueryReader, answer: FileRows) -> FileMatches:
    found = answer.found
    sizes = found.offsets[1:] - found.offsets[:-1]
    is_one_each = len(found.rows) == len(sizes) and bool((sizes == 1).all())
    numbers = answer.wanted if is_one_each else np.repeat(answer.wanted, sizes)
    return FileMatches(
        handle, reader.hash_function, answer.schema, answer.dictionaries, numbers, found.rows,
        found.places,
    )  # fmt: skip


def refuse_incomplete(found: Iterable[Missing]) -> None:
    """Raise IncompleteAnswerError when anything is missing."""
    missing = list(dict.fromkeys(found))
    if missing:
        names = ", ".join(f"{name} ({reason})" for name, reason in missing[:3])
        raise IncompleteAnswerError(
            f"{len(missing)} files could not be asked: {names}", missing=missing
        )
