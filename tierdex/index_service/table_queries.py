"""Queries of topics that follow a lake's table: the one search, and then the rows that are live.

A page of entries is taken first, and what it lacks of live ones behind it: after a rewrite of the table the
newest entry of a key is nearly always the live one. Batches as tables are filtered column by column.

Depends on answer, answer_age, batch, opening, peers, query, requests, single_queries, tables,
errors and numpy.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import numpy as np

from tierdex.errors import NotFoundError
from tierdex.index_service.peers.peer_round import PeerRound
from tierdex.index_service.query.executor import TableLearnedError, refuse_incomplete
from tierdex.index_service.requests.query import DEFAULT_MAX_COUNT, QueryValues
from tierdex.index_service.single_queries import QueryOptions, check_on_error
from tierdex.index_service.tables.live_entries import LiveEntries

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tierdex.column_types import Lookup
    from tierdex.index_service.answer import Answer, Histogram, Missing
    from tierdex.index_service.answer_age import AnswerAge
    from tierdex.index_service.opening.components import Components, QueryGuard
    from tierdex.index_service.query.memory_search import PartialLookup
    from tierdex.index_service.requests.id_time import Narrowed
    from tierdex.index_service.single_queries import SingleQueries
    from tierdex.index_service.tables.live_entries import View

_PAGE: Final = 1000
_ROWS_AT_ONCE: Final = 8  # entries of a lookup of a batch: after rewrites some are not live


P = ParamSpec("P")
T = TypeVar("T")


def asks_again(method: Callable[P, T]) -> Callable[P, T]:
    """Ask once more when rows of a table were found whose state has been read since."""

    @wraps(method)
    def asked(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return method(*arguments, **named)
        except TableLearnedError:
            return method(*arguments, **named)

    return asked


class TableQueries:
    """Answers what asks topics of tables. Safe to share between threads."""

    def __init__(
        self, components: Components, singles: SingleQueries, guard: QueryGuard, age: AnswerAge
    ) -> None:
        self._tables = components.tables
        self._guard = guard
        self._age = age
        self._queries = components.queries
        self._queries.learn_tables = components.tables.learn
        self._singles = singles
        self._live = LiveEntries(components.tables, components.read_view.now_ms)

    def query(
        self,
        values: QueryValues,
        options: QueryOptions,
        narrowed: Narrowed | None,
        snapshot: str | None,
    ) -> Answer:
        """Answer one query. Raises NotFoundError for a snapshot, or of a topic that has none."""
        topic = values.topic if isinstance(values.topic, str) else None
        if snapshot is not None and topic not in self._tables.topics:
            raise NotFoundError(f"topic {topic!r} follows no table: it has no snapshots")
        views = self._live.views(topic, snapshot)

        def ask(count: int, cursor: str | None) -> Answer:
            page = values._replace(max_count=count, cursor=cursor)
            return self._singles.go_on(page, None, options, narrowed, of_table=True)

        told = self._singles.go_on(values, None, options, narrowed, of_table=True)
        count, cursor = values.max_count, values.cursor
        assert isinstance(count, int)
        answer = self._live.page(
            views, count, cursor if isinstance(cursor, str) else None, told, ask
        )
        if check_on_error(options.on_error):
            refuse_incomplete(answer.missing)
        return answer

    def go_on(self, values: QueryValues, begun: PartialLookup, options: QueryOptions) -> Answer:
        """Answer a query that memory did not, also of a table that another node follows."""
        try:
            return self._singles.go_on(values, begun, options)
        except TableLearnedError:
            return self.query(values, options, None, None)

    def takes(self, lookups: object) -> bool:
        """Say whether a list of lookups asks a topic that follows a table, or perhaps does."""
        if not isinstance(lookups, list | tuple):
            return False  # refused where batches are looked at
        topics = [each.get("topic") for each in lookups if isinstance(each, dict)]
        return any(
            each is None or (isinstance(each, str) and each in self._tables.topics)
            for each in topics
        )

    def _topics_of(self, lookups: Any) -> list[str | None]:
        """Return the topics of a table of lookups that follow tables; [None] where any topic is asked."""
        topics = [None]
        if "topic" in lookups.column_names:
            topics = lookups.column("topic").unique().to_pylist()
        if None in topics:
            return [None]
        return [each for each in topics if each in self._tables.topics]

    def takes_table(self, lookups: Any) -> bool:
        """Say the same of a table of lookups."""
        if "topic" not in getattr(lookups, "column_names", ("topic",)):
            return True
        if not hasattr(lookups, "column_names"):
            return False
        topics = lookups.column("topic").unique().to_pylist()
        return any(each is None or each in self._tables.topics for each in topics)

    def batch(
        self, lookups: Sequence[Lookup], max_count: int | None, options: QueryOptions
    ) -> list[Answer]:
        """Answer lookups one by one: each may have to go on behind rows that are not live."""
        answers = []
        for lookup in lookups:
            given = {"max_count": max_count or DEFAULT_MAX_COUNT} | {
                name: value for name, value in lookup.items() if value is not None
            }
            values = QueryValues(**given)
            if values.topic is None or values.topic in self._tables.topics:
                answers.append(self.query(values, options, None, None))
            else:
                answers.append(self._singles.go_on(values, None, options, None))
        return answers

    def table(self, lookups: Any, max_count: int, options: QueryOptions) -> Any:
        """Answer a table of lookups as a table of live rows, see `LiveRows`."""
        from tierdex.index_service.batch.lookup_columns import lookups_of_table
        from tierdex.index_service.batch.table_rows import LiveRows, joined, with_as_of

        fail, limit = check_on_error(options.on_error), self._age.limit(options.fresh_within)
        views: dict[str, View] = {}
        for topic in self._topics_of(lookups):
            views |= self._live.views(topic)
        asked = lookups_of_table(self._queries.settings, lookups, max(max_count, _ROWS_AT_ONCE))
        rows = LiveRows(self._tables, views)
        with self._guard:
            self._age.prepare(limit)
            peer_round = PeerRound()
            result = self._queries.run(asked, peer_round=peer_round, of_table=True)
            if fail:
                result.refuse_incomplete()
            seen = [view.seen.time_ms for view in views.values() if view.seen is not None]
            result = with_as_of(result, min(seen, default=result.as_of))
            table, short = rows.taken(result, max_count)
            table = self._age.tell_table(table, limit, peer_round, fail=fail)
        again = [lookups.slice(number, 1).to_pylist()[0] for number in short.tolist()]
        answers = list(zip(short.tolist(), self.batch(again, max_count, options), strict=True))
        missing: dict[Missing, list[int] | None] = dict(rows.missing)
        missing |= {each: None for view in views.values() for each in view.missing}
        if fail:
            refuse_incomplete(missing)
        return joined(table, answers, missing)

    def histogram(
        self, values: QueryValues, options: QueryOptions, buckets: int, limit: int
    ) -> Histogram:
        """Count the live entries of a lookup by time, page by page."""
        from tierdex.index_service.query.time_counts import in_buckets

        times: list[int] = []
        missing: list[Any] = []
        as_of, cursor = 0, None
        while True:
            count = min(_PAGE, limit - len(times))
            page = values._replace(max_count=count, cursor=cursor)
            answer = self.query(page, options, None, None)
            times += [entry.timestamp for entry in answer.entries]
            missing += answer.missing
            as_of = answer.as_of if cursor is None else min(as_of, answer.as_of)
            cursor = answer.next_cursor
            if cursor is None or len(times) >= limit:
                break
        found = in_buckets(np.array(times, np.int64), buckets)
        found.more = len(times) >= limit
        found.missing = list(dict.fromkeys(missing))
        found.complete, found.as_of = not missing, as_of
        return found
