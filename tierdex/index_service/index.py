"""`Index`: the embedded API. Puts entries and answers queries; operations.py has the operator's verbs.

The facade checks the arguments, calls the component that does the work, and returns its answer. It
holds no state but the components. One process writes a data folder and its node; any number of
processes read. Thread safety: any thread may call any method. Every error is
a TierdexError: disk_errors.py turns an OSError of the disk into one. In a child of fork every call on
the parent's index raises ForkedError, and `close` does nothing.

Depends on requests, indexfile, times and the rest of index_service. Wiring is in open.py.
"""

from __future__ import annotations

import os
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from tierdex.disk_errors import typed_disk_errors, with_disk_errors
from tierdex.errors import InvalidRequestError
from tierdex.fork import Refusing, forked_error, tell_child
from tierdex.index_service.answer import BUCKETS_LEAST, BUCKETS_MOST, DEFAULT_BUCKETS, Answer
from tierdex.index_service.operations import OperatedIndex
from tierdex.index_service.peers.peer_round import PeerRound
from tierdex.index_service.query.executor import TableLearnedError
from tierdex.index_service.requests.entry_rules import (
    check_integer,
    check_location,
    check_topic,
)
from tierdex.index_service.requests.id_time import OFF, narrow
from tierdex.index_service.requests.put import CheckedPut
from tierdex.index_service.requests.query import DEFAULT_MAX_COUNT, QueryValues, make_request
from tierdex.index_service.single_queries import QueryOptions, SingleQueries, check_on_error
from tierdex.index_service.table_queries import TableQueries, asks_again
from tierdex.index_service.tables.live_entries import check_snapshot
from tierdex.indexfile.schema import message_schema
from tierdex.times import to_ms
from tierdex.value_rules import check_durability, check_key, one_or_many

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor
    from pathlib import Path
    from types import TracebackType
    from typing import Unpack

    from tierdex.clock import Clock
    from tierdex.column_types import KeyLists, Lookup, Texts, Times
    from tierdex.filesystem import FileSystem
    from tierdex.ids import IdSource
    from tierdex.index_service.answer import Histogram
    from tierdex.index_service.opening.components import Components
    from tierdex.index_service.query.memory_search import PartialLookup
    from tierdex.indexfile.schema import Schema
    from tierdex.setting_keywords import SettingKeywords
    from tierdex.settings import Settings
    from tierdex.storage_layer.base import Store
    from tierdex.times import Time
    from tierdex.value_rules import Durability, Keys, OnError


