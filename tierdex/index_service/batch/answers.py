"""From the matches of a batch to answers in Python.

Matches come newest file first; within a lookup that is the order of the entries. Repeats are dropped,
then what is beyond its `max_count`. Most lookups have one match, and
nothing of that to be done: entries are made column by column, a thousand in the time of a few calls.
Depends on collected, answer, paging, repeats, rows.
"""

from __future__ import annotations

from itertools import islice, repeat
from typing import TYPE_CHECKING

import numpy as np

from tierdex.index_service.answer import Answer
from tierdex.index_service.query.paging import CursorMaker
from tierdex.index_service.readers.entries import entries_of, entries_of_newest
from tierdex.index_service.requests.repeats import without_repeats

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tierdex.index_service.answer import Entry, Missing
    from tierdex.index_service.batch.matches import Collected, FileMatches
    from tierdex.index_service.batch.uniform import Newest
    from tierdex.index_service.requests.query import QueryRequest
    from tierdex.lifecycle.file_handle import FileHandle


def answers_of(
    request_of: Callable[[int], QueryRequest],
    collected: Collected,
    everywhere: Sequence[Missing],
    hides: Callable[[FileHandle, str], bool],
    as_of: int,
) -> list[Answer]:
    """Return an answer a lookup; `everywhere` is missing from all of them."""
    batch = collected.batch
    entries = _entries_by_lookup(collected, hides)
    complete = not everywhere
    missing: list[list[Missing]] = [list(everywhere) for _ in entries]
    answers = list(map(Answer, entries, repeat(complete), missing, repeat(None), repeat(as_of)))
    for row in collected.missing:
        for number in row.lookups.tolist():
            answers[number].missing.append(row.missing)
            answers[number].complete = False
    wanted = batch.max_count
    cursors = CursorMaker(collected.files)
    for number in np.flatnonzero((collected.counts > 1) | (collected.counts >= wanted)).tolist():
        answer, count = answers[number], int(wanted[number])
        first = without_repeats(answer.entries)
        answer.entries = list(first.values())[:count]
        if len(answer.entries) == count:
            digest, file_id = request_of(number).digest(), answer.entries[-1].file_id
            answer.next_cursor = cursors.after(digest, file_id, islice(first, count))
    return answers


def answers_of_newest(
    topic: str, newest: Newest, everywhere: Sequence[Missing], as_of: int
) -> list[Answer]:
    """Return an answer a key of `topic`, as if the entry in the columns were its only one."""
    columns = newest.columns
    found: np.ndarray | None = None if columns.is_complete else np.flatnonzero(columns.found)
    made = entries_of_newest(topic, columns, newest.places, found)
    if found is None:
        entries = [[entry] for entry in made]
    else:
        entries = [[] for _ in range(columns.count)]
        for number, entry in zip(found.tolist(), made, strict=True):
            entries[number].append(entry)
    missing = [list(everywhere) for _ in entries] if everywhere else [[] for _ in entries]
    complete = not everywhere
    return list(map(Answer, entries, repeat(complete), missing, repeat(None), repeat(as_of)))


def _entries_by_lookup(
    collected: Collected, hides: Callable[[FileHandle, str], bool]
) -> list[list[Entry]]:
    """Return each lookup's entries, newest first, hidden ones left out."""
    count, matches = collected.batch.count, collected.matches
    each = [entries_of(m.handle, m.schema, m.dictionaries, m.rows) for m in matches]
    hidden = [_hidden_topics(*pair, hides) for pair in zip(matches, each, strict=True)]
    if len(each) == 1 and len(each[0]) == count and matches[0].is_one_each and not hidden[0]:
        return [[entry] for entry in each[0]]
    entries: list[list[Entry]] = [[] for _ in range(count)]
    for found, made, left_out in zip(matches, each, hidden, strict=True):
        for number, entry in zip(found.lookups().tolist(), made, strict=True):
            if not left_out or entry.topic not in left_out:
                entries[number].append(entry)
    return entries


def _hidden_topics(
    found: FileMatches, entries: list[Entry], hides: Callable[[FileHandle, str], bool]
) -> set[str]:
    if found.handle.sealed_at_ms is None:  # retention counts from the sealing
        return set()
    return {topic for topic in {entry.topic for entry in entries} if hides(found.handle, topic)}
