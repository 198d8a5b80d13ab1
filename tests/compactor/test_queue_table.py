"""Watermarks and topics outlive no commit's budget: a commit costs what it changes, not what ever was."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tests.compactor_steps import step
from tests.index_service.conftest import put
from tierdex.compactor.queue_table import QueueEnds, QueueTables
from tierdex.errors import CorruptFileError
from tierdex.ids import SeededIds
from tierdex.lifecycle.manifests.manifest_log import ManifestLog
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of
from tierdex.testing.faulty_store import Fault, FaultyStore

TABLES = "/queues/"
MANIFESTS = "/manifest/"
FEW_BYTES = 1700


def ends_of(mapping):
    names = sorted({topic for topic, _ in mapping})
    rows = [(names.index(topic), queue, end) for (topic, queue), end in sorted(mapping.items())]
    return QueueEnds(names, np.array(rows, [("topic", "<i4"), ("queue_id", "<i4"), ("end", "<i8")]))


def put_queues(index, *, topics, queues, first=0):
    """Put one entry for each of `queues` queues of each of `topics` topics; offsets tell them apart."""
    count = topics * queues
    number = np.arange(count, dtype=np.int64)
    names = pa.array([f"topic-{n:06}" for n in range(topics)])
    index.put_batch(
        topic=pa.DictionaryArray.from_arrays(pa.array(number // queues, pa.int32()), names),
        keys=[f"k{n}" for n in range(count)],
        queue_id=number % queues,
        offset=number + first,
        size=np.full(count, 10),
        timestamp=np.full(count, 1000),
    )
    index.roll()
    index.run_compaction()


def keys_of(store, part):
    return [found.key for found in MemoryStore.list(store, "nodes/") if part in found.key]


def last_commit(store):
    return MemoryStore.get(store, keys_of(store, MANIFESTS)[-1])


def publish_one(index, offset):
    put(index, "one", offset)
    index.roll()
    index.run_compaction()


@pytest.mark.parametrize(("topics", "queues"), [(1, 100_000), (20_000, 1)])
def test_commit_costs_what_it_changes_however_many_queues_were_seen(
    make_index, store, clock, topics, queues
):
    index = make_index(store=store, checkpoint_every=1, item_capacity=200_000, slot_count=1 << 16)
    put_queues(index, topics=topics, queues=queues)
    assert len(last_commit(store)) < FEW_BYTES
    publish_one(index, 500)
    assert len(last_commit(store)) < 2 * FEW_BYTES  # a checkpoint of two files
    last = topics * queues - 1
    place = (f"topic-{topics - 1:06}", last % queues)
    assert index.watermark(*place)["remote"] == last + 10
    clock.advance(1)
    index.expire(before=clock.now_ms())
    index.run_compaction()
    publish_one(index, 600)
    assert len(last_commit(store)) < 2 * FEW_BYTES
    assert index.topics() == ["orders"]  # a topic ends with its last file
    index.close()
    # Opening reads the manifest; queues are read when they are asked for, by one request.
    store.calls.clear()
    read = make_index(store=store, read_only=True)
    assert not [key for verb, key in store.calls if TABLES in key]
    assert read.watermark(*place)["remote"] == last + 10
    assert read.watermark("orders", 0)["remote"] == 610
    assert sum(TABLES in key for _, key in store.calls) == 1
    assert read.topics() == ["orders"]


def test_table_is_written_when_the_bytes_since_the_last_pay_for_it(make_index, store):
    index = make_index(store=store, item_capacity=200_000, slot_count=1 << 16)
    publish_one(index, 100)
    assert keys_of(store, TABLES) == []
    put_queues(index, topics=1, queues=20_000)  # 600 kB tell of 20,000 queues: not worth it yet
    assert keys_of(store, TABLES) == []
    for turn in range(4):
        count = 100_000
        index.put_batch(
            topic="orders",
            keys=[f"k{turn}-{n}" for n in range(count)],
            queue_id=0,
            offset=np.arange(count) + turn * count,
            size=1,
            timestamp=1,
        )
        index.roll()
        index.run_compaction()
    tables = keys_of(store, TABLES)
    assert 1 <= len(tables) <= 4
    assert index.watermark("topic-000000", 19_999)["remote"] == 20_009
    assert index.watermark("orders", 0)["remote"] == 400_000


def test_tables_are_collected_when_a_newer_one_and_the_grace_time_are_there(
    make_index, store, clock
):
    index = make_index(store=store, grace_time=100.0)
    for turn in range(3):
        publish_one(index, 100 * turn)
        clock.advance(1)
        index.expire(before=clock.now_ms())
    assert len(keys_of(store, TABLES)) == 3
    clock.advance(1000)
    for _ in range(3):
        clock.advance(60)
        index.run_compaction()
    assert len(keys_of(store, TABLES)) == 1
    assert index.watermark("orders", 0)["remote"] == 210


def test_orphaned_table_is_collected(make_index, store, clock):
    index = make_index(store=store, node="local", grace_time=100.0)
    publish_one(index, 100)
    QueueTables(store).write("local", 1, bytes(16), ends_of({("a", 0): 1}))
    for _ in range(4):
        clock.advance(1000)
        index.run_compaction()
    assert keys_of(store, TABLES) == []


def test_lost_table_is_an_error_never_a_lower_watermark(make_index, store, clock):
    index = make_index(store=store)
    publish_one(index, 100)
    clock.advance(1)
    index.expire(before=clock.now_ms())
    index.close()
    (key,) = keys_of(store, TABLES)
    MemoryStore.put(store, key, b"something else")
    with make_index(store=store, read_only=True) as read, pytest.raises(CorruptFileError):
        read.watermark("orders", 0)


@pytest.mark.parametrize("altered", [1, 2])
def test_bytes_altered_on_their_way_lower_no_watermark(tmp_path, make_index, store, clock, altered):
    faulty = FaultyStore(store)
    index = make_index(store=faulty)
    for queue in (0, 1):
        put(index, "one", 100, queue_id=queue)
        index.roll()
        index.run_compaction()
        clock.advance(1)
    index.close()
    index = make_index(data=tmp_path / "another", store=faulty, takeover=True)
    faulty.fail("get", fault=Fault.ALTERED_BODY, count=altered)
    assert len(index.expire(before=clock.now_ms() - 1000)) == 1
    assert len(faulty.history) == altered
    assert [index.watermark("orders", queue)["remote"] for queue in (0, 1)] == [110, 110]


def test_file_damaged_for_good_expires_and_its_ends_are_not_told(
    tmp_path, make_index, store, clock
):
    index = make_index(store=store)
    publish_one(index, 100)
    index.close()
    clock.advance(1)
    (key,) = keys_of(store, "/files/")
    data = bytearray(MemoryStore.get(store, key))
    data[-100] ^= 1
    MemoryStore.put(store, key, bytes(data))
    index = make_index(data=tmp_path / "another", store=store, takeover=True)
    assert len(index.expire(before=clock.now_ms())) == 1
    assert index.watermark("orders", 0)["remote"] is None


def test_merged_file_tells_what_its_parts_told(make_index, store):
    index = make_index(store=store, merge_min_files=3)
    for turn in range(6):
        publish_one(index, 100 * turn)
    assert len(index.files()) < 6
    assert index.watermark("orders", 0)["remote"] == 510
    with make_index(store=store, read_only=True) as read:
        assert read.watermark("orders", 0)["remote"] == 510


def test_opening_reads_no_more_of_the_store_for_more_queues(make_index, store):
    index = make_index(store=store, node="local", item_capacity=200_000, slot_count=1 << 16)
    put_queues(index, topics=1, queues=50_000)
    index.close()
    log = ManifestLog(store, "local", clock=store._clock, ids=SeededIds(1), checkpoint_every=32)
    assert len(log.load().files) == 1
    read = sum(found.size for found in MemoryStore.list(store, "nodes/local/manifest/"))
    assert read < 10_000


def test_ends_are_joined_by_the_greatest_and_read_back():
    first = ends_of({("b", 0): 5, ("a", 7): 9})
    second = ends_of({("a", 7): 3, ("c", 1): 1, ("b", 0): 6})
    joined = QueueEnds.join([first, second])
    store = MemoryStore()
    ref = QueueTables(store).write("n1", 1, bytes(16), joined)
    found = QueueTables(store).read(ref)
    for ends in (joined, found):
        assert [ends.of(*queue) for queue in (("a", 7), ("b", 0), ("c", 1))] == [9, 6, 1]
        assert [ends.of(*queue) for queue in (("a", 6), ("a", 8), ("b", 1), ("d", 0))] == [None] * 4
    assert QueueEnds.join([]).of("a", 0) is None
    empty = QueueTables(store).write("n1", 1, bytes(16), QueueEnds.join([]))
    assert QueueTables(store).read(empty).of("a", 0) is None


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data + b"x", bytes.upper])
def test_table_that_is_not_what_the_manifest_names_is_refused(damage):
    store = MemoryStore()
    ref = QueueTables(store).write("n1", 1, bytes(16), ends_of({("a", 0): 1}))
    store.put(ref.object_key, damage(store.get(ref.object_key)))
    with pytest.raises(CorruptFileError):
        QueueTables(store).read(ref)


def test_topics_of_published_files_cost_two_small_reads_and_only_for_names_not_known(
    make_index, store
):
    index = make_index(store=store, item_capacity=200_000, slot_count=1 << 16)
    for turn in range(3):
        put_queues(index, topics=10, queues=1000, first=turn)
    put_queues(index, topics=100, queues=100)  # more than a row lists
    expected = index.topics()
    assert expected == [f"topic-{n:06}" for n in range(100)]
    index.close()
    with make_index(None, store=store, read_only=True) as read:
        store.calls.clear()
        assert read.topics() == expected
        assert len([key for verb, key in store.calls if verb == "get"]) == 2  # it names all others
        store.calls.clear()
        assert read.topics() == expected
        assert store.calls == []


def test_topics_that_cannot_be_read_are_an_error_never_left_out(make_index, store):
    index = make_index(store=store)
    publish_one(index, 100)
    index.close()
    (key,) = store.objects()
    MemoryStore.put(store, key, bytes(len(MemoryStore.get(store, key))))
    with make_index(None, store=store, read_only=True) as read, pytest.raises(CorruptFileError):
        read.topics()


def test_files_show_their_topics_wherever_no_request_is_needed_for_them(make_index, store):
    index = make_index(store=store)
    put(index, "A", 100, topic="a")
    index.roll()
    step(components_of(index).writing.compactor)
    assert [file.topics for file in index.files()] == [["a"]]  # sealed
    index.run_compaction()
    assert [file.topics for file in index.files()] == [["a"]]
    index.close()
    assert [file.topics for file in make_index(store=store).files()] == [["a"]]
    with make_index(None, store=store, read_only=True) as read:
        assert [file.topics for file in read.files()] == [None]
        assert read.topics() == ["a"]
        assert [file.topics for file in read.files()] == [["a"]]