class Index(OperatedIndex):
    """A node's index, and a view of every other node's published files under the same store.

    Use `Index.open`; close it, or use it as a context manager.
    """

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._settings = components.settings
        self._checker = components.checker
        self._singles = SingleQueries(components, self._guard, self._age)
        self._queries = components.queries
        self._from_memory = components.local_queries.run
        self._tables = TableQueries(components, self._singles, self._guard, self._age)
        self._table_topics = components.tables.topics
        self._fresh_within = components.settings.fresh_within
        self._has_id_time = components.settings.id_time != OFF or bool(
            components.settings.topic_id_time
        )
        self._asks_peers = components.queries.peers is not None
        # What a plain put goes through: see DirectPuts.
        puts = None if self._writer is None else self._writer.puts
        self._put_arguments = 0 if puts is None else puts.arguments
        self._topics = {} if puts is None else puts.topics
        self._put_kernels = {} if puts is None else puts.kernels
        tell_child(self._after_fork)

    def _after_fork(self) -> None:
        """Refuse every call: the threads, locks and buffers belong to the parent."""
        error = forked_error("index")
        self._components.refusal = error
        self._from_memory = Refusing(error)
        self._topics, self._put_kernels = {}, {}
        if self._writer is not None:
            self._writer.puts.refuse()  # callers that hold the kernels are shut out too

    @classmethod
    @with_disk_errors
    def open(
        cls,
        data: str | Path | None = None,
        *,
        store: str | Store | None = None,
        rocketmq: str | Path | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        filesystem: FileSystem | None = None,
        executor: Executor | None = None,
        adopt: bool = False,
        takeover: bool = False,
        accept_rollback: bool = False,
        **settings: Unpack[SettingKeywords],
    ) -> Index:
        """Open the data folder `data` (created when absent) over `store`.

        `store` is a folder, or a file://, memory://, s3://, gs:// or az:// URL; None: the one that the
        folder was opened with first, in a new folder `DATA/store`. Another one is refused. Without `data`
        the index is read-only. Any setting is a keyword (see settings.py). `clock`, `ids`,
        `filesystem` and `executor` are seams for tests and simulations. A folder belongs to one
        node, whose name it remembers; `adopt` publishes its files under another one. A node whose
        owner had a heartbeat within `takeover_after` is taken over only with `takeover`; the
        folder that had the node last has it again at once. `accept_rollback` accepts a store that
        was set back to an older copy on purpose; its lost entries stay lost.
        Raises NodeInUseError, LostManifestError when the store knows less of the node than before,
        FolderInUseError when another process writes there, InvalidRequestError for a bad setting,
        node or URL, UnavailableError when the disk fails, NotFoundError for a reader of something
        absent: no data folder, a store without any manifest, a node of `read_nodes` without one.
        """
        from tierdex.settings import load_settings

        checked = load_settings(**settings)
        if checked.kernel_cache_dir is not None:
            # numba fixes its cache folder when the first kernel is loaded, which the next import does
            os.environ.setdefault("TIERDEX_KERNEL_CACHE_DIR", checked.kernel_cache_dir)
        from tierdex.index_service.opening.folder_owner import Claiming
        from tierdex.index_service.opening.open import open_components
        from tierdex.seams import Seams

        components = open_components(
            data,
            store,
            rocketmq,
            settings=checked,
            seams=Seams.of(clock, ids, filesystem, executor),
            claiming=Claiming(adopt=adopt, takeover=takeover, accept_rollback=accept_rollback),
        )
        return cls(components)

    def __enter__(self) -> Index:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def data_folder(self) -> Path:
        """The data folder that this index owns. Raises ReadOnlyError."""
        return self._writing().data

    @property
    def settings(self) -> Settings:
        """The settings that it was opened with, defaults included."""
        return self._settings

    # -- puts ------------------------------------------------------------------------------------

    def put(
        self,
        *,
        topic: str,
        key: str | None = None,
        keys: Keys | None = None,
        message_id: str | None = None,
        queue_id: int,
        offset: int,
        size: int,
        timestamp: Time,
        durability: Durability = "os",
    ) -> str:
        """Index one message under its key or keys and message ID; return the level reached.

        `received` is quicker and lost with the process: for callers who can put again what a kill took.
        Raises InvalidRequestError naming the wrong field, BacklogFullError when the disk or the
        backlog is full, FencedError when another owner took the node over.
        """
        if key is not None:
            keys = key if keys is None and key.__class__ is str else self._one_key(key, keys)
        try:
            seed, number = self._topics[topic]
            is_taken = self._put_kernels[durability](
                self._put_arguments,
                keys,
                message_id,
                seed,
                number,
                timestamp,
                offset,
                size,
                queue_id,
            )
        except (KeyError, TypeError):  # a new topic, or none at all; another level
            is_taken = False
        if is_taken:
            return durability
        if isinstance(timestamp, (str, datetime)) and self._writer is not None:
            moment = to_ms(timestamp, "timestamp")
            given: Any = topic, keys, message_id, moment, offset, size, queue_id
            if self._writer.puts.put(given, durability):
                return durability
        self._put_refused(
            topic, key, keys, message_id, queue_id, offset, size, timestamp, durability
        )
        return durability if durability in ("received", "os") else self.flush(durability)

    def begin_put(
        self,
        *,
        topic: str,
        key: str | None = None,
        keys: Keys | None = None,
        message_id: str | None = None,
        queue_id: int,
        offset: int,
        size: int,
        timestamp: Time,
        durability: Durability = "os",
    ) -> str | Callable[[], str]:
        """Put as `put` does if memory alone takes it, and return the level reached; else what puts it.

        For callers that must not block, like an event loop, which call that on another thread.
        """
        if self._writer is not None and (key is None or (keys is None and key.__class__ is str)):
            given: Any = keys if key is None else key, timestamp
            names, moment = given  # the kernel looks at them
            entry = CheckedPut(topic, names, message_id, moment, offset, size, queue_id)
            if self._writer.puts.put(entry, durability):
                return durability
        return partial(
            self.put, topic=topic, key=key, keys=keys, message_id=message_id, queue_id=queue_id,
            offset=offset, size=size, timestamp=timestamp, durability=durability,
        )  # fmt: skip

    def _put_refused(
        self, topic: Any, key: Any, keys: Any, message_id: Any, queue_id: Any, offset: Any, size: Any,
        timestamp: Any, durability: Durability,
    ) -> None:  # fmt: skip
        """Name the fault of a put that the kernel refused; or make room, and let it try again.

        A written time becomes a number, another collection of keys a tuple.
        """
        with typed_disk_errors:
            writer = self._writing().writer  # first: a child of fork may call nothing else
            if key is not None:
                keys = self._one_key(key, None)
            entry = self._checker.check(topic, keys, message_id, queue_id, offset, size, timestamp)
            check_durability(durability)
            writer.take(entry, "received" if durability == "received" else "os")

    def _one_key(self, key: Any, keys: Any) -> tuple[str]:
        one_or_many(key, keys)
        return (check_key(key, "key", self._settings.max_key_bytes),)

    @with_disk_errors
    def put_batch(
        self,
        *,
        topic: Texts,
        key: Texts | None = None,
        keys: KeyLists | None = None,
        message_id: Texts | None = None,
        timestamp: Times,
        durability: Durability = "os",
        schema: Schema | None = None,
        **location: Any,
    ) -> str:
        """Index many messages; return the level reached. `keys` has one key a row, or a list of keys.

        Every argument is an Arrow, numpy or list column, or one value for all rows. `location` is
        `queue_id`, `offset`, `size`, or the fields of `schema`; without one, messages end as the setting
        `offsets` says. The batch is checked whole before
        any of it is written. Raises like `put`, naming ``entries[row].field``.
        """
        from tierdex.index_service.requests.put_columns import make_entry_columns

        self._refuse_closed()  # first: in a child of fork nothing else may be called
        check_durability(durability)
        schema = schema or message_schema(self._settings.offsets)
        columns = make_entry_columns(
            self._settings,
            schema,
            topic=topic,
            keys=one_or_many(key, keys),
            message_id=message_id,
            timestamp=timestamp,
            fields=location,
        )
        self._writing().writer.append(columns, schema)
        return "os" if durability in {"received", "os"} else self.flush(durability)

    @with_disk_errors
    def flush(self, durability: Durability = "os") -> str:
        """Bring everything put so far to the level `durability`; return it.

        `disk` syncs (callers share one sync), `remote` rolls at most once every `remote_interval`
        and waits until it is published. Raises UnavailableError when it cannot be reached now.
        """
        check_durability(durability)
        writing = self._writing()
        if durability == "remote":
            writing.remote.flush()
        elif durability == "disk":
            writing.writer.flush_disk()
        elif durability == "os":
            writing.writer.flush_buffer()
        return durability

    @with_disk_errors
    def watermark(
        self, topic: str, queue_id: int, *, node: str | None = None
    ) -> dict[str, int | None]:
        """Return, for `os`, `disk` and `remote`, the end offset up to which all puts have that level.

        An opening for writing syncs what it recovers, so that `disk` is known from the beginning, unless
        that sync fails; a reader beside the writer knows it of sealed files only. With `node`, which need
        not be ours, the answer is how far that node has `published`, as of the last refresh. Raises
        NotFoundError when no such node is read.
        """
        check_topic(topic, "topic")
        self._refuse_closed()
        queue_id = check_location("queue_id", queue_id)
        watermarks = self._components.watermarks
        if node is not None:
            return {"published": watermarks.published_by(node, topic, queue_id)}
        return watermarks.of(topic, queue_id)

    # -- queries ---------------------------------------------------------------------------------

    def query(
        self,
        topic: str | None = None,
        *,
        key: str | None = None,
        message_id: str | None = None,
        begin: Time | None = None,
        end: Time | None = None,
        max_count: int = DEFAULT_MAX_COUNT,
        cursor: str | None = None,
        explain: bool = False,
        on_error: OnError = "partial",
        fresh_within: float | None = None,
        id_time: str | None = None,
        proof: bool = False,
        hints: bool = False,
        snapshot: str | int | None = None,
    ) -> Answer:
        """Find the messages of one key or message ID, newest file and newest arrival first.

        Times are inclusive milliseconds. An unknown topic or key is an empty, complete answer. A
        file that could not be read makes `answer.complete` false, or with ``on_error="fail"``
        raises IncompleteAnswerError. So does an answer that is older than `fresh_within` seconds
        (None: the setting; see `Answer.as_of`).

        With `id_time` (`uuidv7`, `ulid`, `snowflake:EPOCH_MS`, `off`; None: the setting) a message ID of
        that form narrows the times to its own, widened by `id_time_slack`; explain says so.

        With `explain` and `proof` the answer's explain has a `proof` of what the store holds, which `tierdex
        verify --proof` checks against it: a request for each file that times and topics do not rule out.

        With `hints` an answer without entries says what may have been meant (see `Answer`): near topics, and
        the key in other topics and spellings, found by a batch of lookups.

        Of a topic that follows a lake's table the entries are those of live rows, at the newest indexed
        snapshot or at `snapshot`, an ID or version. Raises NotFoundError for one that is not kept.
        """
        if hints:
            from tierdex.index_service.hints import find_hints

            answer = self.query(
                topic, key=key, message_id=message_id, begin=begin, end=end, max_count=max_count,
                cursor=cursor, explain=explain, on_error=on_error, fresh_within=fresh_within,
                id_time=id_time, proof=proof, snapshot=snapshot,
            )  # fmt: skip
            if not answer.entries and cursor is None:
                answer.hints = find_hints(self, topic, key=key, message_id=message_id)
            return answer
        if proof and not explain:
            raise InvalidRequestError("is a part of explain: ask for both", field="proof")
        narrowed = None
        if message_id is not None and (id_time is not None or self._has_id_time):
            narrowed = narrow(self._settings, topic, message_id, (begin, end), id_time)
            if narrowed is not None:
                begin, end = narrowed.begin, narrowed.end
        if snapshot is not None or (
            self._table_topics and (topic is None or topic in self._table_topics)
        ):
            values = QueryValues(topic, key, message_id, begin, end, max_count, cursor)
            options = QueryOptions(explain, on_error, fresh_within, id_time, proof)
            return self._tables.query(values, options, narrowed, check_snapshot(snapshot))
        is_plain = not proof and not self._asks_peers and on_error in ("partial", "fail")
        begun: PartialLookup | None = None
        if is_plain and (
            (fresh_within is None and self._fresh_within is None)
            or self._age.is_within(self._age.limit(fresh_within))
        ):
            told = self._from_memory(topic, key, message_id, begin, end, max_count, cursor, explain)
            if isinstance(told, Answer):
                if narrowed is not None and told.explain is not None:
                    told.explain.id_time = narrowed._asdict()
                return told
            begun = told
        values = QueryValues(topic, key, message_id, begin, end, max_count, cursor)
        options = QueryOptions(explain, on_error, fresh_within, id_time, proof)
        try:
            return self._singles.go_on(values, begun, options, narrowed)
        except TableLearnedError:
            return self._tables.query(values, options, narrowed, None)

    def begin_query(self, topic: str | None = None, **asked: Any) -> Answer | Callable[[], Answer]:
        """Return the answer of `query` if memory alone has it, in microseconds; else what returns it.

        For callers that must not block, like an event loop, which call that on another thread: it goes on
        from where memory stopped. `asked` are the arguments of `query`, all but `hints`.
        """
        if self._is_of_table(topic) or asked.get("snapshot") is not None:
            return partial(self.query, topic, **asked)
        asked.pop("snapshot", None)
        given = {name: asked[name] for name in asked.keys() & QueryValues._fields}
        values = QueryValues(topic, **given)
        options = QueryOptions(**{name: asked[name] for name in asked.keys() - given.keys()})
        told: Answer | PartialLookup | None = None
        if self._singles.may_begin(values, options):
            told = self._from_memory(*values, options.explain)
        if isinstance(told, Answer):
            return told
        if told is None:
            return partial(self.query, topic, **asked)
        return partial(self._tables.go_on, values, told, options)

    @asks_again
    def histogram(
        self,
        topic: str | None = None,
        *,
        key: str | None = None,
        message_id: str | None = None,
        begin: Time | None = None,
        end: Time | None = None,
        buckets: int = DEFAULT_BUCKETS,
        max_count: int | None = None,
        on_error: OnError = "partial",
        fresh_within: float | None = None,
    ) -> Histogram:
        """Count the entries of one key or message ID by time: those of all pages of `query` together.

        There are at most `buckets` (10 to 1000) counts, from the first entry to the last. It stops at the
        newest `max_count` entries (None, and at most: the setting `query_max_entries`): then `more` is true.
        """
        from tierdex.index_service.query.time_counts import count_by_time

        narrowed = narrow(self._settings, topic, message_id, (begin, end))
        if narrowed is not None:
            begin, end = narrowed.begin, narrowed.end
        request = make_request(self._settings, QueryValues(topic, key, message_id, begin, end))
        most = self._settings.query_max_entries
        limit = most if max_count is None else check_integer(max_count, "max_count", 1, most)
        buckets = check_integer(buckets, "buckets", BUCKETS_LEAST, BUCKETS_MOST)
        if self._is_of_table(topic):
            values = QueryValues(topic, key, message_id, begin, end)
            options = QueryOptions(on_error=on_error, fresh_within=fresh_within)
            return self._tables.histogram(values, options, buckets, limit)
        fail, age = check_on_error(on_error), self._age.limit(fresh_within)
        with self._guard:
            self._age.prepare(age)
            peer_round = PeerRound()
            found = count_by_time(
                self._queries,
                request,
                buckets=buckets,
                max_count=limit,
                fail=fail,
                peer_round=peer_round,
            )
            self._age.tell((found,), age, peer_round, fail=fail)
            return found

    @asks_again
    def query_batch(
        self,
        lookups: Sequence[Lookup],
        *,
        max_count: int | None = None,
        on_error: OnError = "partial",
        fresh_within: float | None = None,
    ) -> list[Answer]:
        """Answer many lookups (topic and key, or message_id; begin, end, max_count) in order.

        `max_count` is for lookups that do not say it (None: 64).
        """
        from tierdex.index_service.batch.batch_queries import answer_batch

        if self._table_topics and self._tables.takes(lookups):
            options = QueryOptions(on_error=on_error, fresh_within=fresh_within)
            return self._tables.batch(lookups, max_count, options)
        fail, limit = check_on_error(on_error), self._age.limit(fresh_within)
        with self._guard:
            self._age.prepare(limit)
            peer_round = PeerRound()
            answers = answer_batch(
                self._queries, lookups, max_count=max_count, fail=fail, peer_round=peer_round
            )
            self._age.tell(answers, limit, peer_round, fail=fail)
            return answers

    @asks_again
    def query_batch_arrow(
        self,
        lookups: Any,
        *,
        max_count: int = 1,
        on_error: OnError = "fail",
        fresh_within: float | None = None,
    ) -> Any:
        """Answer a table of lookups (columns topic and key, or message_id) as a table of entries.

        The answer has a column `lookup` (row of the question) and the entry's columns, ordered by
        `lookup`. Raises IncompleteAnswerError unless ``on_error="partial"``: then the metadata of its
        schema has `missing` when some answer is incomplete, a JSON array of
        ``{"file", "reason", "lookups": [numbers], or null for all}``. `as_of` stands there, too, and
        `unasked` when there are such nodes, a JSON array (see `Answer`).
        """
        from tierdex.index_service.batch.batch_queries import table_of_batch

        if self._table_topics and self._tables.takes_table(lookups):
            options = QueryOptions(on_error=on_error, fresh_within=fresh_within)
            return self._tables.table(lookups, max_count, options)
        fail, limit = check_on_error(on_error), self._age.limit(fresh_within)
        with self._guard:
            self._age.prepare(limit)
            peer_round = PeerRound()
            table = table_of_batch(
                self._queries, lookups, max_count=max_count, fail=fail, peer_round=peer_round
            )
            return self._age.tell_table(table, limit, peer_round, fail=fail)

    def query_batch_local(
        self, lookups: Any, *, max_count: int = 1, fresh_within: float | None = None
    ) -> Any | None:
        """Return the answer of `query_batch_arrow` if memory alone has it; else None.

        For callers that must not block, like an event loop. None tells nothing about the keys.
        """
        from tierdex.index_service.batch.batch_queries import table_at_once

        if self._table_topics and self._tables.takes_table(lookups):
            return None
        limit = self._age.limit(fresh_within)
        with self._guard:
            if not self._age.is_within(limit):
                return None
            table = table_at_once(self._queries, lookups, max_count=max_count)
            if table is None:
                return None
            return self._age.tell_table(table, limit, PeerRound(), fail=False)

    def _is_of_table(self, topic: object) -> bool:
        return bool(self._table_topics) and (topic is None or topic in self._table_topics)
