"""What an answer promises of entries that other nodes acknowledged and did not publish yet.

`as_of`: everything acknowledged anywhere before was looked at; `unasked` names who holds more.
"""

from __future__ import annotations

import shutil

import pytest

from tests.index_service.conftest import offsets, put
from tierdex.errors import FencedError, IncompleteAnswerError, NodeInUseError
from tierdex.ids import SeededIds
from tierdex.lifecycle.manifests.manifest_log import ManifestLog
from tierdex.lifecycle.nodes.retiring import retire
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of


@pytest.fixture
def store(clock):
    return MemoryStore(clock=clock)


@pytest.fixture
def make_node(make_index, store, tmp_path):
    def make(name, folder=None, **settings):
        return make_index(tmp_path / (folder or name), store=store, node=name, **settings)

    return make


@pytest.fixture
def make_reader(make_index, store):
    return lambda **settings: make_index(None, store=store, **settings)


def publish(index):
    index.roll()
    index.run_compaction()


def ask(reader, key="A", **options):
    reader.refresh()
    return reader.query("orders", key=key, **options)


def node_of(index, name):
    index.refresh()
    return next(node for node in index.nodes() if node.node == name)


def look(index):
    """Let the owner look at what it has published, as its thread does every second."""
    components_of(index).writing.sign.step()


def retire_node(store, clock, name, seed=99):
    ids = SeededIds(seed)
    retire(ManifestLog(store, name, clock=clock, ids=ids, checkpoint_every=32), ids)


@pytest.mark.parametrize("level", ["received", "os", "disk"])
def test_not_found_is_of_before_the_entry_that_another_node_acknowledged(
    make_node, make_reader, clock, level
):
    node = make_node("a")
    clock.advance(30)
    look(node)
    acknowledged_ms = clock.now_ms()
    put(node, "A", 1, durability=level)
    reader = make_reader()
    for _ in range(50):
        clock.advance(60)
        look(node)
        answer = ask(reader)
        assert answer.entries == []
        assert answer.complete
        assert answer.as_of <= acknowledged_ms
        assert [(each.node, each.standing) for each in answer.unasked] == [("a", "live")]
    publish(node)
    clock.advance(1)
    answer = ask(reader)
    assert offsets(answer) == [1]
    assert answer.as_of > acknowledged_ms
    assert [each.holds_unpublished for each in answer.unasked] == [False]


def test_batches_and_tables_say_the_same_as_a_single_query(make_node, make_reader, clock):
    node = make_node("a")
    put(node, "A", 1)
    clock.advance(60)
    look(node)
    reader = make_reader()
    single = ask(reader)
    (one,) = reader.query_batch([{"topic": "orders", "key": "A"}])
    assert (one.as_of, one.unasked) == (single.as_of, single.unasked)
    import json

    import pyarrow as pa

    lookups = pa.table({"topic": ["orders"], "key": ["A"]})
    table = reader.query_batch_arrow(lookups)
    assert int(table.schema.metadata[b"as_of"]) == single.as_of
    assert json.loads(table.schema.metadata[b"unasked"]) == [
        each._asdict() for each in single.unasked
    ]


def test_an_idle_node_moves_as_of_by_its_live_records(make_node, make_reader, clock):
    node, reader = make_node("a", live_interval=60), make_reader()
    for _ in range(40):
        clock.advance(10)
        look(node)
        answer = ask(reader)
        assert clock.now_ms() - answer.as_of <= 60_000
        ((name, standing, through, holds, heard),) = answer.unasked  # since then it may hold some
        assert (name, standing, holds) == ("a", "live", False)
        assert answer.as_of == through <= heard


def test_a_node_opens_with_a_claim_that_no_entry_is_older_than(make_node, make_reader, clock):
    make_node("b")
    reader = make_reader()
    clock.advance(10)
    node = make_node("a")
    opened_ms = clock.now_ms()
    put(node, "A", 1)
    clock.advance(10)
    assert ask(reader).as_of <= opened_ms


