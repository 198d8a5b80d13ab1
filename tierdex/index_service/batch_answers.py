"""From the matches of a batch to answers in Python.

Matches come newest file first; within a lookup that is the order of the entries. Locations that a
lookup has seen are dropped, then what is beyond its `max_count`.
Depends on collected, answer, cursor, rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tierdex.index_service.answer import Answer
from tierdex.index_service.cursor import Cursor, fingerprint_location
from tierdex.index_service.rows import RowDecoder, make_entry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tierdex.index_service.answer import Missing
    from tierdex.index_service.collected import Collected
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
