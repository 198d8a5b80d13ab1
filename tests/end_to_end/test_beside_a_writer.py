"""A process of its own mounts the folder of a busy writer: what was written before it looks is there.

The writer notes in a file how many messages are in the page cache; the other process reads the note,
refreshes, and asks for all of them, and notes how often it did.
"""

from __future__ import annotations

import os
import time

from tests.patience import PATIENCE_S
from tests.torture.fork_server import server
from tierdex import Index

KEYS = 5
SETTINGS = {
    "slot_count": 64, "item_capacity": 300, "disk_reserve_bytes": 0, "compact_interval": 0.01,
    "refresh_interval": 0.05, "merge_min_files": 3, "roll_after": 0.1, "sidecar_cache_bytes": 60_000,
    "max_staleness": 600.0,
}  # fmt: skip
_OVER = (1 << 63) - 1


def look_beside(folder, note, telling):
    """Ask until the note says that it is over; tell how often that was."""
    rounds, noted = 0, os.open(note, os.O_RDWR)
    with Index.open(folder, read_only=True, **SETTINGS) as beside:
        while (least := int.from_bytes(os.pread(noted, 8, 0), "little")) != _OVER:
            beside.refresh()
            key = rounds % KEYS
            answer = beside.query("t", key=f"K{key}", max_count=10_000)
            assert answer.complete, answer.missing
            found = [entry.offset for entry in answer.entries]
            assert found == sorted(set(found), reverse=True), "order"
            wanted = range(key, least, KEYS)[-9000:]  # an answer holds no more than 10,000
            lost = set(wanted).difference(found)
            assert not lost, f"of {least}: {sorted(lost)[:9]} not found"
            rounds += 1
            os.pwrite(noted, rounds.to_bytes(8, "little"), 8)
    os.close(noted)
    telling.send_bytes(rounds.to_bytes(8, "little"))


def write(index, note, is_enough):
    number = 0
    while not is_enough():
        numbers = range(number, number + 20)
        index.put_batch(
            topic="t", keys=[f"K{n % KEYS}" for n in numbers], queue_id=0, size=1,
            offset=list(numbers), timestamp=list(numbers),
        )  # fmt: skip
        number += 20
        os.pwrite(note, number.to_bytes(8, "little"), 0)
        time.sleep(0.002)  # an answer lists everything: not too much of it


def test_process_beside_a_writer_finds_what_was_written_before_it_looked(tmp_path):
    note = os.open(tmp_path / "note", os.O_RDWR | os.O_CREAT)
    os.pwrite(note, bytes(16), 0)
    with Index.open(tmp_path / "data", **SETTINGS) as index:
        began = time.monotonic()

        def is_enough():
            published = index.compaction_status()["totals"]["published"]
            seconds = time.monotonic() - began
            if seconds > PATIENCE_S or child.tells.poll():
                return True
            return seconds > 2 and published > 2 and any(os.pread(note, 8, 8))

        with server().fork(
            "tests.end_to_end.test_beside_a_writer:look_beside",
            tmp_path / "data",
            tmp_path / "note",
        ) as child:
            write(index, note, is_enough)
            os.pwrite(note, _OVER.to_bytes(8, "little"), 0)
            rounds = int.from_bytes(child.told(PATIENCE_S), "little")
            assert child.wait() == 0
    os.close(note)
    assert rounds > 0
