"""The writer's own background work: nothing is lost by a failure, and nothing ends a thread."""

from __future__ import annotations

from tests.index_service.conftest import offsets, put
from tierdex.errors import BacklogFullError
from tierdex.index_service.opening.maintenance import PutFlusher, WriterTending
from tierdex.testing.components import components_of


def test_received_puts_are_written_by_a_step(index):
    flusher = PutFlusher(components_of(index).settings, components_of(index).writing.writer)
    put(index, "A", 1)
    assert flusher.step() == components_of(index).settings.put_buffer_delay
    assert not components_of(index).writing.writer.has_buffered
    assert index.files()[0].item_count == 1


def test_a_full_disk_leaves_them_in_the_buffer(index, monkeypatch):
    writer = components_of(index).writing.writer
    flusher = PutFlusher(components_of(index).settings, writer)
    put(index, "A", 1)
    with monkeypatch.context() as patch:
        patch.setattr(writer._budget, "_find_excess", lambda: "full")
        writer.look_again()
        assert flusher.step() == 1.0
        assert writer.has_buffered
    writer.look_again()
    flusher.step()
    assert offsets(index.query("orders", key="A")) == [1]


def test_tending_rolls_what_is_old_and_survives_a_full_disk(make_index, clock, monkeypatch):
    index = make_index(roll_after=60.0)
    writer = components_of(index).writing.writer
    tending = WriterTending(writer, components_of(index).forgetter)
    put(index, "A", 1, durability="os")
    clock.advance(40)

    def full(schema):
        raise BacklogFullError("full")

    with monkeypatch.context() as patch:
        patch.setattr(writer._next_file, "_make", full)
        assert tending.step() > 0
    clock.advance(30)
    tending.step()
    assert writer.active is None


def test_run_compaction_brings_rolled_files_to_published_and_writes_the_buffer(index):
    put(index, "A", 1)
    index.roll()
    put(index, "A", 2)
    assert index.run_compaction() >= 3
    assert sorted(file.state for file in index.files()) == ["unsealed", "uploaded"]
    assert offsets(index.query("orders", key="A")) == [2, 1]
