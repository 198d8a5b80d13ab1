"""`offset_at` finds what a look at every message finds, and begins at a checkpoint or a page."""

from __future__ import annotations

import random

import pytest

from tests.log_service.log_world import DATA, open_log, seal_rolled
from tests.simulation.simulated_disk import SimulatedFileSystem
from tierdex.errors import InvalidRequestError
from tierdex.filesystem import make_durable_folder
from tierdex.log_service.message_log import MessageLog
from tierdex.logfile import layout
from tierdex.testing.components import components_of

BATCHES = 3 * layout.CHECKPOINT_BATCHES


def test_a_time_in_seconds_is_refused_with_a_hint():
    """It would be one of 1970: a reader would begin at the beginning, and not know why."""
    disk = SimulatedFileSystem()
    make_durable_folder(disk, DATA)
    with open_log(disk, journal_bytes=1 << 20) as log:
        log.append(topic="t", queue_id=0, body=b"", timestamp=1_700_000_000_000)
        with pytest.raises(InvalidRequestError, match="1700000000000") as told:
            log.offset_at("t", 0, 1_700_000_000)
        assert told.value.field == "timestamp"
        assert log.offset_at("t", 0, 1_700_000_000_000) == 0


@pytest.mark.parametrize("state", ["unsealed", "sealed", "compacted"])
@pytest.mark.parametrize("rises", [False, True])
def test_offset_at_finds_the_first_and_reads_from_near_it_on(state, rises, monkeypatch):
    disk = SimulatedFileSystem()
    make_durable_folder(disk, DATA)
    log = open_log(disk, journal_bytes=1 << 20)
    rng = random.Random(1)
    times: dict[int, list[int]] = {0: [], 1: []}
    for number in range(BATCHES + 40):
        time = 10 * number if rises else rng.randrange(10 * BATCHES)
        queue = number % 2
        times[queue].append(time)
        log.append(topic="t", queue_id=queue, body=bytes(200), timestamp=time, durability="os")
    log.flush()
    if state != "unsealed":
        log.roll()
        (seal_rolled if state == "sealed" else MessageLog.run_compaction)(log)
    (handle,) = components_of(log).table.version.files.local()
    assert handle.state.value == state
    for queue, held in times.items():
        for wanted in [-1, 0, 5, *rng.choices(held, k=20), max(held), max(held) + 1]:
            found = next((n for n, time in enumerate(held) if time >= wanted), len(held))
            assert log.offset_at("t", queue, wanted) == found, wanted
    begun = []
    real = type(handle.reader).read
    monkeypatch.setattr(
        type(handle.reader), "read",
        lambda self, topic, queue, offset, **o: begun.append(offset) or real(self, topic, queue, offset, **o),
    )  # fmt: skip
    late = 10 * (BATCHES + 20)
    log.offset_at("t", 0, late)
    assert all(offset >= (BATCHES - layout.CHECKPOINT_BATCHES) // 2 for offset in begun)
    assert bool(begun) == rises, "no time is so late where they are random"
    assert log.offset_at("nobody's", 0, 5) == 0
