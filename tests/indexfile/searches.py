"""Searches of index files to their end, in pieces, whatever the form and wherever the file lies."""

from __future__ import annotations

import numpy as np

from tierdex.indexfile.chained.reader import ChainedReader
from tierdex.indexfile.column_search import search_file
from tierdex.indexfile.compacted.page_groups import group_pages
from tierdex.indexfile.lookup import DONE, NO_LIMIT, TIME_MAX, TIME_MIN, Search
from tierdex.indexfile.schema import join_rows


def find_all(
    file, lookup, *, begin=TIME_MIN, end=TIME_MAX, limit=16, most_items=NO_LIMIT, read=None
):
    """Return all rows of one lookup, found `limit` rows at a time; `read` brings pages of a file."""
    tag = file.tag_of(lookup.topic, lookup.kind)
    place, pieces, steps = None, [np.zeros(0, file.schema.dtype)], 0
    while place != DONE:
        wanted = Search.of(
            [lookup.key_hash], tag, begin=begin, end=end, limit=limit, places=place,
            most_items=most_items,
        )  # fmt: skip
        if read is not None:
            found = find_fetched(file, read, wanted)
        elif isinstance(file, ChainedReader):
            found = search_file(file, wanted)
        else:
            found = file.search(wanted)
        assert len(found.rows) <= limit
        pieces.append(found.rows)
        place, steps = int(found.following[0]), steps + 1
        assert steps < 100_000
    return join_rows(pieces)


def find_fetched(file, read, wanted, most_bytes=9000):
    """Return what one lookup finds in the pages that it must read next, fetched by `read`."""
    from tierdex.indexfile.lookup import Found

    if not file.may_contain(int(wanted.hashes[0])):
        return Found.nothing(1, file.schema.dtype)
    (group,) = group_pages(file.plan_pages(wanted, most_bytes)) or [None]
    if group is None or group[1] < group[0]:
        return Found.nothing(1, file.schema.dtype)
    span = file.span(group[0], group[1] - group[0] + 1)
    return file.search_span(span, read(span.position, span.length), wanted)
