"""Which unit comes first, what a failure holds up, and what it does not."""

from __future__ import annotations

from functools import partial

import pytest

from tests.compactor_steps import step as step_compactor
from tests.index_service.conftest import offsets, put
from tierdex.errors import CorruptFileError, FencedError, StoreUnavailableError
from tierdex.testing.components import components_of
from tierdex.testing.faulty_store import Fault, FaultyStore


def fill(index, count):
    for offset in range(count):
        put(index, "A", offset)
        index.roll()


def states(index):
    """Return the states, oldest file first."""
    return [file.state for file in reversed(index.files())]


def states_after_each_step(index, steps):
    seen = []
    for _ in range(steps):
        assert step_compactor(components_of(index).writing.compactor) == 0.0
        seen.append(states(index))
    return seen


def test_files_are_sealed_at_once_and_leave_one_by_one_oldest_first(make_index, store):
    index = make_index(store=store)
    fill(index, 2)
    assert states_after_each_step(index, 6) == [
        ["sealed", "unsealed"],
        ["sealed", "sealed"],
        ["compacted", "sealed"],
        ["uploaded", "sealed"],
        ["uploaded", "compacted"],
        ["uploaded", "uploaded"],
    ]


def test_a_store_that_came_back_is_asked_before_all_local_work_is_done(make_index, store, clock):
    index = make_index(store=store)
    fill(index, 3)
    store.broken = {"upload"}
    states_after_each_step(index, 5)  # three seals, a compaction; a failed upload, a compaction
    assert states(index) == ["compacted", "compacted", "sealed"]
    store.broken = set()
    clock.advance(60.0)
    assert states_after_each_step(index, 1) == [["uploaded", "compacted", "sealed"]]


def test_run_compaction_does_all_local_work_before_a_store_that_is_away_stops_it(make_index, store):
    index = make_index(store=store)
    fill(index, 3)
    store.broken = {"upload"}
    with pytest.raises(StoreUnavailableError):
        index.run_compaction()
    assert states(index) == ["compacted", "compacted", "compacted"]


def test_files_leave_while_new_ones_keep_coming(make_index, store):
    index = make_index(store=store)
    fill(index, 2)
    for _ in range(9):
        put(index, "A", 9)
        index.roll()  # one file more with each three steps: seal, compact, publish
        states_after_each_step(index, 3)
    assert states(index).count("uploaded") >= 7


def test_a_store_that_is_away_holds_up_publishing_only(make_index, store, clock):
    index = make_index(store=store)
    fill(index, 2)
    store.broken = {"upload"}
    step = partial(step_compactor, components_of(index).writing.compactor)
    for _ in range(10):
        step()
    assert states(index) == ["compacted", "compacted"]
    status = index.compaction_status()
    assert status["backlog_files"] == 2
    assert status["last_error"]["job"] == "publish"
    attempts = sum(verb == "upload" for verb, _ in store.calls)
    assert attempts == 1  # the backoff holds while no time passes
    pause = step()
    assert 0 < pause <= 0.2
    store.broken = set()
    clock.advance(pause + 0.001)
    for _ in range(4):
        step()
    assert states(index) == ["uploaded", "uploaded"]


def test_files_are_published_in_order_of_their_numbers(make_index, store, monkeypatch):
    index = make_index(store=store)
    fill(index, 3)
    index.run_compaction()
    uploads = [key for verb, key in store.calls if verb == "upload"]
    rows = (
        components_of(index).read_view.manifests.state_of(components_of(index).settings.node).files
    )
    by_key = {row.object_key: row.number for row in rows.values()}
    assert [by_key[key] for key in uploads] == sorted(by_key.values())


def damage(path):
    data = bytearray(path.read_bytes())
    data[8192:8232] = b"\xff" * 40
    path.write_bytes(data)


def test_a_damaged_file_is_quarantined_and_the_others_go_on(make_index, store, tmp_path):
    index = make_index(store=store)
    fill(index, 3)
    step = partial(step_compactor, components_of(index).writing.compactor)
    step()
    damage(*(tmp_path / "data" / "sealed").iterdir())
    index.run_compaction()
    assert states(index)[-1:] + states(index)[:-1] == ["uploaded", "quarantine", "uploaded"]
    answer = index.query("orders", key="A")
    assert (offsets(answer), answer.complete) == ([2, 1], False)


