"""One file as operators see it."""

from __future__ import annotations

import pytest

from tests.index_service.conftest import put
from tierdex import Index
from tierdex.clock import ManualClock
from tierdex.errors import NotFoundError
from tierdex.testing.components import components_of


def test_one_published_file_tells_when_its_object_was_written_and_a_list_does_not(index, tmp_path):
    put(index, "a", 0)
    index.flush()
    assert index.file(index.files()[0].file_id).published_at is None
    index.roll()
    index.run_compaction()
    (listed,) = index.files()
    (thing,) = (tmp_path / "data" / "store").glob("nodes/*/files/*")
    written_ms = thing.stat().st_mtime_ns // 1_000_000
    assert listed.published_at is None
    told = index.file(listed.file_id)
    life = {"published_at": written_ms, "compacted_at": told.compacted_at}
    assert told == listed._replace(**life, compaction_s=told.compaction_s)
    with pytest.raises(NotFoundError):
        index.file("none")


class TickingClock(ManualClock):
    """A quarter of a second passes between two looks."""

    def now_ms(self):
        self.advance(0.25)
        return super().now_ms()


def test_one_compacted_file_tells_when_that_was_and_how_long_it_took(make_index, tmp_path):
    index = make_index(clock=TickingClock())
    put(index, "a", 0)
    index.roll()
    compactor = components_of(index).writing.compactor
    components_of(index).writing.compactor.seal_rolled()
    (sealed,) = (file for file in index.files() if file.state == "sealed")
    assert (index.file(sealed.file_id).compacted_at, sealed.sealed_at > 0) == (None, True)
    assert compactor.local.run_first(compactor._local_work.units())
    (listed,) = (file for file in index.files() if file.state == "compacted")
    told = index.file(listed.file_id)
    assert (listed.compacted_at, listed.compaction_s) == (None, None)
    assert told.compacted_at > told.sealed_at
    assert told.compaction_s == 0.25
    index.run_compaction()
    (published,) = (index.file(file.file_id) for file in index.files() if file.state == "uploaded")
    life = published.compacted_at, published.compaction_s
    assert life == (told.compacted_at, 0.25)
    store = f"file://{tmp_path / 'data' / 'store'}"
    with Index.open(store=store, read_only=True, background=False) as reader:
        (own,) = (reader.file(file.file_id) for file in reader.files())
        assert (own.compacted_at, own.compaction_s) == life
