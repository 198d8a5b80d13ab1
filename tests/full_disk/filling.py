"""Puts while another process fills the disk: `python -m tests.full_disk.filling FOLDER`.

A process of its own, since a store that finds no block kills it (SIGBUS). Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import closing
from pathlib import Path

from tierdex import Index
from tierdex.errors import UnavailableError

SETTINGS = {"slot_count": 4096, "item_capacity": 200_000, "background": False}
BATCH = 500


def fill(path):
    """Take every block that the disk has left."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    for size in (1 << 20, 1 << 12):
        try:
            while os.write(descriptor, os.urandom(size)):
                pass
        except OSError:
            pass
    os.fsync(descriptor)
    os.close(descriptor)


class Puts:
    def __init__(self, index):
        self.index = index
        self.acknowledged = []
        self.refused = set()
        self._next = 0

    def put(self, *, batch):
        """Put one batch, or one entry; note whether it was taken."""
        count = BATCH if batch else 1
        numbers = range(self._next, self._next + count)
        self._next += count
        fields = {"queue_id": 0, "size": 1}
        try:
            if batch:
                self.index.put_batch(
                    topic="t", keys=[f"k{n}" for n in numbers], offset=list(numbers),
                    timestamp=[1] * count, **fields,
                )  # fmt: skip
            else:
                self.index.put(
                    topic="t", keys=[f"k{numbers[0]}"], offset=numbers[0], timestamp=1,
                    durability="os", **fields,
                )  # fmt: skip
        except UnavailableError as error:
            self.refused.add(type(error).__name__)
        else:
            self.acknowledged += numbers


def lost(index, numbers):
    lookups = [{"topic": "t", "key": f"k{number}"} for number in numbers]
    answers = [
        answer
        for at in range(0, len(lookups), 5000)
        for answer in index.query_batch(lookups[at : at + 5000])
    ]
    return sum(
        [entry.offset for entry in answer.entries] != [number]
        for number, answer in zip(numbers, answers, strict=True)
    )


def main(folder):
    filler = Path(folder) / "filler"
    seen = {}
    index = Index.open(Path(folder) / "data", disk_reserve_bytes=0, **SETTINGS)
    puts = Puts(index)
    for number in range(40):
        puts.put(batch=number % 2 == 0)
    index.flush("disk")
    os.sync()  # what was written is clean: the next store is a fresh one to the file system
    fill(filler)
    for number in range(400):
        puts.put(batch=number % 4 == 0)
    seen["full"] = sorted(puts.refused)
    seen["lost when full"] = lost(index, puts.acknowledged)
    filler.unlink()
    os.sync()
    puts.refused.clear()
    for number in range(40):
        puts.put(batch=number % 2 == 0)
    seen["refused after"] = sorted(puts.refused)
    index.run_compaction()
    seen["level"] = index.flush("disk")
    seen["lost after"] = lost(index, puts.acknowledged)
    index.close()
    with closing(Index.open(Path(folder) / "data", disk_reserve_bytes=0, **SETTINGS)) as again:
        seen["lost in the end"] = lost(again, puts.acknowledged)
        seen["broken"] = [again.verify_file(file.file_id) for file in again.files()]
    seen["acknowledged"] = len(puts.acknowledged)
    print(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1])
