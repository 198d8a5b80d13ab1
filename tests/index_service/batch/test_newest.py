"""The fast path of the newest entries gives what the general path gives, or leaves it to it."""

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
from tierdex.index_service.batch.lookup_columns import lookups_of_table, plain_lookups_of
from tierdex.index_service.batch.newest import newest_table
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
)
def test_newest_entries_equal_those_of_the_general_path(tmp_path_factory, steps, asked, retention):
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
                    put(index, key, offset, topic=topic)
            clock.advance(2)
        index.flush("os")
        index.refresh()
        published = any(file.state == "uploaded" for file in index.files())
        executor = components_of(index).queries
        table = pa.table({"topic": ["a"] * len(asked), "key": asked})
        lookups = lookups_of_table(executor.settings, table, 1)
        expected = table_of(executor.run(lookups))
        assert index.query_batch_arrow(table).to_pylist() == expected.to_pylist()
        if "é" not in asked:
            plain = plain_lookups_of(executor.settings, table, 1)
            for at_once in (False, True):
                newest = newest_table(executor, plain, at_once=at_once)
                # An entry that is about to fade ends the freshness of the view.
                assert newest is not None or published or retention is not None
                assert newest is None or newest.to_pylist() == expected.to_pylist()
                general = executor.run_at_once(lookups)
                assert general is None or table_of(general).equals(expected)
