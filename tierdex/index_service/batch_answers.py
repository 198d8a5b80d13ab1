"""From the matches of a batch to answers in Python, or to one Arrow table.

Matches come newest file first; within a lookup that is the order of the entries. Locations that a
lookup has seen are dropped, then what is beyond its `max_count`.
Depends on collected, answer, cursor, rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tierdex.index_service.answer import Answer
from tierdex.index_service.cursor import Cursor, fingerprint_location
from tierdex.index_service.rows import RowDecoder, make_entry
from tierdex.indexfile.layout import TOPIC_MASK
from tierdex.indexfile.schema import TOPIC_DICTIONARY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tierdex.index_service.answer import Missing
    from tierdex.index_service.collected import Collected, FileMatches
    from tierdex.index_service.request import QueryRequest
    from tierdex.lifecycle.file_handle import FileHandle


def answers_of(
    requests: Sequence[QueryRequest],
    collected: Collected,
    everywhere: Sequence[Missing],
    hides: Callable[[FileHandle, str], bool],
) -> list[Answer]:
    """Return an answer a request; `everywhere` is missing from all of them."""
    answers = [Answer([], complete=not everywhere, missing=list(everywhere)) for _ in requests]
    for row in collected.missing:
        for number in row.lookups.tolist():
            answers[number].missing.append(row.missing)
            answers[number].complete = False
    seen: dict[int, set[tuple[Any, ...]]] = {}
    for found in collected.matches:
        decoder = RowDecoder(found.schema, found.dictionaries)
        handle = found.handle
        candidates = decoder.decode(found.rows)
        for number, (location, timestamp) in zip(found.lookups().tolist(), candidates, strict=True):
            answer = answers[number]
            locations = seen.setdefault(number, set())
            full = len(answer.entries) >= requests[number].max_count
            if full or location in locations or hides(handle, location[0]):
                continue
            locations.add(location)
            answer.entries.append(make_entry(handle, decoder.names, location, timestamp))
            if len(answer.entries) >= requests[number].max_count:
                digest = requests[number].digest()
                cursor = Cursor(digest, fingerprint_location(location), handle.file_id)
                answer.next_cursor = cursor.encode()
    return answers


def table_of(
    collected: Collected,
    exact: Mapping[int, Answer],
    hides: Callable[[FileHandle, str], bool],
) -> Any:
    """Return the entries as an Arrow table, ordered by lookup, newest first within one.

    Columns: `lookup` int64, `topic`, `queue_id` int32, `offset` int64, `size` uint32, `timestamp`
    int64, `file_id`, `state`, `node`; queue, offset and size are null where the file's schema has
    none. `exact` holds whole answers of single lookups, which replace what was collected for them.
    """
    import pyarrow as pa

    tables = [_table_of_file(pa, found, hides) for found in collected.matches]
    tables += [_table_of_answer(pa, number, answer) for number, answer in exact.items()]
    if not tables:
        return _schema(pa).empty_table()
    sources = np.repeat(np.arange(len(tables)), [table.num_rows for table in tables])
    joined = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
    lookup = joined.column("lookup").to_numpy()
    is_exact = sources >= len(collected.matches)
    replaced = np.isin(lookup, np.fromiter(exact, np.int64, len(exact)))
    order = np.lexsort((np.arange(len(lookup)), lookup))
    order = order[(is_exact | ~replaced)[order]]
    order = order[_first_of_each_location(joined, order)]
    lookup = lookup[order]
    starts = np.searchsorted(lookup, lookup, side="left")
    rank = np.arange(len(lookup)) - starts
    return joined.take(order[rank < collected.batch.max_count[lookup]])


def _schema(pa: Any) -> Any:
    text = pa.dictionary(pa.int32(), pa.string())
    return pa.schema(
        [
            ("lookup", pa.int64()),
            ("topic", text),
            ("queue_id", pa.int32()),
            ("offset", pa.int64()),
            ("size", pa.uint32()),
            ("timestamp", pa.int64()),
            ("file_id", text),
            ("state", text),
            ("node", text),
        ]
    )


def _table_of_file(pa: Any, found: FileMatches, hides: Callable[[FileHandle, str], bool]) -> Any:
    rows, lookups, handle = found.rows, found.lookups(), found.handle
    names = found.dictionaries.strings(TOPIC_DICTIONARY)
    topic = (rows["tag"] & np.uint32(TOPIC_MASK)).astype(np.int32)
    hidden = [number for number in np.unique(topic).tolist() if hides(handle, names[number])]
    if hidden:
        kept = ~np.isin(topic, hidden)
        rows, lookups, topic = rows[kept], lookups[kept], topic[kept]
    count = len(rows)

    def constant(text: str) -> Any:
        return pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), pa.array([text]))

    def field(name: str, kind: Any) -> Any:
        if name not in found.schema.field_names:
            return pa.nulls(count, kind)
        return pa.array(np.ascontiguousarray(rows[name])).cast(kind)

    columns = [
        pa.array(lookups),
        pa.DictionaryArray.from_arrays(topic, pa.array(names, pa.string())),
        field("queue_id", pa.int32()),
        field("offset", pa.int64()),
        field("size", pa.uint32()),
        pa.array(np.ascontiguousarray(rows["timestamp"])),
        constant(handle.file_id),
        constant(handle.state.value),
        constant(handle.node),
    ]
    return pa.Table.from_arrays(columns, schema=_schema(pa))


def _table_of_answer(pa: Any, number: int, answer: Answer) -> Any:
    names = ("topic", "queue_id", "offset", "size", "timestamp", "file_id", "state", "node")
    columns: dict[str, Any] = {name: [getattr(e, name) for e in answer.entries] for name in names}
    return pa.table({"lookup": [number] * len(answer.entries), **columns}, schema=_schema(pa))


def _first_of_each_location(joined: Any, order: np.ndarray) -> np.ndarray:
    """Return a mask over `order` (rows sorted by lookup): False where a location came before.

    Only message locations repeat here: rows of other schemas are kept, their files drop repeats.
    """
    lookup = joined.column("lookup").to_numpy()[order]
    if len(order) < 2 or not (lookup[1:] == lookup[:-1]).any():
        return np.ones(len(order), bool)
    topic = joined.column("topic").combine_chunks().indices.to_numpy(zero_copy_only=False)
    parts = [lookup, topic[order]]
    known = joined.column("offset").is_valid().to_numpy(zero_copy_only=False)[order]
    parts += [
        joined.column(name).fill_null(0).to_numpy()[order]
        for name in ("queue_id", "offset", "size")
    ]
    by_location = np.lexsort((np.arange(len(order)), *parts[::-1]))
    same = np.ones(len(order) - 1, bool)
    for part in parts:
        same &= part[by_location][1:] == part[by_location][:-1]
    keep = np.ones(len(order), bool)
    keep[by_location[1:][same & known[by_location[1:]]]] = False
    return keep
