"""A query that needs nothing but memory: answered at once, with as little Python as that takes.

Most lookups of a broker ask for what was put lately, and most lookups of anything are absent from
most files. Both are answered here: the filters of all local compacted files in one kernel call, then
each local file that may hold the key in another, published ones by the filter of a sidecar that is
open. Whatever needs more (a page of a published file, a hot key, a
cursor, an explanation, a node that is not fresh) is left to `QueryRunner`, by returning None.

The answer is the one that `QueryRunner` would give. No snapshot is pinned: a reader that is closed
meanwhile raises, and the query is run in full.
Depends on lifecycle, indexfile, surroundings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xxhash import xxh64_intdigest

from tierdex.errors import TierdexError
from tierdex.index_service.answer import Answer, Entry
from tierdex.indexfile.chained import ChainedFile
from tierdex.indexfile.chained_view import TIME_MAX, TIME_MIN, Lookup
from tierdex.indexfile.compacted import CompactedFile
from tierdex.indexfile.filter import FilterGroup
from tierdex.indexfile.hashing import MESSAGE_ID_SEED, topic_seed
from tierdex.indexfile.layout import KIND_KEY, KIND_MESSAGE_ID, TOPIC_MASK
from tierdex.indexfile.schema import MESSAGE_SCHEMA, TOPIC_DICTIONARY
from tierdex.lifecycle.file_state import FileState

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.clock import Clock
    from tierdex.index_service.sidecar_cache import SidecarCache
    from tierdex.index_service.surroundings import ViewSurroundings
    from tierdex.indexfile.dictionary import Dictionaries
    from tierdex.indexfile.filter import FuseFilter
    from tierdex.lifecycle.file_handle import FileHandle
    from tierdex.lifecycle.file_table import FileTable
    from tierdex.settings import Settings

_new_tuple: Any = tuple.__new__
_FILES_MAX = 64  # files that are asked one after the other, on the caller's thread
_TOPICS_REMEMBERED = 65_536


class LocalQueries:
    """Answers simple lookups from memory. Safe to share between threads."""

    def __init__(
        self,
        *,
        clock: Clock,
        table: FileTable,
        surroundings: ViewSurroundings,
        sidecars: SidecarCache,
        settings: Settings,
    ) -> None:
        self._now_ms: Callable[[], int] = clock.now_ms
        self._table = table
        self._surroundings = surroundings
        self._opened = sidecars.opened
        self._max_count_limit = settings.max_count_limit
        self._surely_short = settings.max_key_bytes // 4  # characters that fit whatever they are
        self._seeds: dict[str, int] = {}
        self._plan = _Plan(None, ())

    def close(self) -> None:
        """Let go of the files of the last plan."""
        self._plan = _Plan(None, ())

    def learn(self, topic: str) -> None:
        """Remember a topic that was found legal: its lookups may come here from now on."""
        if len(self._seeds) >= _TOPICS_REMEMBERED:
            self._seeds.clear()
        self._seeds[topic] = topic_seed(topic)

    def run(
        self, topic: Any, key: Any, message_id: Any, begin: Any, end: Any, max_count: Any
    ) -> Answer | None:
        """Return the answer, or None when this lookup is not one of the simple ones.

        Values of the wrong type or size give None: the full query says what is wrong with them.
        """
        if message_id is None:
            kind, text = KIND_KEY, key
            seed = self._seeds.get(topic) if type(topic) is str else None
        else:
            kind, text = KIND_MESSAGE_ID, message_id
            seed = MESSAGE_ID_SEED if topic is None and key is None else None
        if seed is None or type(text) is not str or not text.isascii():
            return None
        if not 0 < len(text) <= self._surely_short or type(max_count) is not int:
            return None
        if begin is None and end is None:
            begin, end = TIME_MIN, TIME_MAX
        else:
            begin = TIME_MIN if begin is None else begin
            end = TIME_MAX if end is None else end
            if type(begin) is not int or type(end) is not int:
                return None
            if not TIME_MIN <= begin <= end <= TIME_MAX:
                return None
        try:
            entries = self._ask(xxh64_intdigest(text.encode(), seed), kind, topic, begin, end)
        except TierdexError:
            return None  # closed, damaged: the full query meets it again and says so
        if entries is None or not len(entries) < max_count <= self._max_count_limit:
            return None  # too much for here; or the cursor's business
        as_of, until = self._surroundings.calm  # after the files: see there
        if self._now_ms() > until:
            return None
        return Answer(entries, True, [], None, as_of, None)

    def _ask(
        self, key_hash: int, kind: int, topic: str | None, begin: int, end: int
    ) -> list[Entry] | None:
        plan = self._plan
        version = self._table.version
        if plan.version is not version:  # prepared once a version
            plan = self._plan = _Plan(version, version.files[: _FILES_MAX + 1])
        if len(plan.sources) > _FILES_MAX:
            return None
        entries: list[Entry] = []
        maybe = b"" if plan.filters is None else plan.filters.may_contain(key_hash)
        for source in plan.sources:
            if source.filter >= 0 and not maybe[source.filter]:
                continue
            found = source.ask(key_hash, kind, topic, begin, end, self._opened)
            if found is None:
                return None
            entries = entries + found if entries else found
        return entries if len(entries) < 2 else _without_repeats(entries)


class _Plan:
    """The files of one version of the table, and the filters of those that lie here whole."""

    __slots__ = ("filters", "sources", "version")

    def __init__(self, version: object, files: tuple[FileHandle, ...]) -> None:
        self.version = version
        filters: list[FuseFilter] = []
        self.sources = tuple(_Source(handle, filters) for handle in files)
        self.filters = FilterGroup(filters) if filters else None


class _Source:
    """One file, with everything that a lookup needs of it at hand."""

    __slots__ = (
        "_chained", "_file", "_handle", "_id", "_node", "_state", "_topics", "_uuid", "filter",
    )  # fmt: skip

    def __init__(self, handle: FileHandle, filters: list[FuseFilter]) -> None:
        """Take the file's filter into `filters`, if it lies here whole and has one."""
        reader = handle.reader
        is_local = isinstance(reader, ChainedFile | CompactedFile)
        self._file: ChainedFile | CompactedFile | None = (
            reader if is_local and reader.schema == MESSAGE_SCHEMA else None
        )
        self._chained = self._file if isinstance(self._file, ChainedFile) else None
        self.filter = -1  # its number among the filters
        if isinstance(reader, CompactedFile) and reader.item_count:
            self.filter = len(filters)
            filters.append(reader.filter)
        self._uuid = handle.uuid if handle.state is FileState.UPLOADED and handle.row else None
        self._handle = handle
        self._topics = handle.topics
        self._id, self._state, self._node = handle.file_id, handle.state.value, handle.node

    def ask(
        self,
        key_hash: int,
        kind: int,
        topic: str | None,
        begin: int,
        end: int,
        opened: Callable[[bytes], Any],
    ) -> list[Entry] | None:
        """Return the file's entries; None when memory alone does not tell."""
        chained = self._chained
        if chained is not None:
            found = chained.find_message(key_hash, kind, topic, begin, end)
            if found is not None:
                return self._entry_of(found, chained.dictionaries) if found[0] else []
        file = self._file
        if file is None:
            return self._ask_filter(key_hash, topic, begin, end, opened)
        rows = file.find_few(Lookup(key_hash, kind, topic), begin, end)
        if not rows:
            return None if rows is None else []
        topics = file.dictionaries.strings(TOPIC_DICTIONARY)
        file_id, state, node = self._id, self._state, self._node
        return [
            Entry(topics[tag & TOPIC_MASK], queue_id, offset, size, timestamp, file_id, state, node)
            for _, _, tag, timestamp, offset, size, queue_id in rows
        ]

    def _entry_of(self, found: tuple[int, ...], dictionaries: Dictionaries) -> list[Entry]:
        """Return the entry of a file's only match, made in half of the time that `Entry` takes."""
        _, tag, timestamp, offset, size, queue_id = found
        topic = dictionaries.strings(TOPIC_DICTIONARY)[tag & TOPIC_MASK]
        return [
            _new_tuple(
                Entry,
                (
                    topic, queue_id, offset, size, timestamp,
                    self._id, self._state, self._node, None, None, None,
                ),
            )
        ]  # fmt: skip

    def _ask_filter(
        self,
        key_hash: int,
        topic: str | None,
        begin: int,
        end: int,
        opened: Callable[[bytes], Any],
    ) -> list[Entry] | None:
        if self._topics is not None and topic is not None and topic not in self._topics:
            return []
        if not self._handle.overlaps(begin, end):
            return []
        sidecar = None if self._uuid is None else opened(self._uuid)
        if sidecar is None or sidecar.may_contain(key_hash):
            return None
        return []


def _without_repeats(entries: list[Entry]) -> list[Entry]:
    """Return the newest entry of each location, in order."""
    seen: dict[tuple[object, ...], Entry] = {}
    for entry in entries:
        seen.setdefault((entry.topic, entry.offset, entry.size, entry.queue_id), entry)
    return list(seen.values())
