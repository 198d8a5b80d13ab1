"""Who gets a node: the folder that had it last, an heir of a silent owner, or one that is told to take it."""

from __future__ import annotations

import shutil
from contextlib import suppress

import pytest

from tests.index_service.conftest import SMALL, offsets, put
from tests.index_service.opening.test_open import Away
from tierdex import Index
from tierdex.clock import SystemClock
from tierdex.errors import FencedError, NodeInUseError
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of

PATIENCE_S = 60.0


@pytest.fixture
def store(clock):
    return MemoryStore(clock=clock)


def test_second_folder_beside_a_living_owner_is_refused_and_the_owner_goes_on(
    make_index, store, tmp_path
):
    service = make_index(store=store, node="n")
    put(service, "A", 1)
    with pytest.raises(NodeInUseError, match="--take-over"):
        make_index(tmp_path / "laptop", store=store, node="n")
    put(service, "A", 2)
    service.flush("remote")
    assert offsets(service.query("orders", key="A")) == [2, 1]
    other = make_index(tmp_path / "laptop", store=store, node="m")  # what the refusal advised
    assert offsets(other.query("orders", key="A")) == [2, 1]


def test_an_owner_that_only_answers_stays_alive_for_days(make_index, store, clock, tmp_path):
    service = make_index(store=store, node="n")
    for _ in range(4 * 24):
        clock.advance(850)
        service.run_compaction()
    with pytest.raises(NodeInUseError):
        make_index(tmp_path / "b", store=store, node="n")


@pytest.mark.parametrize(
    ("settings", "signs"), [({}, 72), ({"live_interval": 600}, 7), ({"live_interval": 7200}, 4)]
)
def test_an_idle_owner_signs_every_live_interval_or_four_times_in_takeover_after(
    make_index, store, clock, settings, signs
):
    service = make_index(store=store, node="n", **settings)
    keys = [found.key for found in store.list("nodes/n/manifest/")]
    times = set()
    for _ in range(360):
        clock.advance(10)
        components_of(service).writing.sign.step()
        times.add(store.head("nodes/n/hint").modified_ms)
    assert len(times) == 1 + signs
    assert [found.key for found in store.list("nodes/n/manifest/")] == keys


def test_a_silent_owners_node_goes_to_the_next_that_asks(make_index, store, clock, tmp_path):
    first = make_index(store=store, node="n")
    put(first, "A", 1)
    first.flush("remote")
    clock.advance(3601)
    second = make_index(tmp_path / "b", store=store, node="n")
    put(second, "A", 2)
    second.flush("remote")
    assert offsets(second.query("orders", key="A")) == [2, 1]


def test_takeover_after_says_how_long_silence_is(make_index, store, clock, tmp_path):
    make_index(store=store, node="n")
    clock.advance(100)
    with pytest.raises(NodeInUseError, match="101 s after the last heartbeat"):
        make_index(tmp_path / "b", store=store, node="n", takeover_after=101)
    make_index(tmp_path / "c", store=store, node="n", takeover_after=100)
    make_index(tmp_path / "d", store=store, node="n", takeover_after=0)


def test_the_folder_that_had_the_node_opens_again_at_once_closed_or_not(
    make_index, store, tmp_path
):
    index = make_index(store=store, node="n")
    put(index, "A", 1, durability="disk")
    shutil.copytree(tmp_path / "data", tmp_path / "killed")  # as kill -9 leaves it
    killed = make_index(tmp_path / "killed", store=store)
    assert offsets(killed.query("orders", key="A")) == [1]
    killed.close()
    make_index(tmp_path / "killed", store=store)


def test_a_folder_without_its_note_has_to_be_told(make_index, store, tmp_path):
    index = make_index(store=store, node="n")
    put(index, "A", 1)  # else the node could be followed by any folder
    index.close()
    note = tmp_path / "data" / "OWNER"
    note.write_bytes(note.read_bytes()[:-3])
    with pytest.raises(NodeInUseError):
        make_index(store=store)
    make_index(store=store, takeover=True).close()
    make_index(store=store)