def test_a_damaged_manifest_quarantines_no_file(make_index, store, clock):
    index = make_index(store=store)
    fill(index, 1)
    node = components_of(index).settings.node
    newest = max(found.key for found in store.list(f"nodes/{node}/manifest/"))
    following = f"{newest[:-20]}{int(newest[-20:]) + 1:020d}"
    store.put(following, b"nonsense")
    step = partial(step_compactor, components_of(index).writing.compactor)
    for _ in range(5):
        step()
        clock.advance(1)
    assert states(index) == ["compacted"]
    assert offsets(index.query("orders", key="A")) == [0]
    assert index.compaction_status()["last_error"]["job"] == "publish"


@pytest.fixture
def commit_to_read_back(make_index, store):
    """An index whose own commit took effect unanswered: it is read before anything is built upon it."""
    faulty = FaultyStore(store)
    index = make_index(store=faulty)
    fill(index, 1)
    faulty.fail("put_if_absent", fault=Fault.FAIL_AFTER)
    with pytest.raises(StoreUnavailableError):
        index.run_compaction()
    return index, faulty


@pytest.mark.parametrize("fault", [Fault.ALTERED_BODY, Fault.SHORT_BODY])
def test_a_manifest_altered_on_its_way_is_told_and_read_again_later(
    commit_to_read_back, store, clock, fault
):
    index, faulty = commit_to_read_back
    step = partial(step_compactor, components_of(index).writing.compactor)
    faulty.fail("get", fault=fault, count=2)
    assert 0 < step() <= 1  # a pause, and no end
    assert states(index) == ["compacted"]
    last_error = index.compaction_status()["last_error"]
    assert (last_error["job"], "/manifest/" in last_error["error"]) == ("publish", True)
    clock.advance(1)
    step()
    assert states(index) == ["uploaded"]
    assert len(store.objects()) == 1


def test_run_all_raises_what_is_wrong_with_a_manifest(commit_to_read_back, store):
    index, faulty = commit_to_read_back
    faulty.fail("get", fault=Fault.ALTERED_BODY, count=4)  # two for the refresh that goes before
    with pytest.raises(CorruptFileError, match="/manifest/"):
        index.run_compaction()
    index.run_compaction()
    assert states(index) == ["uploaded"]
    assert len(store.objects()) == 1


def test_what_does_not_verify_after_writing_is_written_again(make_index, store, monkeypatch):
    from tierdex.compactor import rewrite

    index = make_index(store=store)
    fill(index, 1)
    sound = rewrite.check_file
    monkeypatch.setattr(rewrite, "check_file", lambda filesystem, path: ["page 0 is bad"])
    step = partial(step_compactor, components_of(index).writing.compactor)
    step()
    step()
    assert states(index) == ["sealed"]
    monkeypatch.setattr(rewrite, "check_file", sound)
    index.run_compaction()
    assert states(index) == ["uploaded"]


def test_run_all_raises_the_first_error_and_can_be_called_again(make_index, store):
    index = make_index(store=store)
    fill(index, 2)
    store.broken = {"put_if_absent"}
    with pytest.raises(StoreUnavailableError):
        index.run_compaction()
    store.broken = set()
    index.run_compaction()
    assert states(index) == ["uploaded", "uploaded"]
    assert len(store.objects()) >= 2
    assert index.run_compaction() == 0


def test_a_fenced_owner_compacts_and_publishes_nothing(make_index, store, tmp_path):
    first = make_index(tmp_path / "a", store=store, node="n")
    put(first, "A", 0)
    first.roll()
    first.run_compaction()
    put(first, "A", 1)
    second = make_index(tmp_path / "b", store=store, node="n", takeover=True)
    first.roll()
    with pytest.raises(FencedError):
        first.run_compaction()
    store.calls.clear()
    step = partial(step_compactor, components_of(first).writing.compactor)
    for _ in range(5):
        step()
    with pytest.raises(FencedError):
        first.expire(before=1 << 60)
    assert not [call for call in store.calls if call[0] in {"upload", "delete", "put_if_absent"}]
    assert states(first) == ["uploaded", "compacted"]
    assert offsets(first.query("orders", key="A")) == [1, 0]
    assert offsets(second.query("orders", key="A")) == [0]


def test_a_stopped_compactor_begins_no_unit(make_index, store):
    index = make_index(store=store)
    fill(index, 1)
    compactor = components_of(index).writing.compactor
    assert compactor.stop(1)
    assert step_compactor(compactor) > 0
    assert compactor.run_all() == 0
    assert states(index) == ["unsealed"]


def test_an_idle_index_sends_few_requests(make_index, store, clock):
    index = make_index(store=store)
    fill(index, 1)
    index.run_compaction()
    step = partial(step_compactor, components_of(index).writing.compactor)
    step()
    store.calls.clear()
    for _ in range(20):
        clock.advance(1)
        step()
    assert store.calls == []
