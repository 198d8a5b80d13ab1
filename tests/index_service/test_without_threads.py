"""An index without threads refreshes its view where a question finds it too old."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.index_service.conftest import offsets, put
from tierdex.clock import ManualClock
from tierdex.index_service.journey import find_journey
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of


class TickingClock(ManualClock):
    """A millisecond passes between two looks, as between the begin and the end of a query."""

    def now_ms(self):
        self.advance(0.001)
        return super().now_ms()


def arrow(index):
    table = index.query_batch_arrow(
        pa.table({"topic": ["orders"], "key": ["A"]}), on_error="partial"
    )
    return b"missing" not in (table.schema.metadata or {})


ASKED = {
    "query": lambda index: index.query("orders", key="A").complete,
    "explained": lambda index: index.query("orders", key="A", explain=True).complete,
    "batch": lambda index: index.query_batch([{"topic": "orders", "key": "A"}])[0].complete,
    "arrow": arrow,
    "histogram": lambda index: index.histogram("orders", key="A").complete,
    "journey": lambda index: find_journey(index, "A").complete,
    "topics": lambda index: not index.known_topics().missing,
}


@pytest.mark.parametrize("how", ASKED)
@pytest.mark.parametrize("read_only", [False, True])
def test_an_index_that_is_asked_in_a_loop_is_never_too_old_for_its_own_node(
    make_index, how, read_only
):
    """Its writer was killed; nothing fails, and no answer misses a manifest that one look brings."""
    killed = make_index(node="n")
    put(killed, "A", 1, durability="os")
    components_of(killed).writing.lock.release()  # as the kernel does when a process is gone
    clock = TickingClock()
    index = make_index(clock=clock, read_only=read_only, max_staleness=0.2, refresh_interval=0.1)
    for _ in range(1500):  # several times `max_staleness`
        assert ASKED[how](index)


def test_a_question_sees_files_and_topics_that_came_since_the_view_was_read(
    make_index, clock, tmp_path
):
    store = MemoryStore(clock=clock)
    writer = make_index(store=store, node="a")
    reader = make_index(None, store=store)
    put(writer, "A", 1)
    writer.roll()
    writer.run_compaction()
    assert reader.topics() == []
    clock.advance(61)
    assert reader.topics() == ["orders"]
    assert offsets(reader.query("orders", key="A")) == [1]
