"""A node whose owner was killed never looks like one to which nothing was sent."""

from __future__ import annotations

import pytest

from tests.index_service.conftest import put
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of


def test_a_killed_node_is_named_from_its_last_record_on_and_as_of_stands_still(
    make_index, tmp_path, clock
):
    """Its last record is of before its entries, and says that it holds nothing unpublished."""
    store = MemoryStore(clock=clock)
    node = make_index(tmp_path / "a", store=store, node="a", live_interval=60)
    clock.advance(50)
    components_of(node).writing.sign.step()
    reader, last_ms = make_index(None, store=store), clock.now_ms()
    clock.advance(5)
    acknowledged_ms = clock.now_ms()
    for offset in range(500):
        put(node, "A", offset)  # and is killed: it writes no record any more
    standings = []
    for _ in range(40):
        reader.refresh()
        answer = reader.query("orders", key="A")
        assert (answer.entries, answer.complete) == ([], True)
        ((name, standing, through, holds, heard),) = answer.unasked
        assert (name, through, holds, heard) == ("a", last_ms, False, last_ms)
        assert answer.as_of == last_ms < acknowledged_ms
        standings.append(standing)
        told = next(node for node in reader.nodes() if node.node == "a")
        assert (told.standing, told.heard_at, told.holds_unpublished) == (standing, last_ms, False)
        clock.advance(5)
    at_s = [5 + 5 * number for number in range(40)]
    assert standings == [
        "live" if s <= 60 else "late" if s <= 180 else "silent" for s in at_s
    ]  # the console is amber from `late` on


@pytest.mark.parametrize("seconds", [3, 6, 11, 14])
def test_a_living_node_is_live_to_whoever_looks_seldom(make_index, tmp_path, clock, seconds):
    store = MemoryStore(clock=clock)
    node = make_index(tmp_path / "a", store=store, node="a", live_interval=5)
    reader = make_index(None, store=store)
    for second in range(200):
        clock.advance(1)
        components_of(node).writing.sign.step()
        if second % seconds == 0:
            reader.refresh()
            answer = reader.query("orders", key="A")
            assert [each.standing for each in answer.unasked] == ["live"]
