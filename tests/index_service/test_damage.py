"""Damage is met once and mended where the store has a good copy; else the file is named."""

from __future__ import annotations

import pytest

from tests.index_service.conftest import offsets, put
from tierdex.compactor.scrub import Scrubber


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


def test_scrub_drops_a_damaged_sidecar(make_index, published, tmp_path):
    published.close()
    path = sidecar_path(tmp_path)
    size = path.stat().st_size
    index = make_index()
    parts = index._parts
    compaction = parts.writing.compactor._parts
    sidecars = parts.surroundings._nodes._sidecars
    alone = parts.writing.compactor.alone
    scrubber = Scrubber(
        compaction, alone=alone, kept_sidecar=sidecars.kept, forget_sidecar=sidecars.forget
    )
    scrubber.step()
    assert path.exists()
    for share in range(40, 96, 5):
        damage(path, size * share // 100)
    scrubber.step()
    assert not path.exists()
    assert offsets(index.query("orders", key="K9")) == [9]


def test_scrub_quarantines_a_damaged_local_file(make_index, tmp_path):
    index = make_index(store="memory://scrub")
    put(index, "A", 1)
    index.roll()
    compactor = index._parts.writing.compactor
    compactor.step()
    (sealed,) = (tmp_path / "data" / "sealed").iterdir()
    damage(sealed, 4096)
    scrubber = Scrubber(
        compactor._parts,
        alone=compactor.alone,
        kept_sidecar=lambda row: None,
        forget_sidecar=lambda uuid: None,
    )
    scrubber.step()
    answer = index.query("orders", key="A")
    assert not answer.complete
    assert "sealed" in answer.missing[0].file
