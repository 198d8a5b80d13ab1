"""A single query out of memory, with as little Python as that takes.

Most lookups of a broker ask for what was put lately, and most lookups of anything are absent from most
files. Both are answered here::

    local files, newest first    one kernel call, from the name to the entries
    a cursor; files behind them  as far as memory tells (memory_search.py)

An answer is the one that the general path (`LookupExecutor`) would give, but that a full page behind which
nothing is left has no cursor. Where memory does not tell (a request to the store, a long chain),
`PartialLookup` hands on what was found and where the search stopped: the general path goes on there, and
asks nothing twice. Other lookups (a node that is not fresh) are the general path's from the start. No
snapshot is pinned: a reader that is closed meanwhile says so, and the general path answers. What a topic's
lookups need is prepared once a version of the file table.

Depends on memory_files, memory_plan, memory_search, trace, manifest_follower, freshness, times, lifecycle,
indexfile, ingest, answer and settings.
"""

from __future__ import annotations

from itertools import islice
from operator import index
from typing import TYPE_CHECKING, Any

from tierdex.errors import InvalidRequestError
from tierdex.index_service.answer import Answer
from tierdex.index_service.query.memory_files import FILES_MAX, MemoryFiles
from tierdex.index_service.query.memory_plan import MemoryPlan, Shown
from tierdex.index_service.query.memory_search import (
    MemorySearch,
    Page,
    PartialLookup,
    pending_cursor,
)
from tierdex.index_service.query.trace import Trace
from tierdex.index_service.view.freshness import NOT_FRESH
from tierdex.indexfile.hashing import MESSAGE_ID_SEED, seeded_hash, topic_seed
from tierdex.indexfile.layout import KIND_KEY, KIND_MESSAGE_ID
from tierdex.indexfile.lookup import START, TIME_MAX, TIME_MIN
from tierdex.lifecycle.manifests.forgotten import NOTHING_FORGOTTEN
from tierdex.times import optional_ms
from tierdex.value_rules import SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.clock import Clock
    from tierdex.index_service.ingest.writer import Writer
    from tierdex.index_service.view.manifest_follower import ManifestFollower
    from tierdex.lifecycle.manifests.forgotten import ForgottenEntries
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.lifecycle.table.file_table import FileTable
    from tierdex.settings import Settings

_new_object: Any = object.__new__
_PLANS_KEPT = 16_384
_TOPICS_REMEMBERED = 65_536
_ANY_TIME = (TIME_MIN, TIME_MAX)


