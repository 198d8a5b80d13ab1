"""Files go when their longest-kept topic allows; entries are hidden when their own topic does."""

from __future__ import annotations

from tests.compactor_steps import step
from tests.index_service.conftest import offsets, put
from tierdex.testing.components import components_of


def publish(index, offset, **more):
    put(index, "A", offset, **more)
    index.roll()
    index.run_compaction()


def test_a_file_expires_by_age_since_it_was_sealed_not_by_its_entries_times(make_index, clock):
    index = make_index(retention=100.0)
    publish(index, 1, timestamp=5)
    publish(index, 2, timestamp=1 << 60)
    clock.advance(99)
    index.run_compaction()
    assert len(index.files()) == 2
    clock.advance(2)
    index.run_compaction()
    assert index.files() == []


def test_entries_of_a_short_lived_topic_are_hidden_in_every_state(make_index, clock):
    index = make_index(topic_retention={"orders": 10.0})
    compactor = components_of(index).writing.compactor
    put(index, "A", 1)
    put(index, "A", 2, topic="kept")
    clock.advance(20)
    assert offsets(index.query("orders", key="A")) == [1]  # an unsealed file has no age
    index.roll()
    for state in ("sealed", "compacted", "uploaded"):
        step(compactor)
        assert [file.state for file in index.files()] == [state]
        clock.advance(9 if state == "sealed" else 0)
        assert offsets(index.query("orders", key="A")) == [1]
    clock.advance(1)
    assert offsets(index.query("orders", key="A")) == []
    assert offsets(index.query("kept", key="A")) == [2]
    index.run_compaction()
    assert len(index.files()) == 1


def test_entries_in_local_files_are_hidden_while_the_store_is_away(make_index, store, clock):
    index = make_index(store=store, retention=10.0)
    put(index, "A", 1)
    index.roll()
    for _ in range(2):
        step(components_of(index).writing.compactor)
    clock.advance(11)
    assert [file.state for file in index.files()] == ["compacted"]
    assert offsets(index.query("orders", key="A")) == []
    assert offsets(index.query_batch([{"topic": "orders", "key": "A"}])[0]) == []
    index.run_compaction()
    assert index.files() == []


def test_a_merge_shows_nothing_again_that_retention_hid(make_index, clock):
    index = make_index(topic_retention={"orders": 100.0}, merge_min_files=2, roll_after=1.0)
    publish(index, 1)
    put(index, "A", 1, topic="kept")
    publish(index, 2)
    clock.advance(100)
    assert offsets(index.query("orders", key="A")) == []
    clock.advance(60)
    publish(index, 3)
    publish(index, 4)
    assert offsets(index.query("orders", key="A")) == [4, 3]
    assert offsets(index.query("kept", key="A")) == [1]
    clock.advance(60)
    publish(index, 5)  # 60 seconds younger: it would keep 3 and 4 for as much longer
    clock.advance(40)
    index.run_compaction()
    assert offsets(index.query("orders", key="A")) == [5]


def test_a_file_that_hides_something_is_not_merged_with_one_published_late(
    make_index, store, clock
):
    index = make_index(store=store, topic_retention={"orders": 100.0}, merge_min_files=3)
    for offset in range(2):
        put(index, "A", offset, topic="kept")
        publish(index, offset)
    clock.advance(9)
    put(index, "A", 2)
    index.roll()
    for _ in range(2):
        step(components_of(index).writing.compactor)
    assert [file.state for file in index.files()] == ["compacted", "uploaded", "uploaded"]
    clock.advance(91)
    assert offsets(index.query("orders", key="A")) == [2]
    index.run_compaction()
    assert offsets(index.query("orders", key="A")) == [2]


def test_readers_follow_the_rules_in_the_manifest(make_index, store, clock):
    index = make_index(store=store, retention=10.0)
    publish(index, 1)
    reader = make_index(None, store=store, max_staleness=1000)
    clock.advance(11)
    assert offsets(reader.query("orders", key="A")) == []


def test_expiry_by_hand_takes_what_was_sealed_before(index, clock):
    publish(index, 1)
    clock.advance(10)
    between = clock.now_ms()
    clock.advance(10)
    publish(index, 2)
    put(index, "A", 3, durability="os")
    (named,) = index.expire(before=between, dry_run=True)
    assert len(index.files()) == 3
    assert index.expire(before=between) == [named]
    assert index.expire(before=between) == []
    assert offsets(index.query("orders", key="A")) == [3, 2]


def test_objects_of_dropped_files_go_after_the_grace_time(make_index, store, clock):
    index = make_index(store=store, grace_time=100.0)
    publish(index, 1)
    index.expire(before=clock.now_ms() + 1)
    index.run_compaction()
    assert len(store.objects()) == 1
    clock.advance(101)
    index.run_compaction()
    assert store.objects() == []
    assert index.compaction_status()["totals"]["collected"] == 1


def test_an_orphan_goes_after_a_floor_and_the_grace_time(make_index, store, clock):
    from tierdex.lifecycle.paths import StorePaths

    index = make_index(store=store, grace_time=10.0)
    publish(index, 1)
    orphan = StorePaths(components_of(index).settings.node).file_object(1, bytes(range(16)))
    store.put(orphan, b"an upload that was never published")
    index.run_compaction()
    assert orphan in store.objects()
    clock.advance(11)
    index.run_compaction()
    index.run_compaction()
    assert orphan not in store.objects()
    assert offsets(index.query("orders", key="A")) == [1]
