"""The entries of many lookups that local files answer, as an Arrow table: one search, and its columns.

A published file that may be needed, a file of another schema, a lookup that costs more than its share, and
forgotten entries are left to the general path, which searches the same way and waits for the rest.
tests/index_service/batch/test_local_table.py holds the two to each other.

Depends on lookup_columns, arrow_table, query, lifecycle and indexfile; pyarrow.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from tierdex.index_service.batch.arrow_table import dictionary, plain, schema_as_of
from tierdex.index_service.batch.lookup_columns import PlainLookups
from tierdex.index_service.query.executor import AT_ONCE
from tierdex.index_service.query.local_run import Names, lies_in_run, run_of
from tierdex.index_service.query.walk import SEARCH_ERRORS
from tierdex.indexfile.column_search import Asked
from tierdex.indexfile.layout import TOPIC_MASK
from tierdex.indexfile.schema import MESSAGE_SCHEMA, TOPIC_DICTIONARY
from tierdex.indexfile.work_limit import WorkLimit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tierdex.index_service.query.executor import LookupExecutor
    from tierdex.index_service.requests.lookups import Lookups
    from tierdex.indexfile.column_search import ColumnSearch
    from tierdex.lifecycle.table.file_handle import FileHandle

_I32, _I64, _U32 = pa.int32(), pa.int64(), pa.uint32()
_KEPT_ROWS: Final = 4096
_from_buffers: Any = pa.Array.from_buffers


def local_table(
    executor: LookupExecutor, lookups: PlainLookups | Lookups, *, at_once: bool
) -> Any | None:
    """Return the entries of each lookup, see `table_of`; None: take the general path.

    `at_once` bounds the work for a caller that must not wait, and takes the newest files alone if they
    answer everything. Raises NotPlainError.
    """
    if executor.peers is not None:
        return None
    view = executor.read_view
    freshness = view.freshness  # before the files: its `as_of` must not promise more
    asked, names = _asked(lookups)
    forgotten, count = freshness.forgotten, len(asked.hashes)
    if not count or (forgotten and forgotten.are_asked(asked.hashes).any()):
        return None
    most = executor.settings
    items, entries = (
        (AT_ONCE, AT_ONCE) if at_once else (most.query_max_items, most.query_max_entries)
    )
    limit = WorkLimit(items + 64 * count, max(entries, count)).share_of(count)
    wanted, is_bound = asked.limits, False
    if wanted is not None and int(wanted.max()) > limit.rows:
        asked, is_bound = asked._replace(limits=np.minimum(wanted, limit.rows)), True
    with executor.table.snapshot() as snapshot:
        handles, is_all = _newest(snapshot.file_list, names)
        if not is_all and not at_once:
            return None
        try:
            search = run_of(handles, asked, names, view.hides, most_items=limit.items)
            search.run()
        except SEARCH_ERRORS:
            return None
    if search.has_cut or not (is_all or search.has_enough):
        return None
    if is_bound and bool((search.taken >= limit.rows).any()):
        return None  # it may want more than its share
    # After the files: what is missing is named before it leaves the table.
    if not executor.is_still_fresh(freshness):
        return None
    return _table(lookups, search, handles[: len(search.files)], freshness.as_of)


def _asked(lookups: PlainLookups | Lookups) -> tuple[Asked, Names]:
    if isinstance(lookups, PlainLookups):
        count, most = lookups.keys.key_count, lookups.max_count
        limits = None if most == 1 else np.full(count, most, np.int64)
        return Asked(lookups.keys.hashes(), limits=limits), Names((lookups.topic,))
    names = Names.of(lookups)
    columns = lookups.begin, lookups.end, lookups.max_count
    return Asked(lookups.hashes, names.codes(lookups), *columns), names


def _newest(files: Iterable[FileHandle], names: Names) -> tuple[list[FileHandle], bool]:
    """Return the newest local files that may hold the topics, and whether no file is behind them."""
    found: list[FileHandle] = []
    for handle in files:
        if handle.item_count == 0:
            continue
        if handle.topics is not None and not names.may_be_in(handle):
            continue
        if not lies_in_run(handle):
            return found, False
        found.append(handle)
    return found, True


def _table(
    lookups: PlainLookups | Lookups, search: ColumnSearch, handles: list[FileHandle], as_of: int
) -> Any:
    schema, count = schema_as_of(as_of), search.row_count
    if not count:
        return schema.empty_table()
    memory, small = pa.py_buffer(search.columns()), 24 * count
    if search.has_one_each:
        lookup = _kept_lookups(count) if count <= _KEPT_ROWS else _new_lookups(count)
    else:
        lookup = _from_buffers(_I64, count, [None, memory.slice(16 * count, 8 * count)])
    columns = (
        _from_buffers(_I32, count, [None, memory.slice(small + 4 * count, 4 * count)]),
        _from_buffers(_I64, count, [None, memory.slice(8 * count, 8 * count)]),
        _from_buffers(_U32, count, [None, memory.slice(small, 4 * count)]),
        _from_buffers(_I64, count, [None, memory.slice(0, 8 * count)]),
    )
    place = memory.slice(small + 8 * count, 4 * count)
    places = [(each.file_id, each.state.value, each.node) for each in handles]
    if len(places) == 1:
        named = [_constant(text, count) for text in places[0]]
    else:
        named = [dictionary(place, count, texts) for texts in zip(*places, strict=True)]
    if isinstance(lookups, PlainLookups):
        topic = _constant(lookups.topic, count)
    else:
        numbers = np.frombuffer(memory, np.int64, count, 16 * count)
        topic = _topics(lookups, search, handles, numbers)
    return pa.Table.from_arrays([lookup, topic, *columns, *named], schema=schema)


def _topics(
    lookups: Lookups, search: ColumnSearch, handles: list[FileHandle], numbers: np.ndarray
) -> Any:
    """Return the topic of each row; `numbers` (i8) are the rows' lookups."""
    if lookups.names_topics:
        index = lookups.topic_index[numbers].astype(np.int32)
        return dictionary(pa.py_buffer(index), len(index), tuple(lookups.topics))
    sources, tags = (
        search.sources,
        search.rows.view(MESSAGE_SCHEMA.dtype)["tag"] & np.uint32(TOPIC_MASK),
    )
    index = np.empty(len(tags), np.int32)
    called: dict[int, str] = {}
    for number, (file, handle) in enumerate(zip(search.files, handles, strict=True)):
        topics = handle.reader.dictionaries.strings(TOPIC_DICTIONARY)
        assert file.topics is not None
        called |= dict(zip(file.topics.tolist(), topics, strict=False))
        here = sources == number
        index[here] = file.topics[tags[here]]
    index = np.ascontiguousarray(index[search.order()])
    return dictionary(pa.py_buffer(index), len(index), tuple(called[n] for n in range(len(called))))


def _new_lookups(count: int) -> Any:
    return plain(_I64, np.arange(count))


_kept_lookups = lru_cache(maxsize=16)(_new_lookups)


def _constant(text: str, count: int) -> Any:
    """Return `count` times the same text; Arrow's arrays never change, so they may be shared."""
    make = _kept_constant if count <= _KEPT_ROWS else _new_constant
    return make(text, count)


def _new_constant(text: str, count: int) -> Any:
    return dictionary(pa.py_buffer(np.zeros(count, np.int32)), count, (text,))


_kept_constant = lru_cache(maxsize=256)(_new_constant)