class LocalQueries:
    """Answers simple lookups from memory. Safe to share between threads."""

    def __init__(
        self,
        *,
        clock: Clock,
        table: FileTable,
        manifests: ManifestFollower,
        settings: Settings,
        writer: Writer | None,
        hidden_from: Callable[[FileHandle, str], int | None],
    ) -> None:
        """Show what `writer` has received to every query; None: this process writes nothing.

        `hidden_from` says since when (ms) retention hides a topic in a file.
        """
        self._now_s = clock.now_s
        self._clock = clock
        self._settings = settings
        self._table = table
        self._manifests = manifests
        self._hidden_from = hidden_from
        self._max_count_limit = settings.max_count_limit
        self._max_key_bytes = settings.max_key_bytes
        self._writer = writer
        self._waits = bytearray(1) if writer is None else writer.puts.waits
        self._closed = False
        self._files = MemoryFiles(None, [])
        # The seeds of topics that were found legal; None: message IDs.
        self._seeds: dict[str | None, int] = {None: MESSAGE_ID_SEED}
        self._plans: dict[
            str | None, MemoryPlan
        ] = {}  # for `_files`, so that no old file is kept alive

    def close(self) -> None:
        """Answer nothing any more, and let go of the files."""
        self._closed = True
        self._files = MemoryFiles(None, [])
        self._plans = {}

    def learn(self, topic: str) -> None:
        """Remember a topic that was found legal: its lookups may come here from now on."""
        if len(self._seeds) >= _TOPICS_REMEMBERED:
            self._seeds = {None: MESSAGE_ID_SEED}
        self._seeds[topic] = topic_seed(topic)

    def run(
        self,
        topic: Any,
        key: Any,
        message_id: Any,
        begin: Any,
        end: Any,
        max_count: Any,
        cursor: Any = None,
        explain: Any = False,
    ) -> Answer | PartialLookup | None:
        """Return the answer, or what memory has of it; None when this lookup is not one of the simple ones.

        Every put that returned is shown to it. Values of the wrong type or size give None: the full
        query says what is wrong with them.
        """
        if self._waits[0] and not self._shows_received():
            return None
        name = key
        if message_id is not None:
            if topic is not None or key is not None:
                return None
            name = message_id
        elif topic is None:
            return None
        if type(max_count) is not int:
            max_count = _as_int(max_count)
        if not 0 < max_count <= self._max_count_limit:
            return None
        freshness = self._manifests.freshness  # before the files: its `as_of` must not promise more
        if freshness is NOT_FRESH:
            return None
        try:
            plan = self._plans.get(topic)
        except TypeError:  # not even a string
            return None
        if (
            plan is None
            or plan.files.version is not self._table.version
            or plan.rules is not freshness.rules
            or (plan.newcomers and plan.is_behind())
        ):
            plan = self._prepare(topic, freshness.rules)
            if plan is None:
                return None
        # Nearly always nothing is forgotten: its identity is asked, not its length.
        forgotten = freshness.forgotten
        if forgotten is not NOTHING_FORGOTTEN and not self._is_remembered(plan, name, forgotten):
            return None
        times = _ANY_TIME if begin is None and end is None else _times_of(begin, end)
        if times is None:
            return None
        entries: list[Any] = []
        next_cursor = None
        told: Page | PartialLookup | None = None
        trace = None
        if cursor is not None or explain:
            trace = Trace(self._clock) if explain else None
            search = MemorySearch(plan, name, times, max_count, trace)
            told = search.page(cursor, freshness)
            if told is None:
                return None
            if trace is not None and isinstance(told, Page):
                search.note_others()
        else:
            count, file, place, last_file, last = plan.find(
                name, entries, times[0], times[1], max_count, 0, START, plan.tells
            )
            if count < 0:
                return None
            if count > max_count:
                if plan.tells:
                    entries.pop()
                kind = KIND_MESSAGE_ID if topic is None else KIND_KEY
                asked = (plan.topic, kind, str.__str__(name), *times)
                source = plan.first.sources[last_file]
                next_cursor = pending_cursor(plan, asked, entries, source, last)
            elif file != plan.end:
                search = MemorySearch(plan, name, times, max_count)
                told = search.go_on(entries, file, place, freshness)
                if told is None:
                    return None
        if isinstance(told, Page):
            entries, next_cursor = told
        # Again after them: what is missing is named before it leaves the table.
        if (
            self._manifests.freshness is not freshness
            or (now_s := self._now_s()) > freshness.until_s
            or self._closed
        ):
            return None
        if now_s >= plan.until_s:  # retention hides more by now
            self._plans.pop(topic, None)
            return None
        if isinstance(told, PartialLookup):
            return told
        answer: Answer = _new_object(Answer)  # field by field: half of what calling `Answer` takes
        answer.entries, answer.complete, answer.missing = entries, True, []
        answer.next_cursor, answer.as_of, answer.explain = next_cursor, freshness.as_of, None  # type: ignore[assignment]
        answer.unasked = freshness.unasked
        answer.lost = ()
        answer.hints = ()
        answer.table = None
        if trace is not None:
            answer.explain = trace.explain(self._settings, 0)
            answer.explain.nodes = self._manifests.describing()  # type: ignore[assignment]
        return answer

    @staticmethod
    def _is_remembered(plan: MemoryPlan, name: Any, forgotten: ForgottenEntries) -> bool:
        """Return whether no entry of the name is forgotten, as far as its hash tells."""
        if type(name) is not str or not name.isascii():
            return False
        return seeded_hash(name, plan.seed) not in forgotten.hashes

    def _shows_received(self) -> bool:
        """Write what was received; say whether that could be done."""
        assert self._writer is not None
        self._writer.show_buffered()
        return self._writer.unwritten() is None

    def _prepare(self, topic: str | None, rules: object) -> MemoryPlan | None:
        """Make the plan for the table's newest version; None when the topic was not learned."""
        if topic is not None:
            topic = str.__str__(topic)  # entries have it: never an object of a caller's own class
        seed, version = self._seeds.get(topic), self._table.version
        if seed is None:
            return None
        files = self._files
        if files.version is not version or len(self._plans) >= _PLANS_KEPT:
            files = self._files = MemoryFiles(version, list(islice(version.files, FILES_MAX + 1)))
            self._plans = {}
        shown = Shown.of(topic, files, rules, self._hidden_from, self._now_s())
        if shown is None:
            return None
        plan = self._plans[topic] = MemoryPlan(topic, seed, files, self._max_key_bytes, shown)
        if self._closed:  # meanwhile: no query will ask these files again
            self.close()
        return plan


def _as_int(value: Any) -> int:
    """Return an integer of another type as one; 0, which is refused, for everything else."""
    try:
        return 0 if isinstance(value, bool) else index(value)
    except TypeError:
        return 0


def _times_of(begin: Any, end: Any) -> tuple[int, int] | None:
    """Return the bounds of a lookup's times, None when they are wrong."""
    begin = TIME_MIN if begin is None else begin
    end = TIME_MAX if end is None else end
    if type(begin) is not int or type(end) is not int or begin in SECONDS or end in SECONDS:
        try:
            begin, end = optional_ms(begin, "begin"), optional_ms(end, "end", is_end=True)
        except InvalidRequestError:
            return None
    return (begin, end) if TIME_MIN <= begin <= end <= TIME_MAX else None
