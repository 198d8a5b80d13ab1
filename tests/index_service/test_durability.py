"""What `disk` means when the power goes: on a simulated disk that drops and tears what was not synced."""

from __future__ import annotations

from pathlib import Path

from tests.index_service.conftest import SMALL, offsets, put
from tests.simulation.simulated_disk import SimulatedFileSystem
from tierdex import Index
from tierdex.clock import ManualClock
from tierdex.ids import SeededIds
from tierdex.storage_layer.memory import MemoryStore


def open_on(disk, store, **more):
    return Index.open(
        Path("/var/data"),
        filesystem=disk,
        store=store,
        clock=ManualClock(),
        ids=SeededIds(7),
        **SMALL,
        **more,
    )


def test_entry_synced_in_a_new_folder_survives_every_power_cut():
    disk = SimulatedFileSystem()
    store = MemoryStore()
    index = open_on(disk, store)
    put(index, "A", 1)
    index.flush("disk")
    for survivor in disk.crash_states(100, 1):
        again = open_on(survivor, store, takeover=True)  # from the survivor before
        assert offsets(again.query("orders", key="A")) == [1], survivor.persisted
        again.close()
