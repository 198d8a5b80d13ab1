"""The table that local files give is what the general path gives, or is left to it."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.index_service.conftest import SMALL, put
from tierdex import Index
from tierdex.clock import ManualClock
from tierdex.errors import TierdexError
from tierdex.ids import SeededIds
from tierdex.index_service.batch.arrow_table import table_of
from tierdex.index_service.batch.local_table import local_table
from tierdex.index_service.batch.lookup_columns import lookups_of_table, plain_lookups_of
from tierdex.index_service.query.answers import answers_of
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of
from tierdex.testing.faulty_store import FaultyStore

KEYS = [f"k{number}" for number in range(12)]
ENTRY = st.tuples(st.sampled_from("ab"), st.sampled_from(KEYS), st.integers(0, 4))
STEP = st.one_of(
    st.lists(ENTRY, min_size=1, max_size=40), st.sampled_from(["roll", "compact", "publish"])
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=st.lists(STEP, min_size=1, max_size=8),
    asked=st.lists(st.sampled_from([*KEYS, "absent", "é"]), min_size=1, max_size=40),
    retention=st.sampled_from([None, 5.0]),
    max_count=st.sampled_from([1, 2, 64]),
    by_id=st.sampled_from([None, "a", "any"]),
)
def test_its_table_equals_that_of_the_general_path(
    tmp_path_factory, steps, asked, retention, max_count, by_id
):
    clock, ids = ManualClock(), SeededIds(1)
    store = FaultyStore(MemoryStore(), ids=ids, clock=clock)
    more = {} if retention is None else {"topic_retention": {"a": retention}}
    folder, published = tmp_path_factory.mktemp("newest"), False
    with Index.open(folder, store=store, clock=clock, ids=ids, **SMALL, **more) as index:
        for step in steps:
            if step == "roll":
                index.roll()
            elif step == "publish":
                index.run_compaction()
            elif step == "compact":
                try:
                    with store.outage():
                        index.run_compaction()
                except TierdexError:
                    pass  # what can be done here was done
            else:
                for topic, key, offset in step:
                    put(index, key, offset, topic=topic, message_id=key)
            clock.advance(2)
        index.flush("os")
        index.refresh()
        published = any(file.state == "uploaded" for file in index.files())
        executor = components_of(index).queries
        columns = {"key" if by_id is None else "message_id": asked}
        if by_id != "any":
            columns["topic"] = ["a"] * len(asked)
        table = pa.table(columns)
        lookups = lookups_of_table(executor.settings, table, max_count)
        expected = table_of(executor.run(lookups)).to_pylist()
        assert index.query_batch_arrow(table, max_count=max_count).to_pylist() == expected
        name = {} if by_id == "any" else {"topic": "a"}
        for number, text in enumerate(asked):
            name["key" if by_id is None else "message_id"] = text
            single = index.query(**name, max_count=max_count).entries
            alone = lookups_of_table(executor.settings, table.slice(number, 1), max_count)
            assert answers_of(executor.run(alone))[0].entries == single
            own = [row for row in expected if row["lookup"] == number]
            assert [entry.offset for entry in single] == [row["offset"] for row in own]
            assert [entry.topic for entry in single] == [row["topic"] for row in own]
            assert [entry.file_id for entry in single] == [row["file_id"] for row in own]
        plain = plain_lookups_of(executor.settings, table, max_count)
        for at_once in (False, True):
            for each in (lookups, plain):
                if each is None or (each is plain and "é" in asked):
                    continue
                found = local_table(executor, each, at_once=at_once)
                assert found is not None or published
                assert found is None or found.to_pylist() == expected
