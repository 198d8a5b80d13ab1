"""From matches to answers in Python: entries, cursors, what is missing.

Matches come newest file first; within a lookup that is the order of the entries. Entries are made
column by column, a thousand in the time of a few calls. Depends on paging, answer, readers and
requests.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np

from tierdex.index_service.answer import Answer, identity_of
from tierdex.index_service.query.paging import CursorMaker
from tierdex.index_service.readers.entries import entries_of
from tierdex.index_service.requests.lookups import Lookups

if TYPE_CHECKING:
    from tierdex.index_service.answer import Entry, Missing
    from tierdex.index_service.peers.peer_round import PeerRound
    from tierdex.index_service.query.executor import LookupExecutor, Result
    from tierdex.index_service.query.matches import Matches
    from tierdex.index_service.query.memory_search import PartialLookup
    from tierdex.index_service.requests.query import QueryRequest


def answer_query(
    executor: LookupExecutor,
    request: QueryRequest,
    begun: PartialLookup | None = None,
    *,
    explain: bool,
    fail: bool,
    peer_round: PeerRound | None = None,
    of_table: bool = False,
) -> Answer:
    """Answer a single query, going on from what memory told of it.

    Raises IncompleteAnswerError when `fail` and a file is missing.
    """
    result = executor.run(
        Lookups.of([request]), request.cursor, begun=begun, explain=explain, peer_round=peer_round,
        of_table=of_table,
    )  # fmt: skip
    if fail:
        result.refuse_incomplete()
    (answer,) = answers_of(result)
    executor.note_answered(result)
    if explain:
        answer.explain = result.trace.explain(executor.settings, result.manifest_requests)
    return answer


def answers_of(result: Result) -> list[Answer]:
    """Return an answer a lookup, in order."""
    matches, everywhere = result.matches, result.everywhere
    entries = _entries_by_lookup(matches)
    missing: list[list[Missing]] = [[] for _ in entries]
    if everywhere:
        missing = [list(everywhere) for _ in entries]
    common = repeat(not everywhere), missing, repeat(None), repeat(result.as_of)
    answers = list(map(Answer, entries, *common))
    for row in matches.missing:
        for number in row.lookups.tolist():
            answers[number].missing.append(row.missing)
            answers[number].complete = False
    full = np.flatnonzero(matches.counts >= matches.lookups.max_count).tolist()
    if full:
        last = _last_places(matches)
        cursors = CursorMaker(result.files)
        for number in full:
            own = answers[number].entries
            answers[number].next_cursor = cursors.after(
                matches.lookups.digest(number),
                own[-1].file_id,
                int(matches.lookups.hashes[number]),
                list(map(identity_of, own)),
                int(last[number]),
                result.cursor,
            )
    return answers


def _entries_by_lookup(matches: Matches) -> list[list[Entry]]:
    """Return each lookup's entries, newest first."""
    count, files = matches.lookups.count, matches.files
    each = [entries_of(f.handle, f.schema, f.dictionaries, f.rows, f.hash_function) for f in files]
    if len(each) == 1 and count == 1:
        return each
    if len(each) == 1 and np.array_equal(files[0].numbers, np.arange(count)):
        return [[entry] for entry in each[0]]
    entries: list[list[Entry]] = [[] for _ in range(count)]
    for found, made in zip(files, each, strict=True):
        for number, entry in zip(found.numbers.tolist(), made, strict=True):
            entries[number].append(entry)
    return entries


def _last_places(matches: Matches) -> np.ndarray:
    """Return where each lookup's last entry lies (i8)."""
    places = np.zeros(matches.lookups.count, np.int64)
    for found in matches.files:
        places[found.numbers] = found.places  # of rows of one lookup the last one stays
    return places
