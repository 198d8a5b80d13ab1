"""What an index of a table must answer, from the rows that the table's own library reads."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from tierdex.following.follow import follow
from tierdex.key_texts import key_texts

SMALL = {"slot_count": 4096, "item_capacity": 65536, "background": False, "node": "here"}
_PLAIN = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


def keys_of(rows, column):
    """Return how often each key must be found."""
    values = rows.column(column)
    array = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    array = array.cast(_PLAIN.get(array.type, array.type))
    return Counter(text for text in key_texts(array).to_pylist() if text)


def index_once(index, source, topic, column, **wanted):
    return follow(index, source, keys=[column], topic=topic, once=True, **wanted).run()


def faults(index, topic, expected, others=(), **asked):
    """Return the keys that are not found as often as they must be."""
    found = {}
    for key in expected.keys() | set(others):
        answer = index.query(topic, key=key, max_count=1000, **asked)
        if not answer.complete or len(answer.entries) != expected[key]:
            found[key] = (len(answer.entries), expected[key], answer.missing)
    return found
