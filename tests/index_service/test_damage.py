"""Damage is met once and mended where the store has a good copy; else the file is named."""

from __future__ import annotations

import pytest

from tests.compactor_steps import step
from tests.index_service.conftest import offsets, put
from tierdex.clock import ManualClock
from tierdex.compactor.scrub import Scrubber
from tierdex.errors import TierdexError
from tierdex.fileparts.layout import Part
from tierdex.filesystem import LocalFileSystem
from tierdex.ids import SeededIds
from tierdex.indexfile.compacted.file import CompactedFile
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of
from tierdex.testing.faulty_store import FaultyStore


@pytest.fixture
def published(make_index):
    index = make_index()
    for offset in range(500):
        put(index, f"K{offset}", offset)
    index.flush("remote")
    return index


def damage(path, position):
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


def sidecar_path(tmp_path):
    (path,) = (tmp_path / "data" / "uploaded").iterdir()
    return path


@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.95])
def test_damaged_sidecar_is_fetched_again(make_index, published, tmp_path, share):
    published.close()
    path = sidecar_path(tmp_path)
    damage(path, int(path.stat().st_size * share))
    index = make_index()
    assert [offsets(index.query("orders", key=f"K{i}")) for i in range(500)] == [
        [i] for i in range(500)
    ]
    answers = index.query_batch([{"topic": "orders", "key": f"K{i}"} for i in range(500)])
    assert all(answer.complete for answer in answers)


def test_scrub_drops_a_damaged_sidecar(make_index, published, tmp_path, clock):
    published.close()
    path = sidecar_path(tmp_path)
    size = path.stat().st_size
    index = make_index()
    parts = components_of(index)
    compaction = parts.writing.compactor.components
    sidecars = parts.sidecars
    claims = parts.writing.compactor.claims
    scrubber = Scrubber(compaction, claims=claims, scrub_sidecar=sidecars.scrub)
    scrubber.step()
    assert path.exists()
    for share in range(40, 96, 5):
        damage(path, size * share // 100)
    clock.advance(parts.settings.scrub_interval)
    scrubber.step()
    assert not path.exists()
    assert offsets(index.query("orders", key="K9")) == [9]


def test_damaged_filter_of_a_local_file_makes_that_file_missing(make_index, tmp_path):
    """One query, the rest of a page and a batch go on without the file, and name it."""
    store = FaultyStore(MemoryStore(), ids=SeededIds(1), clock=ManualClock())
    index = make_index(store=store, filter_bits=16)
    for number in range(3):
        put(index, "A", number)
        index.roll()
    with store.outage(), pytest.raises(TierdexError):
        index.run_compaction()
    handles = components_of(index).table.snapshot().files
    compacted = [handle for handle in handles if handle.state.value == "compacted"]
    assert len(compacted) == 3
    damaged = compacted[1]
    index.close()
    file = CompactedFile.open_local(LocalFileSystem(), damaged.path)
    position = file.footer.part(Part.FILTER, damaged.path).position
    file.close()
    damage(damaged.path, position)
    index = make_index(store=store, filter_bits=16)
    with store.outage():
        for _ in range(2):  # also as a topic that the fast path knows
            first = index.query("orders", key="A", max_count=1)
            assert (offsets(first), first.complete) == ([2], True)
            rest = index.query("orders", key="A", cursor=first.next_cursor)
            (batch,) = index.query_batch([{"topic": "orders", "key": "A"}])
            for answer, expected in (
                (index.query("orders", key="A"), [2, 0]),
                (rest, [0]),
                (batch, [2, 0]),
            ):
                assert offsets(answer) == expected
                assert [missing.file for missing in answer.missing] == [damaged.file_id]


def test_scrub_quarantines_a_damaged_local_file(make_index, tmp_path):
    index = make_index(store="memory://scrub")
    put(index, "A", 1)
    index.roll()
    compactor = components_of(index).writing.compactor
    step(compactor)
    (sealed,) = (tmp_path / "data" / "sealed").iterdir()
    damage(sealed, 4096)
    scrubber = Scrubber(
        compactor.components,
        claims=compactor.claims,
        scrub_sidecar=lambda row: True,
    )
    scrubber.step()
    answer = index.query("orders", key="A")
    assert not answer.complete
    assert "sealed" in answer.missing[0].file


@pytest.fixture
def exchanged(make_index, tmp_path):
    """An index whose two published objects are sound files of another index, of the same size."""
    stores = {name: tmp_path / name for name in ("ours", "theirs")}
    indexes, objects = {}, {}
    for name, first in (("theirs", 1000), ("ours", 0)):
        index = indexes[name] = make_index(
            tmp_path / f"data-{name}", store=str(stores[name]), node="n",
            merge_min_files=2, merge_below_items=0,
        )  # fmt: skip
        for file in range(2):
            put(index, "A", first + file, timestamp=1000)
            index.flush("remote")
        objects[name] = sorted((stores[name] / "nodes" / "n" / "files").iterdir())
    for ours, theirs in zip(objects["ours"], objects["theirs"], strict=True):
        assert ours.stat().st_size == theirs.stat().st_size
        ours.write_bytes(theirs.read_bytes())
    for index in indexes.values():
        index.close()
    return stores["ours"], tmp_path / "data-ours"


def test_a_sound_foreign_object_is_not_the_file(make_index, exchanged):
    store, _ = exchanged
    index = make_index(None, store=str(store), read_only=True)
    answer = index.query("orders", key="A")
    assert (answer.entries, len(answer.missing)) == ([], 2)
    for info in index.files():
        assert index.verify_file(info.file_id) == ["is not the file that the manifest lists"]


def test_a_sound_foreign_object_is_not_merged(make_index, exchanged):
    store, data = exchanged
    index = make_index(data, store=str(store), node="n", merge_min_files=2)
    index.run_compaction()
    assert len(index.files()) == 2
    assert "not the file" in index.compaction_status()["last_error"]["error"]
