"""A queue's watermark at each level is the end of the longest prefix of its puts at that level."""

from __future__ import annotations

import pytest

from tests.compactor_steps import step
from tests.index_service.conftest import put
from tierdex.errors import InvalidRequestError, NotFoundError
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of

NONE = {"os": None, "disk": None, "remote": None}


def test_levels_rise_one_after_the_other(index):
    assert index.watermark("orders", 0) == NONE
    put(index, "A", 100)
    assert index.watermark("orders", 0) == NONE  # received only
    index.flush("os")
    assert index.watermark("orders", 0) == {"os": 110, "disk": None, "remote": None}
    index.flush("disk")
    put(index, "A", 200, durability="os")
    assert index.watermark("orders", 0) == {"os": 210, "disk": 110, "remote": None}
    index.roll()
    put(index, "A", 300, durability="os")
    index.run_compaction()
    assert index.watermark("orders", 0) == {"os": 310, "disk": 210, "remote": 210}


def test_queues_and_topics_are_apart(index):
    put(index, "A", 100, durability="disk")
    put(index, "A", 500, durability="disk", queue_id=1)
    put(index, "A", 900, durability="disk", topic="other")
    assert index.watermark("orders", 0)["disk"] == 110
    assert index.watermark("orders", 1)["disk"] == 510
    assert index.watermark("other", 0)["disk"] == 910
    assert index.watermark("other", 1) == NONE


def test_message_ids_count_as_keys_do(index):
    index.put(topic="t", message_id="m", queue_id=0, offset=5, size=5, timestamp=0, durability="os")
    assert index.watermark("t", 0)["os"] == 10


def test_sealed_files_before_an_unsynced_one_are_durable(index):
    put(index, "A", 100)
    index.roll()
    put(index, "A", 200, durability="os")
    index.roll()
    compactor = components_of(index).writing.compactor
    step(compactor)
    assert index.watermark("orders", 0) == {"os": 210, "disk": 110, "remote": None}
    step(compactor)  # compacts it
    step(compactor)
    assert index.watermark("orders", 0) == {"os": 210, "disk": 210, "remote": None}


def test_what_was_published_counts_after_it_expired_and_after_a_restart(make_index, clock):
    index = make_index()
    put(index, "A", 100)
    index.roll()
    index.run_compaction()
    clock.advance(1)
    index.expire(before=clock.now_ms())
    assert index.files() == []
    assert index.watermark("orders", 0) == {"os": 110, "disk": 110, "remote": 110}
    index.close()
    assert make_index().watermark("orders", 0)["remote"] == 110


def test_how_far_another_node_has_published_is_told_by_its_name(make_index, clock, tmp_path):
    store = MemoryStore(clock=clock)
    node = make_index(tmp_path / "a", store=store, node="a")
    put(node, "A", 100)
    node.roll()
    node.run_compaction()
    put(node, "A", 200)  # not published
    other = make_index(tmp_path / "b", store=store, node="b")
    reader = make_index(None, store=store)
    for index in (node, other, reader):
        index.refresh()
        assert index.watermark("orders", 0, node="a") == {"published": 110}
        assert index.watermark("orders", 1, node="a") == {"published": None}
        with pytest.raises(NotFoundError, match="node c"):
            index.watermark("orders", 0, node="c")
    assert reader.watermark("orders", 0) == NONE


def test_disk_is_known_after_a_restart_without_a_flush(make_index):
    index = make_index()
    put(index, "A", 100, durability="os")
    index.close()
    assert make_index().watermark("orders", 0) == {"os": 110, "disk": 110, "remote": None}


def test_a_reader_beside_the_writer_sees_what_the_page_cache_holds(make_index):
    index = make_index()
    put(index, "A", 100, durability="os")
    reader = make_index(read_only=True)
    assert reader.watermark("orders", 0) == {"os": 110, "disk": None, "remote": None}


@pytest.mark.parametrize("queue_id", [-1, 1 << 31, 319_742_890_095_860])
def test_watermark_of_a_queue_that_cannot_be_is_refused(make_index, queue_id):
    with pytest.raises(InvalidRequestError, match="queue_id"):
        make_index().watermark("orders", queue_id)


def test_nothing_behind_a_lost_file_counts_until_it_is_dealt_with(make_index, tmp_path, clock):
    index = make_index(roll_after=1e9)
    put(index, "A", 100, durability="disk")
    index.roll()
    index.run_compaction()
    put(index, "A", 200, durability="disk")
    index.roll()
    index.close()
    (file,) = (tmp_path / "data" / "unsealed").iterdir()
    file.write_bytes(file.read_bytes()[:100])
    index = make_index(roll_after=1e9)
    put(index, "A", 300, durability="disk")
    index.roll()
    index.run_compaction()  # published, but what is before it is not
    lowest = {"os": 110, "disk": 110, "remote": 110}
    assert index.watermark("orders", 0) == lowest
    put(index, "A", 400, durability="disk")
    assert index.watermark("orders", 0) == lowest
    with make_index(read_only=True) as reader:
        assert reader.watermark("orders", 0) == lowest
    (quarantined,) = (tmp_path / "data" / "quarantine").iterdir()
    put(index, "A", 200, durability="disk")  # replayed from the watermark on
    quarantined.unlink()
    index.refresh()
    assert index.watermark("orders", 0) == {"os": 410, "disk": 410, "remote": 110}
    index.roll()
    index.run_compaction()
    assert index.watermark("orders", 0) == {"os": 410, "disk": 410, "remote": 410}


def test_a_damaged_copy_of_a_published_file_holds_nothing_back(make_index, tmp_path):
    index = make_index()
    put(index, "A", 100)
    index.roll()
    index.run_compaction()
    (file,) = index.files()
    (tmp_path / "data" / "quarantine" / f"compacted-{file.file_id.split('-')[0]}").touch()
    index.refresh()
    put(index, "A", 200, durability="disk")
    assert index.watermark("orders", 0) == {"os": 210, "disk": 210, "remote": 110}
    index.roll()
    index.run_compaction()
    assert index.watermark("orders", 0)["remote"] == 210
