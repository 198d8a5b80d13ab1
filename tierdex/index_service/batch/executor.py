"""Many queries in one call: they share the files, the filters and the pages.

::

    lookups as columns -> for each file, newest first: those still wanting entries
        local      one kernel call a file
        published  filter and directory for all, neighbouring pages fetched once, decoded once
    -> matches by lookup -> answers, or one Arrow table

Most batches are keys of one topic in local files: these are tried first, as columns (uniform_batch).
The work a file costs grows with the lookups that reach it and, for a published one, with the pages
they touch. A lookup whose matches in one file may be more than what was asked for there (a hot key
with repeated locations) is answered by the single query instead, which is exact for it.

Depends on the modules of single queries and on indexfile.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tierdex.errors import IncompleteAnswerError, NotFoundError
from tierdex.index_service.answer import Answer, Missing
from tierdex.index_service.batch.answers import answers_of, answers_of_newest
from tierdex.index_service.batch.arrow_table import table_of, table_of_newest, table_of_uniform
from tierdex.index_service.batch.local_files import ask_local
from tierdex.index_service.batch.lookups import (
    NO_TOPIC,
    LookupBatch,
    batch_of_plain,
    batch_of_requests,
    batch_of_table,
    requests_of_rows,
)
from tierdex.index_service.batch.matches import Collected, FileMatches, FileMissing
from tierdex.index_service.batch.published_files import ask_published
from tierdex.index_service.batch.table_missing import with_missing
from tierdex.index_service.batch.uniform import (
    ask_newest,
    ask_uniform,
    uniform_batch_of,
    uniform_batch_of_dicts,
)
from tierdex.index_service.query.executor import FILE_ERRORS
from tierdex.index_service.readers.file_reader import Budget, BudgetExceededError, FileMeter
from tierdex.index_service.readers.published_file import PublishedFile
from tierdex.index_service.requests.query import make_request, make_requests
from tierdex.indexfile.chained.file import ChainedFile
from tierdex.indexfile.compacted.file import CompactedFile
from tierdex.indexfile.layout import KIND_BIT, KIND_MESSAGE_ID, TAG_ANY_MESSAGE_ID, TAG_NONE
from tierdex.indexfile.plain_keys import NotPlainError
from tierdex.indexfile.schema import TOPIC_DICTIONARY
from tierdex.indexfile.work_limit import NO_LIMIT, WorkLimit
from tierdex.lifecycle.topic_set import may_hold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Executor

    from tierdex.clock import Clock
    from tierdex.fileparts.dictionary import Dictionaries
    from tierdex.index_service.batch.uniform import UniformBatch
    from tierdex.index_service.query.executor import QueryRunner
    from tierdex.index_service.requests.query import QueryRequest
    from tierdex.index_service.view.manifest_follower import Freshness
    from tierdex.index_service.view.read_view import ReadView
    from tierdex.lifecycle.file_handle import FileHandle
    from tierdex.lifecycle.file_table import FileTable
    from tierdex.settings import Settings

    Hides = Callable[[FileHandle, str], bool]

Found = TypeVar("Found")
logger = logging.getLogger(__name__)

_AT_ONCE = 10_000  # items, and entries, of a batch that is answered without waiting
_LEAST_OF_A_SINGLE = 65_536  # items: what one step of a long chain walks


class _PlanIsOldError(Exception):
    """A listed object is gone: refresh and plan again."""


class BatchQueryRunner:
    """Runs batches of lookups. Safe to share between threads."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        table: FileTable,
        read_view: ReadView,
        queries: QueryRunner,
        executor: Executor,
    ) -> None:
        self._settings = settings
        self._now_ms = clock.now_ms
        self._table = table
        self._read_view = read_view
        self._queries = queries
        self._executor = executor

    def run(self, lookups: object, *, fail: bool) -> list[Answer]:
        """Return one answer a lookup (a dict, see `make_requests`), in order.

        Raises InvalidRequestError, and IncompleteAnswerError when `fail`.
        """
        uniform = uniform_batch_of_dicts(self._settings, lookups)
        checked = self._batch_of(lookups) if uniform is None else None
        self._read_view.catch_up()
        answers = None if uniform is None else self._answer_uniform(uniform, lookups)
        if answers is None:
            answers = self._answer(*(checked or self._batch_of(lookups)))
        if fail:
            _refuse_incomplete(missing for answer in answers for missing in answer.missing)
        return answers

    def _answer_uniform(self, batch: UniformBatch, lookups: Any) -> list[Answer] | None:
        """Answer keys that have one entry each, nearly always, in local files; None: not so."""
        as_of = self._read_view.as_of()  # before the snapshot: it must not promise more
        newest = self._ask_uniform(batch, ask_newest)
        if newest is None:
            return None
        everywhere = self._read_view.missing()
        answers = answers_of_newest(batch.topic, newest, everywhere, as_of)
        several = np.flatnonzero(newest.columns.found > 1).tolist()
        if several:
            again = self._answer(*self._batch_of([lookups[number] for number in several]))
            for number, answer in zip(several, again, strict=True):
                answers[number] = answer
                answer.as_of = as_of
        return answers

    def _answer(
        self, batch: LookupBatch, request_of: Callable[[int], QueryRequest]
    ) -> list[Answer]:
        as_of = self._read_view.as_of()  # before the snapshot: it must not promise more
        collected = self._collect(batch)
        everywhere = self._read_view.missing()
        answers = answers_of(request_of, collected, everywhere, self._read_view.hides, as_of)
        if collected.is_certain:
            return answers
        found = np.fromiter((len(answer.entries) for answer in answers), np.int64, len(answers))
        doubtful = collected.doubtful(found).tolist()
        again = map(request_of, doubtful)
        singles = self._run_singles(again, len(doubtful), collected.budget, fail=False)
        for number, single in zip(doubtful, singles, strict=True):
            answers[number] = single
            single.as_of = as_of
        return answers

    def _batch_of(self, lookups: object) -> tuple[LookupBatch, Callable[[int], QueryRequest]]:
        """Return checked lookups as columns, and what gives the request of one of them."""
        batch = batch_of_plain(self._settings, lookups)
        if batch is None:
            requests = make_requests(self._settings, lookups)
            return batch_of_requests(requests), requests.__getitem__
        plain: Any = lookups
        return batch, lambda number: make_request(self._settings, **plain[number])

    def run_arrow(self, table: Any, *, max_count: int, fail: bool) -> Any:
        """Return one Arrow table of entries; its schema's metadata `as_of` is `Answer.as_of`.

        What is missing stands there too, see `table_missing`. Raises IncompleteAnswerError when `fail`.
        """
        freshness = self._read_view.freshness
        as_of = freshness.as_of
        if self._now_ms() > freshness.until:
            self._read_view.catch_up()
            as_of = self._read_view.as_of()  # before the snapshot: it must not promise more
        entries = self._run_uniform(table, max_count, as_of)
        if entries is not None:
            if self._is_still(freshness):
                return entries
            everywhere = self._read_view.missing()
            if fail:
                _refuse_incomplete(everywhere)
            return with_missing(entries, everywhere)
        collected = self._collect(batch_of_table(self._settings, table, max_count))
        everywhere = self._read_view.missing()
        if fail:
            _refuse_incomplete([row.missing for row in collected.missing] + everywhere)
        entries = table_of(collected, {}, self._read_view.hides, as_of)
        found = np.bincount(entries.column("lookup").to_numpy(), minlength=collected.batch.count)
        doubtful = collected.doubtful(found)
        if not len(doubtful):
            return with_missing(entries, everywhere, collected.missing)
        again = requests_of_rows(self._settings, table, doubtful, max_count)
        singles = self._run_singles(again, len(doubtful), collected.budget, fail=fail)
        exact = dict(zip(doubtful.tolist(), singles, strict=True))
        entries = table_of(collected, exact, self._read_view.hides, as_of)
        return with_missing(entries, everywhere, collected.missing, exact)

    def run_local(self, table: Any, *, max_count: int) -> Any | None:
        """Return what `run_arrow` would when all files are local and nothing is missing, else None."""
        freshness = self._read_view.freshness
        # The caller blocks for so long: keys that collide are left to somebody who may.
        most = WorkLimit(_AT_ONCE + 64 * table.num_rows, _AT_ONCE + table.num_rows)
        entries = self._run_uniform(table, max_count, freshness.as_of, most)
        return entries if self._is_still(freshness) else None

    def _is_still(self, freshness: Freshness) -> bool:
        """Say whether the view stayed fresh; asked after the files, which are named before they leave."""
        return self._read_view.freshness is freshness and self._now_ms() <= freshness.until

    def _run_uniform(
        self, table: Any, max_count: int, as_of: int, most: WorkLimit | None = None
    ) -> Any | None:
        """Answer a plain batch whose files are all local; None: take the general path."""
        batch = uniform_batch_of(self._settings, table, max_count)
        if batch is None:
            return None
        if max_count == 1:
            newest = self._ask_uniform(batch, ask_newest, most)
            return None if newest is None else table_of_newest(batch.topic, newest, as_of)
        found = self._ask_uniform(batch, ask_uniform, most)
        return None if found is None else table_of_uniform(batch.topic, found, max_count, as_of)

    def _ask_uniform(
        self,
        batch: UniformBatch,
        ask: Callable[[UniformBatch, Iterable[FileHandle], Hides, WorkLimit], Found | None],
        most: WorkLimit | None = None,
    ) -> Found | None:
        """Return what `ask` finds in the files of now; None: take the general path."""
        if most is None:
            most = WorkLimit(
                self._settings.query_max_items + 64 * batch.keys.key_count,
                max(self._settings.query_max_entries, batch.keys.key_count),
            )
        with self._table.snapshot() as snapshot:
            try:
                return ask(batch, snapshot.file_list, self._read_view.hides, most)
            except (NotPlainError, *FILE_ERRORS):
                return None

    def _run_singles(
        self, requests: Iterable[QueryRequest], count: int, budget: Budget, *, fail: bool
    ) -> list[Answer]:
        """Answer lookups of a batch exactly, one by one, within what the batch may still cost.

        Of `count` lookups none takes so much that nothing would be left for those behind it.
        """
        answers = []
        for done, request in enumerate(requests):
            left = budget.work_limit()
            try:
                if not (left.items and left.rows):
                    raise left.refuse()
                items = max(_LEAST_OF_A_SINGLE, left.items // (count - done))
                own = Budget(requests=NO_LIMIT.items, items=items, parent=budget)
                answer = self._queries.run(request, explain=False, fail=fail, of_batch=own)
                budget.take_entries(len(answer.entries))
            except BudgetExceededError as error:
                missing = [Missing("(batch)", str(error))]
                if fail:
                    raise IncompleteAnswerError(str(error), missing=missing) from error
                answer = Answer([], complete=False, missing=missing)
            answers.append(answer)
        return answers

    # -- collecting ------------------------------------------------------------------------------

    def _collect(self, batch: LookupBatch) -> Collected:
        try:
            return self._collect_once(batch, may_refresh=True)
        except _PlanIsOldError:
            self._read_view.refresh()
            return self._collect_once(batch, may_refresh=False)

    def _collect_once(self, batch: LookupBatch, *, may_refresh: bool) -> Collected:
        budget = Budget(
            requests=self._settings.query_max_requests + batch.count,
            items=self._settings.query_max_items + 64 * batch.count,
            entries=max(self._settings.query_max_entries, batch.count),
        )
        with self._table.snapshot() as snapshot:
            collected = Collected(batch, budget, snapshot.file_list)
            for handle in snapshot.file_list.overlap(*_times_of(batch)):
                wanted = _wanted_of(collected, handle)
                if not len(wanted):
                    continue
                try:
                    self._ask(collected, wanted, handle, FileMeter(budget))
                except FILE_ERRORS as error:
                    if isinstance(error, NotFoundError) and may_refresh:
                        raise _PlanIsOldError from error
                    extra = {"file_id": handle.file_id, "error": str(error)}
                    logger.warning("file not asked", extra=extra)
                    missing = Missing(handle.file_id, str(error) or type(error).__name__)
                    collected.missing.append(FileMissing(missing, wanted))
        return collected

    def _ask(
        self, collected: Collected, wanted: np.ndarray, handle: FileHandle, meter: FileMeter
    ) -> None:
        """Ask one file for the lookups `wanted` (i8) and note what it holds."""
        batch, reader = collected.batch, handle.reader
        if not isinstance(reader, ChainedFile | CompactedFile | PublishedFile):
            collected.defer(wanted)  # another form: each lookup is asked by itself
            return
        file, tags = (
            reader.with_sidecar(meter, lambda sidecar: _file_and_tags(batch, wanted, sidecar))
            if isinstance(reader, PublishedFile)
            else _file_and_tags(batch, wanted, reader)
        )
        known = np.flatnonzero(tags != TAG_NONE)
        wanted, tags = wanted[known], tags[known]
        if not len(wanted):
            return
        if not isinstance(reader, ChainedFile):
            # Sorted by hash, neighbours share directory blocks, pages and cache lines.
            order = np.argsort(batch.hashes[wanted], kind="stable")
            wanted, tags = wanted[order], tags[order]
        hashes, begin, end = batch.hashes[wanted], batch.begin[wanted], batch.end[wanted]
        limit = int(batch.max_count[wanted].max())
        if isinstance(reader, PublishedFile):
            offsets, rows, deferred = ask_published(
                reader, hashes, tags, begin, end, limit, meter, self._executor
            )
        else:
            offsets, rows, deferred = ask_local(reader, hashes, tags, begin, end, limit, meter)
        collected.defer(wanted[deferred])
        meter.budget.take_entries(len(rows))
        if len(rows):
            found = FileMatches(handle, file.schema, file.dictionaries, wanted, offsets, rows)
            collected.add(found, limit)


def _times_of(batch: LookupBatch) -> tuple[int | None, int | None]:
    """Return the least begin and the greatest end of the lookups."""
    if not batch.count:
        return None, None
    return int(batch.begin.min()), int(batch.end.max())


def _wanted_of(collected: Collected, handle: FileHandle) -> np.ndarray:
    """Return the lookups (i8) that still want entries and that this file's times may answer."""
    batch = collected.batch
    if handle.item_count == 0:
        return np.empty(0, np.int64)
    mask = (collected.counts < batch.max_count) & ~collected.deferred
    mask &= (batch.begin <= handle.max_time) & (batch.end >= handle.min_time)
    if handle.topics is not None:
        held = [may_hold(handle.topics, topic) for topic in batch.topics]
        mask &= np.array([*held, True])[batch.topic_index]  # NO_TOPIC is the last
    return np.flatnonzero(mask)


def _file_and_tags(
    batch: LookupBatch, wanted: np.ndarray, file: ChainedFile | CompactedFile
) -> tuple[ChainedFile | CompactedFile, np.ndarray]:
    return file, _tags_of(batch, wanted, file.dictionaries)


def _tags_of(batch: LookupBatch, wanted: np.ndarray, dictionaries: Dictionaries) -> np.ndarray:
    """Return the tag (u4) that items of each wanted lookup have in this file."""
    indexes = np.array([*dictionaries.indexes(TOPIC_DICTIONARY, batch.topics), NO_TOPIC], np.int64)
    topic = batch.topic_index[wanted]
    index = indexes[topic]
    is_id = batch.kinds[wanted] == KIND_MESSAGE_ID
    tags = np.where(index < 0, TAG_NONE, index + np.where(is_id, KIND_BIT, 0))
    return np.where(is_id & (topic == NO_TOPIC), TAG_ANY_MESSAGE_ID, tags).astype(np.uint32)


def _refuse_incomplete(found: Iterable[Missing]) -> None:
    missing = list(dict.fromkeys(found))
    if missing:
        names = ", ".join(f"{name} ({reason})" for name, reason in missing[:3])
        raise IncompleteAnswerError(
            f"{len(missing)} files could not be asked: {names}", missing=missing
        )
