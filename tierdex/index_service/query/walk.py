"""One pass over the files of a snapshot for a batch of lookups, newest file first.

**Many lookups** share each file: it is searched once for all that still want entries, local files that
follow each other in one step (local_run.py), the ranges of a published one side by side, and sidecars that
are not here a few at a time. Each may look at its share of what the batch may cost: a lookup that is cut
before it has enough is parked, and goes on alone, from the place where it stopped, when all others are
done. So a hot key, or keys that were chosen to collide, cost the others nothing.

**One lookup** takes the newest local files in one step, too, then goes on in each file until it has enough.
Behind a cursor it takes only what belongs to its page.

Depends on matches, paging, plan, filters_ahead, local_run, single_search, trace, readers, requests,
indexfile, lifecycle, answer and errors.
"""

from __future__ import annotations

import logging
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from tierdex.errors import (
    FILE_ERRORS,
    CorruptFileError,
    NotFoundError,
    UnavailableError,
    reason_of,
)
from tierdex.index_service.answer import Missing
from tierdex.index_service.query import local_run
from tierdex.index_service.query.filters_ahead import FiltersAhead
from tierdex.index_service.query.local_run import FILES_AT_ONCE, lies_in_run
from tierdex.index_service.query.matches import FileMatches, FileMissing, Matches
from tierdex.index_service.query.paging import WalkNeededError
from tierdex.index_service.query.plan import Plan
from tierdex.index_service.query.single_search import SingleLookup, SingleSearch, SingleSearches
from tierdex.index_service.readers.file_reader import Budget, FileMeter, FileRows, FileSearch
from tierdex.index_service.readers.local_file import query_reader
from tierdex.indexfile.layout import TOPIC_MASK
from tierdex.indexfile.lookup import DONE, START
from tierdex.indexfile.schema import TOPIC_DICTIONARY
from tierdex.indexfile.work_limit import NO_LIMIT, BudgetExceededError
from tierdex.lifecycle.topic_set import may_hold

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor

    from tierdex.index_service.query.memory_search import PartialLookup
    from tierdex.index_service.query.paging import Page
    from tierdex.index_service.query.trace import Trace
    from tierdex.index_service.requests.lookups import Lookups
    from tierdex.index_service.view.read_view import ReadView
    from tierdex.lifecycle.manifests.forgotten import ForgottenEntries
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.lifecycle.table.file_table import FileList
    from tierdex.settings import Settings

logger = logging.getLogger(__name__)

SEARCH_ERRORS: Final = (*FILE_ERRORS, BudgetExceededError)
_LEAST_ALONE: Final = 65_536  # items for a parked lookup, whatever is left for the others


class PlanIsOldError(Exception):
    """A listed object is gone: refresh and plan again."""


class WalkOwner(Protocol):
    """The part of the executor that a walk uses."""

    settings: Settings
    executor: Executor
    read_view: ReadView