def test_as_of_is_the_least_of_all_nodes_that_a_reader_covers(make_node, make_reader, clock):
    slow, quick = make_node("a"), make_node("b")
    put(slow, "A", 1)
    put(quick, "B", 1)
    first_ms = clock.now_ms()
    clock.advance(100)
    publish(quick)
    look(slow)
    assert ask(make_reader()).as_of <= first_ms
    assert ask(make_reader(read_nodes=["b"])).as_of == clock.now_ms()


def test_a_closed_node_with_nothing_left_is_of_the_time_of_reading(make_node, make_reader, clock):
    node = make_node("a")
    put(node, "A", 1)
    publish(node)
    node.close()
    reader = make_reader()
    clock.advance(5000)
    answer = ask(reader)
    assert answer.as_of == clock.now_ms()
    assert answer.unasked == ()
    assert node_of(reader, "a").standing == "closed"


def test_a_closed_node_that_left_entries_behind_holds_as_of_and_is_named(
    make_node, make_reader, clock
):
    node = make_node("a")
    put(node, "A", 1)
    acknowledged_ms = clock.now_ms()
    clock.advance(5)
    node.close()
    reader = make_reader()
    clock.advance(5000)
    answer = ask(reader)
    assert answer.as_of <= acknowledged_ms
    assert [(each.node, each.standing) for each in answer.unasked] == [("a", "closed")]
    publish(make_node("a"))
    clock.advance(1)
    assert ask(reader).as_of > acknowledged_ms


def test_a_node_that_says_nothing_for_three_intervals_is_silent_and_named(
    make_node, make_reader, clock
):
    node, reader = make_node("a", live_interval=60), make_reader()
    clock.advance(181)
    answer = ask(reader)
    assert [each.standing for each in answer.unasked] == ["silent"]
    assert node_of(reader, "a").lag_s == pytest.approx(181)
    look(node)
    clock.advance(60)  # who is silent is looked at once a minute
    assert [each.standing for each in ask(reader).unasked] == ["live"]


def test_the_owner_counts_as_of_the_reading_for_itself(make_node, clock):
    node = make_node("a")
    put(node, "A", 1)
    clock.advance(500)
    answer = ask(node)
    assert offsets(answer) == [1]
    assert answer.as_of == clock.now_ms()
    assert answer.unasked == ()


def test_a_reader_beside_the_owner_counts_as_of_its_look_at_the_folder(
    make_node, make_index, store, clock, tmp_path
):
    node = make_node("a")
    put(node, "A", 1, durability="os")
    clock.advance(500)
    beside = make_index(tmp_path / "a", store=store, read_only=True)
    answer = ask(beside)
    assert offsets(answer) == [1]
    assert answer.as_of == clock.now_ms()


def test_a_reader_of_a_folder_that_lost_the_node_does_not_answer_for_the_new_owner(
    make_node, make_index, store, clock, tmp_path
):
    make_node("a")
    heir = make_node("a", "heir", takeover=True)
    claimed_ms = clock.now_ms()
    put(heir, "A", 1)
    clock.advance(500)
    beside = make_index(tmp_path / "a", store=store, read_only=True)
    answer = ask(beside)
    assert answer.entries == []
    assert answer.as_of <= claimed_ms


def test_a_fenced_owner_does_not_answer_for_the_new_one(make_node, clock):
    first = make_node("a")
    heir = make_node("a", "heir", takeover=True)
    claimed_ms = clock.now_ms()
    put(heir, "A", 1)
    clock.advance(500)
    answer = ask(first)
    assert answer.entries == []
    assert answer.as_of <= claimed_ms


# -- a disk that does not come back ------------------------------------------------------------------


def lose_a_folder(make_node, clock):
    """Return when the entry was acknowledged that only the lost folder holds."""
    first = make_node("a")
    clock.advance(10)
    look(first)
    put(first, "A", 1, durability="os")
    acknowledged_ms = clock.now_ms()
    clock.advance(100)
    look(first)
    return acknowledged_ms