def test_a_fenced_folder_does_not_take_the_node_back_by_a_restart(make_index, store, tmp_path):
    first = make_index(store=store, node="n")
    second = make_index(tmp_path / "b", store=store, node="n", takeover=True)
    first.close()
    with pytest.raises(NodeInUseError):
        make_index(store=store)
    put(second, "A", 1)
    second.flush("remote")
    second.close()
    make_index(store=store, takeover=True)


def test_an_owner_that_has_nothing_to_publish_learns_that_it_was_fenced(
    make_index, store, tmp_path
):
    first = make_index(store=store, node="n")
    put(first, "A", 1, durability="os")
    make_index(tmp_path / "b", store=store, node="n", takeover=True)
    with suppress(FencedError):  # it learns it now
        first.run_compaction()
    with pytest.raises(FencedError, match="adopt") as caught:
        put(first, "A", 3)
    assert "node n was taken over" in str(caught.value)
    assert "--take-over" in str(caught.value)
    assert offsets(first.query("orders", key="A")) == [1]


def test_a_running_service_learns_it_within_a_refresh(tmp_path):
    store = MemoryStore()
    settings = {**SMALL, "node": "n", "background": True, "refresh_interval": 0.05}
    with (
        Index.open(tmp_path / "a", store=store, **settings) as first,
        Index.open(tmp_path / "b", store=store, **settings, takeover=True),
    ):
        clock = SystemClock()
        deadline = clock.monotonic() + PATIENCE_S
        while components_of(first).writing.compactor.fenced is None:
            assert clock.monotonic() < deadline
            clock.wait(components_of(first).writing.remote._never, 0.01)
        with pytest.raises(FencedError):
            put(first, "A", 1)


def test_a_claim_that_comes_late_does_not_take_over_either(make_index, tmp_path):
    store = Away()
    first = make_index(store=store, node="n")
    store.is_away = True
    late = make_index(tmp_path / "b", store=store, node="n")
    put(late, "A", 1, durability="os")
    store.is_away = False
    with pytest.raises(FencedError, match="another owner"):
        late.run_compaction()
    with pytest.raises(FencedError, match="--take-over"):
        put(late, "A", 2)
    put(first, "B", 1)
    first.flush("remote")
    late.close()
    adopted = make_index(tmp_path / "b", store=store, node="m", adopt=True)
    assert offsets(adopted.query("orders", key="A")) == [1]


def test_a_node_whose_owner_ended_with_everything_published_goes_on_in_an_empty_folder(
    make_index, store, tmp_path, caplog
):
    first = make_index(tmp_path / "first", store=store, node="n")
    put(first, "A", 1)
    first.roll()
    first.run_compaction()
    first.close()
    shutil.move(tmp_path / "first", tmp_path / "old")
    second = make_index(tmp_path / "second", store=store, node="n")
    put(second, "A", 2)
    assert offsets(second.query("orders", key="A")) == [2, 1]
    with pytest.raises(NodeInUseError, match="This folder had the node before"):
        make_index(tmp_path / "old", store=store, node="n")
    second.roll()
    second.run_compaction()
    second.close()
    caplog.clear()
    old = make_index(tmp_path / "old", store=store, node="n")  # closed in order, too
    assert offsets(old.query("orders", key="A")) == [2, 1]
    assert "this folder had the node before" in caplog.text


def test_a_node_whose_owner_left_entries_in_its_folder_is_not_followed(make_index, store, tmp_path):
    first = make_index(tmp_path / "first", store=store, node="n")
    put(first, "A", 1)
    first.close()
    with pytest.raises(NodeInUseError, match=r"ended .* not published"):
        make_index(tmp_path / "second", store=store, node="n")


def test_a_killed_owner_is_not_followed(make_index, store, tmp_path):
    first = make_index(tmp_path / "first", store=store, node="n")
    put(first, "A", 1)
    first.roll()
    first.run_compaction()
    with pytest.raises(NodeInUseError, match="heartbeat"):
        make_index(tmp_path / "second", store=store, node="n")