class Walk:
    """One pass over the files of a snapshot. One thread."""

    def __init__(
        self,
        owner: WalkOwner,
        lookups: Lookups,
        files: FileList,
        trace: Trace,
        budget: Budget,
        *,
        forgotten: ForgottenEntries,
        may_replan: bool,
    ) -> None:
        self.matches = Matches(lookups)
        self.files = files
        self._budget = budget
        self._most_alone = owner.settings.query_max_items
        self._look_ahead = owner.settings.look_ahead
        self._executor = owner.executor
        self._hides = owner.read_view.hides
        self._forgotten = forgotten
        self._lookups = lookups
        self._trace = trace
        self._may_replan = may_replan
        self._parked: dict[int, tuple[FileHandle, int]] = {}  # where each lookup goes on alone
        self._is_parked = np.zeros(lookups.count, bool)

    def run(
        self, page: Page, begun: PartialLookup | None = None, *, is_explained: bool = False
    ) -> None:
        """Search the files; `page` and `begun` are those of a single lookup, as is what `is_explained`."""
        count = self._lookups.count
        if begun is not None:
            self._take_begun(begun)
            if begun.where is not None:
                self._go_alone(0, self._budget, page, begun.where)
        elif count == 1 and (is_explained or not page.owes_all):
            self._go_alone(0, self._budget, page)
        elif count == 1:
            self._begin_alone(page)
        elif count:
            self._go_together()
            self._go_on(page)

    def rest(self) -> Iterator[tuple[FileHandle, str]]:
        """Yield the files that were not searched, with the reason: O(files)."""
        rest = Plan(self.files, self._lookups).rest(self._trace.file_ids())
        for name, handles in zip(rest._fields, rest, strict=True):
            for handle in handles:
                yield handle, name

    # -- many lookups ------------------------------------------------------------------------------

    def _go_together(self) -> None:
        plan = Plan(self.files, self._lookups)
        ahead = FiltersAhead(plan.candidates(), self._hashes_of, self._executor, self._look_ahead)
        try:
            while (handle := ahead.next()) is not None:
                wanted = self._wanted_of(handle)
                if len(wanted) and lies_in_run(handle):
                    self._search_run([handle, *ahead.more(lies_in_run, FILES_AT_ONCE - 1)])
                elif len(wanted):
                    try:
                        self._search_together(handle, wanted, ahead)
                    except SEARCH_ERRORS as error:
                        self._note_missing(handle, error, wanted)
                elif not self._wants().any():
                    break
        finally:
            ahead.cancel()

    def _wants(self) -> np.ndarray:
        """Return which lookups (b1) want entries of the next files."""
        return (self.matches.counts < self._lookups.max_count) & ~self._is_parked

    def _wanted_of(self, handle: FileHandle) -> np.ndarray:
        """Return the lookups (i8) that want entries, and that this file may answer."""
        return self._that_may_match(handle, self._wants())

    def _that_may_match(self, handle: FileHandle, wants: np.ndarray) -> np.ndarray:
        """Return the lookups (i8) of `wants` (b1) that this file's times and topics may answer."""
        lookups = self._lookups
        mask = wants & (lookups.begin <= handle.max_time) & (lookups.end >= handle.min_time)
        if handle.topics is not None:
            held = [may_hold(handle.topics, topic) for topic in lookups.topics]
            mask &= np.array([*held, True])[lookups.topic_index]  # NO_TOPIC is the last
        return np.flatnonzero(mask)

    def _hashes_of(self, handle: FileHandle) -> np.ndarray:
        """Return the hashes (u8) that a file will be asked for, as far as is known."""
        hashes: np.ndarray = self._lookups.hashes[self._wanted_of(handle)]
        return hashes

    def _search_together(self, handle: FileHandle, wanted: np.ndarray, ahead: FiltersAhead) -> None:
        lookups, counts = self._lookups, self.matches.counts
        share = self._budget.work_limit().share_of(len(wanted))
        limits = np.minimum(lookups.max_count[wanted] - counts[wanted], share.rows)
        search = FileSearch(lookups, wanted, limits, None, share.items)
        reader, meter = query_reader(handle.reader), FileMeter(self._budget)
        self._trace.stages.enter("local" if reader.is_local else "store")
        try:
            ahead.wait_for(handle, meter)
            answer = reader.search(search, meter, self._executor)
        finally:
            self._trace.stages.enter("plan")
        self.matches.add(self._shown(FileMatches.of(handle, reader.hash_function, answer)))
        meter.charge(answer.found.items, len(answer.found.rows))
        cut = np.flatnonzero(answer.found.following != DONE)
        if len(cut):
            numbers = answer.wanted[cut]
            want = self.matches.counts[numbers] < lookups.max_count[numbers]
            self._is_parked[numbers[want]] = True
            places = answer.found.following[cut[want]].tolist()
            for number, place in zip(numbers[want].tolist(), places, strict=True):
                self._parked[number] = handle, place

    def _search_run(self, handles: list[FileHandle]) -> None:
        """Search local files in one step; one by one, where one of them cannot be read."""
        wants = self._wants()
        self._trace.stages.enter("local")
        try:
            share = self._budget.work_limit().share_of(int(np.count_nonzero(wants)))
            left = np.minimum(self._lookups.max_count - self.matches.counts, share.rows)
            search = local_run.run_of_lookups(
                handles, self._lookups, np.where(wants, left, 0), self._hides,
                most_items=share.items, drops_repeats=not self._may_be_forgotten,
            )  # fmt: skip
            search.run()
        except SEARCH_ERRORS as error:
            if len(handles) == 1:
                self._note_missing(handles[0], error, self._wanted_of(handles[0]))
                return
            for handle in handles:
                self._search_run([handle])
            return
        finally:
            self._trace.stages.enter("plan")
        FileMeter(self._budget).charge(search.items, search.row_count)
        is_first = not self.matches.counts.any()
        for found in local_run.matches_of_run(handles, search):
            if self._may_be_forgotten:
                self.matches.add(self._shown(found))
            else:
                self.matches.add(found if is_first else self.matches.without_repeats(found))
        # What stopped for want of leave, or before what was a repeat, goes on alone.
        stopped, files, places = search.stopped()
        for number in np.flatnonzero(stopped & self._wants() & (files < len(handles))).tolist():
            self._is_parked[number] = True
            self._parked[number] = handles[files[number]], int(places[number])

    @property
    def _may_be_forgotten(self) -> bool:
        """Say whether rows must be looked at: of repeats, the newest that is shown stands for them all."""
        forgotten = self._forgotten
        return bool(forgotten) and bool(forgotten.are_asked(self._lookups.hashes).any())

    def _shown(self, found: FileMatches) -> FileMatches:
        """Return the rows that are not hidden, without repeats."""
        hidden = self._hidden(found)
        return self.matches.without_repeats(found if hidden is None else found.taken(~hidden))

    def _hidden(self, found: FileMatches) -> np.ndarray | None:
        """Return which rows (b1) are forgotten, or hidden by retention; None: no row."""
        faded, place = self._faded(found), found.handle.place
        gone = self._forgotten.hidden(place, found.schema, found.dictionaries, found.rows)
        return faded if gone is None else gone if faded is None else faded | gone

    def _faded(self, found: FileMatches) -> np.ndarray | None:
        if found.handle.sealed_at_ms is None or not len(found.rows):  # it counts from the sealing
            return None
        names = found.dictionaries.strings(TOPIC_DICTIONARY)
        tags = found.rows["tag"] & np.uint32(TOPIC_MASK)
        used = [0] if len(names) == 1 else np.unique(tags).tolist()
        hidden = [number for number in used if self._hides(found.handle, names[number])]
        return np.isin(tags, hidden) if hidden else None

    def _go_on(self, page: Page) -> None:
        """Continue the parked lookups, one by one, within the rest of the batch's budget."""
        for done, (number, where) in enumerate(sorted(self._parked.items())):
            try:
                left = self._budget.work_limit()
            except BudgetExceededError as error:
                missing = Missing("(batch)", reason_of(error))
                self.matches.missing.append(FileMissing(missing, np.array([number])))
                continue
            # None takes so much that nothing would be left for those behind it, or more than a query may.
            items = max(_LEAST_ALONE, left.items // (len(self._parked) - done))
            items = min(items, self._most_alone)
            own = Budget(requests=NO_LIMIT.items, items=items, parent=self._budget)
            self._go_alone(number, own, page, where)

    # -- one lookup --------------------------------------------------------------------------------

    def _take_begun(self, begun: PartialLookup) -> None:
        """Take the rows that memory told of a single lookup."""
        for found in begun.found:
            self._budget.take(items=len(found.rows), entries=len(found.rows))
            self.matches.add(self._shown(found).first(self._want(0)))

    def _begin_alone(self, page: Page) -> None:
        """Search the newest local files for the only lookup in one step, and go on from there."""
        handles: list[FileHandle] = []
        following = None
        for handle in Plan(self.files, self._lookups, 0).candidates():
            if len(handles) == FILES_AT_ONCE or not lies_in_run(handle):
                following = handle
                break
            handles.append(handle)
        if handles:
            self._search_run(handles)
        where = self._parked.pop(0, None)
        if where is None and following is not None:
            where = following, START
        if where is not None and self._want(0):
            self._go_alone(0, self._budget, page, where)

    def _go_alone(
        self,
        number: int,
        budget: Budget,
        page: Page,
        where: tuple[FileHandle, int] | None = None,
    ) -> None:
        """Take one lookup's entries, from `where` on if it was parked or left there."""
        newest = page.newest if where is None else where[0].key
        plan = Plan(self.files, self._lookups, number)
        searches = SingleSearches(
            plan.candidates(newest),
            SingleLookup(self._lookups, number, page, where),
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

    def _consume(self, search: SingleSearch, page: Page) -> None:
        number, outcome = search.single.number, "read"
        self._trace.stages.enter("local" if search.reader.is_local else "store")
        matched, before = 0, int(self.matches.counts[number])
        try:
            while (answer := search.next(self._want(number), is_begun=page.is_begun)) is not None:
                matched += len(answer.found.rows)
                self._take(search, answer, page)
                if not self._want(number):
                    break
            page.check_begun(search.handle)
        except SEARCH_ERRORS as error:
            if isinstance(error, CorruptFileError) and page.trusts_place_in(search.handle):
                raise WalkNeededError from error
            if page.begins_in(search.handle) and not self._is_old(error):
                # Only this file tells where the page begins: neither skip nor repeat.
                raise UnavailableError(
                    f"the file {search.handle.file_id}, in which the cursor points, cannot be read "
                    f"({reason_of(error)}); try again"
                ) from error
            self._trace.note(search, "missing", 0, matched)
            self._note_missing(search.handle, error, np.array([number]))
            return
        except CancelledError:
            outcome = "skipped"
        finally:
            self._trace.stages.enter("plan")
        if search.meter.filtered:
            outcome = "pruned_by_filter"
        taken = int(self.matches.counts[number]) - before
        self._trace.note(search, outcome, taken, matched)

    def _take(self, search: SingleSearch, answer: FileRows, page: Page) -> None:
        """Add the rows that belong to the page, no more than are wanted."""
        found = FileMatches.of(search.handle, search.reader.hash_function, answer)
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
        found = found.first(want)
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
            raise PlanIsOldError from error  # what was found is thrown away
        extra = {"file_id": handle.file_id, "error": str(error)}
        logger.warning("file not searched", extra=extra)
        missing = Missing(handle.file_id, reason_of(error))
        self.matches.missing.append(FileMissing(missing, wanted))