def test_a_takeover_without_the_folder_does_not_pass_over_what_is_gone(
    make_node, make_reader, store, clock
):
    acknowledged_ms = lose_a_folder(make_node, clock)
    heir = make_node("a", "heir", takeover=True)
    reader = make_reader()
    for offset in range(3):
        put(heir, "B", offset)
        clock.advance(100)
        publish(heir)
        answer = ask(reader)
        assert answer.as_of <= acknowledged_ms
        assert [each.node for each in answer.unasked] == ["a"]
        assert ask(heir).as_of <= acknowledged_ms  # the owner, too, lacks them
    heir.close()
    assert ask(reader).as_of <= acknowledged_ms
    retire_node(store, clock, "a")
    clock.advance(1)
    assert ask(reader).as_of == clock.now_ms()
    assert ask(reader).unasked == ()


def test_retire_beside_a_living_owner_gives_up_the_lost_ones_only(
    make_node, make_reader, store, clock
):
    acknowledged_ms = lose_a_folder(make_node, clock)
    heir = make_node("a", "heir", takeover=True)
    reader = make_reader()
    retire_node(store, clock, "a")
    put(heir, "B", 1)
    since_ms = clock.now_ms()
    clock.advance(50)
    look(heir)
    assert acknowledged_ms < ask(reader).as_of <= since_ms
    publish(heir)  # it was not fenced
    with pytest.raises(NodeInUseError, match=r"alive.*heartbeat is \d+ s old; .*after 180 s"):
        retire_node(store, clock, "a")


def test_the_folder_that_comes_back_publishes_what_it_held_back(
    make_node, make_reader, clock, tmp_path
):
    acknowledged_ms = lose_a_folder(make_node, clock)
    heir = make_node("a", "heir", takeover=True)
    put(heir, "B", 1)
    publish(heir)
    heir.close()
    reader = make_reader()
    assert ask(reader).as_of <= acknowledged_ms
    shutil.copytree(tmp_path / "a", tmp_path / "found")
    again = make_node("a", "found", takeover=True)
    assert ask(reader).as_of <= acknowledged_ms
    publish(again)
    clock.advance(1)
    answer = ask(reader)
    assert offsets(answer) == [1]
    assert answer.as_of > acknowledged_ms


def test_adopting_the_lost_folder_lets_the_node_go_on(make_node, make_reader, clock, tmp_path):
    acknowledged_ms = lose_a_folder(make_node, clock)
    heir = make_node("a", "heir", takeover=True)
    reader = make_reader()
    shutil.copytree(tmp_path / "a", tmp_path / "found")
    adopter = make_node("b", "found", adopt=True)
    assert ask(reader).as_of <= acknowledged_ms
    publish(adopter)
    clock.advance(60)
    look(heir)
    look(adopter)
    answer = ask(reader)
    assert offsets(answer) == [1]
    assert answer.as_of > acknowledged_ms
    assert not any(each.holds_unpublished for each in answer.unasked)


def test_a_retired_owner_that_lives_after_all_counts_again(make_node, make_reader, store, clock):
    node = make_node("a")
    put(node, "A", 1)
    acknowledged_ms = clock.now_ms()
    clock.advance(4000)  # stopped
    retire_node(store, clock, "a")
    reader = make_reader()
    assert ask(reader).as_of == clock.now_ms()
    assert node_of(reader, "a").standing == "retired"
    node.refresh()
    look(node)
    assert ask(reader).as_of <= acknowledged_ms


def test_a_retired_folder_that_comes_back_holds_as_of_again(make_node, make_reader, store, clock):
    node = make_node("a")
    put(node, "A", 1)
    acknowledged_ms = clock.now_ms()
    clock.advance(4000)
    node.close()
    retire_node(store, clock, "a")
    reader = make_reader()
    assert ask(reader).as_of == clock.now_ms()
    clock.advance(10)
    make_node("a")
    assert ask(reader).as_of <= acknowledged_ms


def test_an_owner_killed_and_opened_again_goes_on_where_it_was(
    make_node, make_reader, clock, tmp_path
):
    node = make_node("a")
    put(node, "A", 1, durability="disk")
    acknowledged_ms = clock.now_ms()
    clock.advance(20)
    look(node)
    shutil.copytree(tmp_path / "a", tmp_path / "killed")
    again = make_node("a", "killed")
    reader = make_reader()
    clock.advance(20)
    look(again)
    assert ask(reader).as_of <= acknowledged_ms
    publish(again)
    clock.advance(1)
    assert ask(reader).as_of > acknowledged_ms


