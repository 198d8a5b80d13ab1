"""A null topic beside a message ID means any topic in a table, as at every other door."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.index_service.conftest import put
from tierdex.errors import InvalidRequestError


def test_a_null_topic_beside_a_message_id_means_any_topic(index):
    for offset, topic in enumerate(("a", "b", "c")):
        put(index, "K", offset, topic=topic, message_id=f"m{offset % 2}")
    ids, topics = ["m0", "m0", "m0", "m1", "m1"], [None, "a", "b", None, "c"]
    expected = [
        [entry.offset for entry in index.query(topic, message_id=text, max_count=9).entries]
        for text, topic in zip(ids, topics, strict=True)
    ]
    assert expected == [[2, 0], [0], [], [1], []]
    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        table = pa.table({"topic": pa.array(topics, pa.string()).cast(kind), "message_id": ids})
        found = index.query_batch_arrow(table, max_count=9).to_pylist()
        rows = [[row["offset"] for row in found if row["lookup"] == n] for n in range(len(ids))]
        assert rows == expected
    for nothing in (pa.array([None, None], pa.string()), pa.nulls(2)):
        table = pa.table({"topic": nothing, "message_id": ["m0", "m1"]})
        assert index.query_batch_arrow(table, max_count=9).num_rows == 3


def test_a_null_topic_beside_a_key_is_refused_by_row(index):
    table = pa.table({"topic": ["a", None], "key": ["K", "K"]})
    with pytest.raises(InvalidRequestError) as caught:
        index.query_batch_arrow(table)
    assert caught.value.field == "lookups[1].topic"


@pytest.mark.parametrize("given", [[{"topic": "a", "key": "K"}], None, "a", {"topic": ["a"]}])
def test_what_is_no_table_is_refused_with_the_call_that_takes_it(index, given):
    with pytest.raises(InvalidRequestError, match="`query_batch` takes a list") as caught:
        index.query_batch_arrow(given)
    assert caught.value.field == "lookups"
