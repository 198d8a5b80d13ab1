"""`MessageLog`: the embedded API of the message log. Appends messages, reads them by queue and offset.

The facade checks the arguments, calls the component that does the work, and returns its answer. One process
writes a data folder; any number of processes read. Any thread may call any method. Every error is a
TierdexError. In a child of fork every call on the parent's log raises ForkedError, and `close` does nothing.

Depends on disk_errors, seams, settings, times, value_rules, index_service.opening.folder_owner, hints and the
rest of log_service.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Unpack

from tierdex.disk_errors import typed_disk_errors, with_disk_errors
from tierdex.errors import InvalidRequestError, UnavailableError
from tierdex.fork import forked_error, tell_child
from tierdex.log_service.answer import AppendReceipt, FoundMessages, ReadAnswer
from tierdex.log_service.append.given_messages import GivenMessages
from tierdex.log_service.checked_appends import CheckedAppends
from tierdex.log_service.checked_reads import WAIT_MOST_S, CheckedReads
from tierdex.log_service.keys.key_lookups import Lookup, PartialGet, find_messages
from tierdex.log_service.levels import LEVELS, Level
from tierdex.log_service.memory_gets import MemoryGets
from tierdex.log_service.operations import OperatedLog
from tierdex.log_service.read.queue_reader import DEFAULT_GROUP, QueueReader
from tierdex.times import Time, optional_ms, to_ms
from tierdex.value_rules import INT32_MAX, check_integer, check_seconds, check_topic, one_or_many

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from concurrent.futures import Executor
    from pathlib import Path
    from types import TracebackType

    from tierdex.clock import Clock
    from tierdex.column_types import (
        Bodies,
        Body,
        HeaderLists,
        Headers,
        Integers,
        KeyLists,
        Texts,
        Times,
    )
    from tierdex.filesystem import FileSystem
    from tierdex.ids import IdSource
    from tierdex.index_service.index import Index
    from tierdex.log_service.append.commit import PendingAppend, PendingBatch
    from tierdex.log_service.keys.followed_index import FollowedIndex
    from tierdex.log_service.keys.log_index import LogIndex
    from tierdex.log_service.log_components import LogComponents
    from tierdex.log_service.read_policy import ReadLimits
    from tierdex.setting_keywords import SettingKeywords
    from tierdex.storage_layer.base import Store
    from tierdex.value_rules import Durability, Keys, ReadPolicyName


class MessageLog(OperatedLog):
    """The message log of a data folder. Use `MessageLog.open`; close it, or use it as a context manager."""

    def __init__(self, components: LogComponents) -> None:
        super().__init__(components, CheckedReads(components))
        self._appends = CheckedAppends(components, self.end_offsets)
        self._gets = MemoryGets(components)
        tell_child(self._after_fork)

    def _after_fork(self) -> None:
        """Refuse every call: the threads, locks and stages behind them are the parent's."""
        self._components.refusal = forked_error("message log")

    @classmethod
    @with_disk_errors
    def open(
        cls,
        data: str | Path | None = None,
        *,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        filesystem: FileSystem | None = None,
        executor: Executor | None = None,
        store: str | Store | None = None,
        index: bool = True,
        takeover: bool | Literal["lossy"] = False,
        adopt: bool = False,
        **settings: Unpack[SettingKeywords],
    ) -> MessageLog:
        """Open the log of the data folder `data` (created when absent, unless `read_only`).

        With `index` keys and message IDs find their messages (`get`); a log that was written without is
        indexed by the next opening with it. `store` holds the node's epoch and manifest, and what is
        published (None: that of the folder, in a new one `DATA/store`). Without `data` a log is read from its
        `store` alone (`read_only`): what `node` has published; it may be left out where the store
        has one log.

        `takeover` takes the node from an owner with a recent heartbeat, and fences it. A log that
        another folder had goes on here once it was handed over (`hand_over`), else only with
        ``takeover="lossy"``: then what was not published is given up, and its offsets are given anew under a
        higher generation. `adopt` publishes what a fenced folder still holds under another `node`.

        Any setting is a keyword (see settings.py). Raises FolderInUseError when another process writes
        there, NodeInUseError and LossyTakeoverError (nothing was changed), OwnershipError for a folder that
        must be adopted first, NotFoundError for what is only read and is not there, UnsupportedFormatError
        for files of a newer version, InvalidRequestError, UnavailableError when the disk fails.
        """
        from pathlib import Path as ActualPath

        from tierdex.settings import load_settings

        checked = load_settings(**settings)
        if checked.kernel_cache_dir is not None:
            os.environ.setdefault("TIERDEX_KERNEL_CACHE_DIR", checked.kernel_cache_dir)
        from tierdex.index_service.opening.folder_owner import Claiming
        from tierdex.log_service.open_log import IndexChoice, open_log
        from tierdex.seams import Seams

        if (takeover or adopt) and (not index or checked.read_only):
            raise InvalidRequestError(
                "is for the owner of a log with an index", field="takeover" if takeover else "adopt"
            )
        if takeover not in (False, True, "lossy"):
            raise InvalidRequestError('must be False, True or "lossy"', field="takeover")
        claiming = Claiming(adopt=adopt, takeover=bool(takeover), lossy=takeover == "lossy")
        choice = IndexChoice(store, claiming) if index else None
        seams = Seams.of(clock, ids, filesystem, executor)
        folder = None if data is None else ActualPath(data).absolute()
        return cls(open_log(folder, checked, seams, choice))

    def __enter__(self) -> MessageLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @with_disk_errors
    def close(self) -> None:
        """Make everything appended durable and give the folder back. Idempotent."""
        self._components.close()

    # -- append ----------------------------------------------------------------------------------------

    def append(
        self,
        *,
        topic: str,
        queue_id: int,
        body: Body,
        key: str | None = None,
        keys: Keys | None = None,
        message_id: str | None = None,
        headers: Headers | None = None,
        timestamp: Time | None = None,
        deliver_at: Time | None = None,
        expect_offset: int | None = None,
        durability: Durability = "disk",
    ) -> int:
        """Append one message; return its offset: 0, 1, 2, ... in each queue, without a gap.

        `body` is bytes, or a string (its UTF-8); `keys` is a list of strings, `key` one; `headers` a dict or
        a list of (name, value), values as a body; `timestamp` int64 ms
        (None: now). Returns once the message has the level `durability`: "received", "os", "disk" or
        "remote". With `expect_offset` the message is appended only if that offset is next. With a
        `deliver_at` (ms) that is still to come the message waits in the log, and goes to its queue then,
        once: it has no offset yet, and -1 is returned; its `timestamp` is then `deliver_at`, unless one is
        given. Raises OffsetMismatchError (nothing was appended, everything below the right offset has the
        level), InvalidRequestError, RequestTooLargeError, UnavailableError (not acknowledged; it may be
        there all the same).
        """
        keys = one_or_many(key, keys)
        new = GivenMessages(topic, queue_id, body, keys, message_id, headers, timestamp, deliver_at)
        with typed_disk_errors:
            writing = self._components.need_writing()
            try:
                offset, commit, level = self._appends.one(writing, new, expect_offset, durability)
            except InvalidRequestError:
                self._appends.refuse_key(key)
                raise
            writing.committer.wait(commit, level)
            return offset

    def append_nowait(
        self,
        *,
        topic: str,
        queue_id: int,
        body: Body,
        key: str | None = None,
        keys: Keys | None = None,
        message_id: str | None = None,
        headers: Headers | None = None,
        timestamp: Time | None = None,
        deliver_at: Time | None = None,
        expect_offset: int | None = None,
        durability: Durability = "disk",
    ) -> PendingAppend:
        """Stage one message and return at once; `commit.add_callback(level, ...)` tells when it is safe.

        All messages of one commit share it, so a coroutine's future may serve all of them. Raises as
        `append` does; errors of the disk come through `commit.raise_error(level)`.
        """
        keys = one_or_many(key, keys)
        new = GivenMessages(topic, queue_id, body, keys, message_id, headers, timestamp, deliver_at)
        with typed_disk_errors:
            writing = self._components.need_writing()
            try:
                pending = self._appends.one(writing, new, expect_offset, durability)
            except InvalidRequestError:
                self._appends.refuse_key(key)
                raise
            writing.committer.begin(pending.commit, pending.level)
            return pending

    @with_disk_errors
    def append_batch(
        self,
        *,
        topic: Texts,
        queue_id: Integers,
        body: Bodies,
        key: Texts | None = None,
        keys: KeyLists | None = None,
        message_id: Texts | None = None,
        headers: HeaderLists | None = None,
        timestamp: Times | None = None,
        deliver_at: Times | None = None,
        durability: Durability = "disk",
    ) -> AppendReceipt:
        """Append many messages by column, in order of rows; return their offsets.

        `body` is Arrow binary or a list of bytes or strings; `topic`, `queue_id` and `timestamp` are one
        value for all rows or a column; `keys` a list of strings or one a row, or `key` one a row;
        `message_id` a string a row (both quick as Arrow columns), `headers` a dict or a list of
        (name, value) a row, `deliver_at` one value or a column that may hold None; the offset of a message
        that waits is -1. All or none: the whole call is
        checked first. What fits one stage (4 MiB) is atomic across a crash; of more, a prefix of each queue
        may survive one. Raises as `append` does.
        """
        keys = one_or_many(key, keys)
        new = GivenMessages(topic, queue_id, body, keys, message_id, headers, timestamp, deliver_at)
        pending = self._appends.batch(new, durability)
        self._components.need_writing().committer.wait(pending.commit, pending.level)
        return AppendReceipt(pending.offsets, pending.level)

    def append_at_once(
        self,
        *,
        topic: str,
        queue_id: int,
        body: Body,
        key: str | None = None,
        keys: Keys | None = None,
        message_id: str | None = None,
        headers: Headers | None = None,
        timestamp: Time | None = None,
        expect_offset: int | None = None,
        durability: Durability = "disk",
    ) -> PendingAppend | None:
        """As `append_nowait` where memory alone does it, for event loops; else None, and nothing is done.

        Without a thread that commits, with a full stage, or for what is not valid: then call
        `append_nowait`, in a thread.
        """
        keys = one_or_many(key, keys)
        new = GivenMessages(topic, queue_id, body, keys, message_id, headers, timestamp)
        pending = self._appends.one_at_once(new, expect_offset, durability)
        if pending is not None:
            self._components.need_writing().committer.begin_at_once(pending.commit, pending.level)
        return pending

    @with_disk_errors
    def append_batch_nowait(
        self,
        *,
        topic: Texts,
        queue_id: Integers,
        body: Bodies,
        key: Texts | None = None,
        keys: KeyLists | None = None,
        message_id: Texts | None = None,
        headers: HeaderLists | None = None,
        timestamp: Times | None = None,
        deliver_at: Times | None = None,
        durability: Durability = "disk",
    ) -> PendingBatch:
        """Stage many messages; `commit.add_callback(level, ...)` tells when they are safe.

        What does not fit the stage is written here first. Without rows the commit is that of what was
        appended before. Raises as `append_batch` does; errors of the disk come through
        `commit.raise_error(level)`.
        """
        keys = one_or_many(key, keys)
        new = GivenMessages(topic, queue_id, body, keys, message_id, headers, timestamp, deliver_at)
        pending = self._appends.batch(new, durability)
        self._components.need_writing().committer.begin(pending.commit, pending.level)
        return pending

    @with_disk_errors
    def flush(self, durability: Durability = "disk") -> None:
        """Bring everything that was appended to a level.

        For "remote" the journal is rolled, at most once every `remote_interval`, for all who wait. Raises
        UnavailableError when that is not published within `remote_timeout`: it is on disk and will be;
        CorruptFileError when a damaged file stays here; InvalidRequestError for a log without a store.
        """
        writing = self._writing()
        level = self._components.level(durability, "durability")
        with writing.committer.append_lock:
            commit = writing.committer.join(level)
        writing.committer.wait(commit, level)
        if level is Level.REMOTE:
            writing.remote.refuse_damaged()

    # -- read ------------------------------------------------------------------------------------------

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_count: int = 100,
        max_bytes: int = 1 << 20,
        wait: float = 0.0,
        visible: Durability = "disk",
        policy: ReadPolicyName | None = None,
        group: str | None = None,
    ) -> ReadAnswer:
        """Return messages of a queue from `offset` on: at most `max_count`, and `max_bytes` after the first.

        `visible` is the level that a message needs to be seen. An offset below `begin_offset` is answered
        from there (`from_begin` says so); at the end, and for an unknown queue, the answer is
        empty, after `wait` seconds at most when none came. What cannot be read is named in `missing`.
        Published messages are fetched ahead for a caller that reads on where an answer ended; a `group`
        says at its first read that it will. `policy` (None: the setting `read_policy`) says whether they
        come from kept local copies or from the store. Raises InvalidRequestError.
        """
        components = self._components
        if components.refusal is None and components.follower is None and not components.missing:
            level = LEVELS.get(visible) if policy is None else None
            is_wait = type(wait) in (float, int) and 0.0 <= wait <= WAIT_MOST_S
            if is_wait and level is not None and level is not Level.REMOTE:
                answer = components.tail_reads.read(
                    topic, queue_id, offset, max_count, max_bytes, level
                )
                if answer is not None:
                    return answer
        with typed_disk_errors:
            at, limits = self._reads.check(
                topic, queue_id, offset, max_count, max_bytes, visible, group, policy
            )
            return self._reads.wait_for(at, limits, wait)

    def read_arrow(self, topic: str, queue_id: int, offset: int, **limits: Any) -> Any:
        """Return the same as an Arrow table: offset, timestamp, body, keys, message_id, headers."""
        return self.read(topic, queue_id, offset, **limits).table()

    @with_disk_errors
    def read_many(
        self,
        places: Iterable[tuple[str, int, int]],
        *,
        max_count: int = 100,
        max_bytes: int = 1 << 20,
        visible: Durability = "disk",
        policy: ReadPolicyName | None = None,
    ) -> Sequence[ReadAnswer]:
        """Return an answer for each (topic, queue_id, offset), in order; limits are each one's.

        All are read at once; each answer becomes an object when it is looked at.
        """
        limits = self._reads.check_limits(max_count, max_bytes, visible, policy=policy)
        self._reads.refresh_when_due()
        listed = self._reads.check_places(places)
        return self._components.reads.read_places(listed, limits) if listed else []

    def reader(
        self,
        topic: str,
        queue_id: int,
        offset: int = 0,
        *,
        group: str = DEFAULT_GROUP,
        generation: int | None = None,
        max_count: int = 1000,
        max_bytes: int = 1 << 20,
        wait: float = 0.0,
        visible: Durability = "disk",
        policy: ReadPolicyName | None = None,
    ) -> QueueReader:
        """Return an iterator over the messages from `offset` on, which stops at the end (`wait`: of both).

        With the `generation` of an earlier reader it raises OffsetsReusedError when a crash took back what
        that one had read. Published messages are fetched ahead; of readers of one queue with the same
        `group` one may take over where the other ended. Raises InvalidRequestError.
        """
        self._reads.check(topic, queue_id, offset, max_count, max_bytes, visible, group, policy)
        check_seconds(wait, "wait", WAIT_MOST_S)
        if generation is not None:
            check_integer(generation, "generation", 0)

        def read(at: int, count: int | None) -> ReadAnswer:
            return self.read(
                topic, queue_id, at, max_count=count or max_count, max_bytes=max_bytes,
                wait=0.0 if count else wait, visible=visible, policy=policy,
                group=None if count else group,
            )  # fmt: skip

        return QueueReader(read, offset, generation)

    @with_disk_errors
    def begin_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset of the first message of a queue that is still there; 0 for an unknown one.

        Raises UnavailableError while the store was not reached that has what is published, CorruptFileError
        where a damaged file may hold messages before all others.
        """
        self._components.reads.refuse_unknown()
        return self._reads.begin(topic, queue_id)

    @with_disk_errors
    def end_offset(self, topic: str, queue_id: int, *, level: Durability = "disk") -> int:
        """Return the offset behind the last message that has `level`; 0 for an unknown queue.

        Raises UnavailableError for `remote` while the store was not reached; that and CorruptFileError in a
        log that is only read, where a file cannot say what it holds.
        """
        asked = self._components.level(level, "level")
        return self._reads.end(topic, queue_id, asked)

    @with_disk_errors
    def end_offsets(self, topic: str, queue_id: int) -> dict[str, int | None]:
        """Return the offset behind the last message of each level.

        None for `remote` where that is not known: without a store, or while it was not reached.
        """
        local = (Level.RECEIVED, Level.OS, Level.DISK)
        ends: dict[str, int | None] = {
            level.name.lower(): self._reads.end(topic, queue_id, level) for level in local
        }
        ends["remote"] = None
        if self._components.has_store:
            with suppress(UnavailableError):
                ends["remote"] = self._reads.end(topic, queue_id, Level.REMOTE)
        return ends

    @with_disk_errors
    def offset_at(
        self, topic: str, queue_id: int, timestamp: Time, *, visible: Durability = "disk"
    ) -> int:
        """Return the least offset whose message has a time >= `timestamp`; the end offset if none has.

        Raises CorruptFileError when what would have to be looked at cannot be read.
        """
        at, limits = self._reads.check(topic, queue_id, 0, 1, 1, visible)
        time_ms = to_ms(timestamp, "timestamp")
        self._reads.refresh_when_due()
        return self._components.reads.offset_at(at.topic, at.queue_id, time_ms, limits.level)

    @with_disk_errors
    def call_when_more(
        self, callback: Callable[[], object], *, visible: Durability = "disk"
    ) -> None:
        """Call `callback()` once, from the committing thread, when more messages can be seen at `visible`.

        For event loops: register, read, then await what the callback wakes; it must return soon and
        raise nothing. Raises ReadOnlyError in a log that was opened for reading.
        """
        writing = self._writing()
        writing.committer.call_at_arrival(self._components.level(visible, "visible"), callback)

    # -- keys --------------------------------------------------------------------------------------------

    def get(
        self,
        topic: str | None = None,
        *,
        key: str | None = None,
        message_id: str | None = None,
        begin: Time | None = None,
        end: Time | None = None,
        max_count: int = 64,
        cursor: str | None = None,
        visible: Durability = "disk",
        policy: ReadPolicyName | None = None,
        fresh_within: float | None = None,
        hints: bool = False,
    ) -> FoundMessages:
        """Return the messages of a topic's key, or of a message ID, newest first, with their bodies.

        The key is compared in each message; `visible` and `policy` are as in `read`, `fresh_within` is as in
        `Index.query`. An unknown key gives an empty, complete answer; `missing` names what was not read or is
        not indexed yet. A log that is only read gives what is not indexed beyond `max_count`. `hints` is as
        in `Index.query`.
        """
        begun = None
        if cursor is None and policy is None and fresh_within is None:
            told = self._gets.find(topic, key, message_id, begin, end, max_count, visible)
            if not isinstance(told, FoundMessages):
                begun = told
            elif told.messages or not hints:
                return told
        first, last = optional_ms(begin, "begin"), optional_ms(end, "end", is_end=True)
        asked = Lookup(topic, key, message_id, first, last, max_count, cursor, fresh_within)
        return self._find(asked, self._reads.limits_of_one(visible, policy), begun, hints=hints)

    @with_disk_errors
    def _find(
        self, lookup: Lookup, limits: ReadLimits, begun: PartialGet | None, *, hints: bool
    ) -> FoundMessages:
        """Find the messages one by one, after what was `begun`."""
        self._components.check_open()
        log_index = self._asked_index()
        self._reads.refresh_when_due(at_once=True)
        if limits.level is Level.RECEIVED and self._components.writing is not None:
            self.flush("os")  # an index has what is written
        components = self._components
        is_own = components.follower is None and not components.missing
        found: FoundMessages = find_messages(
            log_index, components.reads, lookup, limits,
            components.tail_reads if is_own else None, begun,
        )  # fmt: skip
        if not hints or len(found) or lookup.cursor is not None:
            return found
        from tierdex.index_service.hints import find_hints

        topics = sorted({*log_index.index.known_topics().names, *self.topics()})
        known = find_hints(
            log_index.index,
            lookup.topic,
            key=lookup.key,
            message_id=lookup.message_id,
            topics=topics,
        )
        return replace(found, hints=known)

    @property
    def index(self) -> Index:
        """The index of the log's keys, for queries: locations, without bodies. Puts are refused.

        It has what was written up to the last `catch_up`; the newest messages may not be there yet. Take
        it anew for each use. Raises InvalidRequestError in a log without one.
        """
        self._components.check_open()
        return self._asked_index().index

    @with_disk_errors
    def catch_up(self) -> None:
        """Index everything that is written. Raises UnavailableError when the index takes nothing."""
        self._components.check_open()
        self._log_index().catch_up()

    # -- the log as a whole ------------------------------------------------------------------------------

    @with_disk_errors
    def topics(self) -> list[str]:
        """Return the topics that hold messages, sorted."""
        return self._reads.queues().topics()

    @with_disk_errors
    def queues(self, topic: str, *, first: int = 0, max_count: int | None = None) -> list[int]:
        """Return the queues of a topic that hold messages, sorted, none for an unknown topic.

        Those from queue `first` on, at most `max_count`: a page costs no list of all. Raises
        InvalidRequestError.
        """
        name = check_topic(topic, "topic").encode()
        check_integer(first, "first", 0, INT32_MAX)
        if max_count is not None:
            check_integer(max_count, "max_count", 1)
        return self._reads.queues().queues(name, first, max_count)

    @with_disk_errors
    def refresh(self) -> None:
        """Read the folder again, in a log that was opened for reading."""
        self._reads.refresh()

    # -- private -----------------------------------------------------------------------------------------

    def _log_index(self) -> LogIndex:
        return self._writing().asked_index()

    def _asked_index(self) -> LogIndex | FollowedIndex:
        """Return what keys are asked of: the index of this log, or of the one that another writes."""
        components = self._components
        return self._log_index() if components.writing is not None else components.follow_index()