# -- clocks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("minutes", [-90, -3, 3, 90])
def test_a_node_whose_clock_is_wrong_is_told_and_its_times_are_the_stores(
    make_index, make_reader, store, clock, tmp_path, minutes
):
    from tierdex.clock import ManualClock

    wrong = ManualClock(clock.now_ms() + minutes * 60_000)
    from tests.index_service.conftest import SMALL
    from tierdex import Index

    with Index.open(
        tmp_path / "a", store=store, node="a", clock=wrong, ids=SeededIds(5), **SMALL
    ) as node:
        look(node)
        acknowledged_ms = clock.now_ms()
        put(node, "A", 1)
        for each in (clock, wrong):
            each.advance(120)
        look(node)
        reader = make_reader()
        assert acknowledged_ms - 1000 <= ask(reader).as_of <= acknowledged_ms
        assert node_of(reader, "a").skew_s == pytest.approx(minutes * 60, abs=1)


@pytest.mark.parametrize("minutes", [-90, 90])
def test_a_clock_that_is_set_moves_no_time_of_what_was_acknowledged(
    make_index, make_reader, store, clock, tmp_path, minutes
):
    from tests.index_service.conftest import SMALL
    from tierdex import Index
    from tierdex.clock import ManualClock

    own = ManualClock(clock.now_ms())
    with Index.open(
        tmp_path / "a", store=store, node="a", clock=own, ids=SeededIds(5), **SMALL
    ) as node:
        reader = make_reader()
        published = 0
        for _ in range(4):
            own.step(minutes * 60_000)
            look(node)
            acknowledged_ms = clock.now_ms()
            put(node, "A", 1)
            for each in (clock, own):
                each.advance(70)
            look(node)
            answer = ask(reader)
            assert published <= answer.as_of <= acknowledged_ms
            publish(node)
            for each in (clock, own):
                each.advance(70)
            look(node)
            published = ask(reader).as_of
            assert acknowledged_ms < published <= clock.now_ms()


@pytest.mark.parametrize("minutes", [-90, 3, 90])
def test_a_reader_whose_clock_is_wrong_is_told_and_answers_in_the_stores_time(
    make_node, make_index, store, clock, tmp_path, minutes
):
    from tierdex.clock import ManualClock

    make_node("b").close()  # of the time of reading
    own = ManualClock(clock.now_ms() + minutes * 60_000)
    reader = make_index(None, store=store, clock=own)
    for _ in range(3):
        for each in (clock, own):
            each.advance(70)
        answer = ask(reader, fresh_within=5)
        assert answer.complete, answer.missing
        assert clock.now_ms() - 1000 <= answer.as_of <= clock.now_ms()
    assert reader.clock_skew() == pytest.approx(minutes * 60, abs=1)
    node = make_node("a")
    look(node)
    assert node_of(reader, "a").standing == "live"


def test_a_reader_that_does_not_know_the_stores_time_proves_no_freshness(
    make_index, clock, tmp_path
):
    class Timeless(MemoryStore):
        def time_ms(self):
            return None

    store = Timeless(clock=clock)
    make_index(tmp_path / "a", store=store, node="a")
    reader = make_index(None, store=store)
    answer = reader.query("orders", key="A", fresh_within=5)
    assert [name for name, _ in answer.missing] == ["clock"]


def test_a_manifest_counts_as_of_before_it_was_asked_for(clock):
    class Slow(MemoryStore):
        def get(self, key, position=None, length=None):
            try:
                return super().get(key, position, length)
            finally:
                clock.advance(2)  # the answer travels, and an owner commits meanwhile

    store = Slow(clock=clock)
    job = ManifestLog(store, "jobs", clock=clock, ids=SeededIds(7), checkpoint_every=32)
    for read in (job.load, job.refresh):
        asked_ms = clock.now_ms()
        read()
        assert job.read_ms == asked_ms


