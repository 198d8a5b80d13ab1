"""The next file is ordered after all before it, even when the folder's note alone can tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.simulated_disk import SimulatedFileSystem
from tests.stateful.world import World
from tierdex.lifecycle.folders.folder_notes import FolderNumber

_ROOT = Path("/data")


def test_files_after_a_start_without_store_and_clock_are_newer_than_published_ones():
    world = World(sidecar_cache_bytes=0)
    site = world.sites["alpha"]
    site.put_batch([site.make_put("t", ["A"], None, 0, 5)])
    site.index.roll()
    site.compact()
    assert [info.state for info in site.index.files()] == ["uploaded"]
    site.close()
    world.clock.step(-3_600_000)
    world.store.begin_outage()
    site.open()
    site.put_batch([site.make_put("t", ["A"], None, 0, 5)])
    world.store.end_outage()
    world.clock.advance(100)
    site.compact()
    answer = site.index.query("t", key="A")
    assert [entry.offset for entry in answer.entries] == [10, 0]
    world.settle()


def test_note_only_rises_and_survives_a_power_cut():
    disk = SimulatedFileSystem()
    disk.make_folder(_ROOT)
    disk.sync_folder(_ROOT.parent)
    noted = FolderNumber(disk, _ROOT)
    assert noted.highest == 0
    noted.note(7)
    noted.note(5)
    disk = disk.crash(lambda effect: False)
    assert FolderNumber(disk, _ROOT).highest == 7


@pytest.mark.parametrize(
    "damage", [b"", b"9" * 20, b"\xff" * 30, b"00000000000000000009 00000000\n"]
)
def test_note_that_cannot_be_read_is_none(damage):
    disk = SimulatedFileSystem()
    disk.make_folder(_ROOT)
    FolderNumber(disk, _ROOT).note(7)
    file = disk.open(_ROOT / "NUMBER", writable=True)
    file.truncate(0)
    file.write_at(0, damage)
    file.close()
    assert FolderNumber(disk, _ROOT).highest == 0