# -- as fresh as wanted ------------------------------------------------------------------------------


def test_an_answer_older_than_wanted_is_incomplete_and_names_the_nodes(
    make_node, make_reader, clock
):
    node = make_node("a")
    make_node("b").close()
    put(node, "A", 1)
    clock.advance(100)
    look(node)
    reader = make_reader()
    assert ask(reader, fresh_within=200).complete
    assert ask(reader, fresh_within=1e308).complete  # milliseconds of it are more than a float has
    answer = ask(reader, fresh_within=50)
    assert not answer.complete
    assert [name for name, _ in answer.missing] == ["node:a"]
    with pytest.raises(IncompleteAnswerError, match="node:a"):
        ask(reader, fresh_within=50, on_error="fail")
    (one,) = reader.query_batch([{"topic": "orders", "key": "A"}], fresh_within=50)
    assert one.missing == answer.missing
    assert ask(reader).complete
    strict = make_reader(fresh_within=50)
    assert not ask(strict).complete
    assert ask(strict, fresh_within=200).complete
    publish(node)
    assert ask(reader, fresh_within=50).complete


def test_a_wish_for_freshness_reads_the_manifests_again(make_node, make_reader, clock):
    node = make_node("a")
    put(node, "A", 1)
    reader = make_reader()
    clock.advance(30)
    publish(node)
    answer = reader.query("orders", key="A", fresh_within=1)
    assert answer.complete
    assert offsets(answer) == [1]


def test_a_node_of_a_program_of_before_is_unknown_and_outside_as_of(
    make_node, make_reader, store, clock
):
    node = make_node("old")
    put(node, "A", 1)
    publish(node)
    forget_what_was_said(store, "old")
    make_node("b").close()
    clock.advance(100)
    reader = make_reader()
    answer = ask(reader)
    assert offsets(answer) == [1]
    assert answer.as_of == clock.now_ms()
    assert [(each.node, each.standing) for each in answer.unasked] == [("old", "unknown")]
    assert node_of(reader, "old").published_through is None
    assert not ask(reader, fresh_within=1000).complete


def forget_what_was_said(store, node):
    """Make a node's manifest and hint what a program of before would have written."""
    from dataclasses import replace

    from tierdex.lifecycle.manifests.manifest import Hint
    from tierdex.lifecycle.manifests.manifest_codec import (
        decode_manifest,
        encode_commit,
        encode_hint,
    )
    from tierdex.lifecycle.paths import StorePaths

    paths = StorePaths(node)
    numbers = []
    for found in list(store.list(paths.manifest_prefix)):
        number = paths.parse_manifest(found.key)
        commit = decode_manifest(store.get(found.key), key="", node=node, number=number)
        store.put(found.key, encode_commit(replace(commit, published_through=None)))
        numbers.append(number)
    store.put(paths.hint, encode_hint(node, Hint(0, max(numbers))))


def test_a_store_of_before_opens_for_writing_and_says_what_it_has_published(
    make_node, make_reader, store, clock
):
    node = make_node("old")
    put(node, "A", 1)
    publish(node)
    acknowledged_ms = clock.now_ms()
    put(node, "A", 2, durability="disk")
    clock.advance(5)
    node.close()
    forget_what_was_said(store, "old")
    clock.advance(100)
    again = make_node("old")
    reader = make_reader()
    assert ask(reader).as_of <= acknowledged_ms
    publish(again)
    clock.advance(1)
    answer = ask(reader)
    assert offsets(answer) == [2, 1]
    assert answer.as_of > acknowledged_ms


def test_a_stale_owners_record_is_ignored(make_node, make_reader, store, clock):
    first = make_node("a")
    stale = store.get("nodes/a/hint")
    clock.advance(10)
    heir = make_node("a", "heir", takeover=True)
    put(heir, "A", 1)
    claimed_ms = clock.now_ms()
    clock.advance(10)
    store.put("nodes/a/hint", stale)
    assert ask(make_reader()).as_of <= claimed_ms
    with pytest.raises(FencedError):
        first.refresh() or components_of(first).writing.claim.get().sign()
