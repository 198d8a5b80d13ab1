"""Small log files for tests, and a model of lists of what they must answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tierdex.filesystem import LocalFileSystem
from tierdex.logfile.columns import BinaryColumn, MessageColumns, QueueColumns
from tierdex.logfile.extras import Extra, encode_extras
from tierdex.logfile.journal.file import Journal
from tierdex.logfile.messages import Message

if TYPE_CHECKING:
    from pathlib import Path

FILESYSTEM = LocalFileSystem()
UUID = bytes(range(16))
CAPACITY = 1 << 18
STAGE = 1 << 14
MOST = 1 << 30


def make_journal(path: Path, *, filesystem=FILESYSTEM, uuid=UUID, capacity=CAPACITY, **other):
    return Journal.create(
        filesystem, path, uuid=uuid, capacity=capacity, created_ms=1_700_000_000_000,
        stage_bytes=other.pop("stage_bytes", STAGE), **other,
    )  # fmt: skip


@dataclass
class Model:
    """What was appended: (topic, queue_id) -> messages, the first one's offset as given."""

    queues: dict[tuple[str, int], list[Message]] = field(default_factory=dict)
    first_offsets: dict[tuple[str, int], int] = field(default_factory=dict)

    def add(self, queue, body, time, extra=None):
        listed = self.queues.setdefault(queue, [])
        first = self.first_offsets.setdefault(queue, 0)
        listed.append(Message(first + len(listed), time, body, extra or Extra()))

    def copy(self) -> Model:
        return Model(
            {queue: list(held) for queue, held in self.queues.items()}, dict(self.first_offsets)
        )


Row = tuple[tuple[str, int], bytes, int, Extra | None]  # queue, body, time, extra


def append(journal: Journal, rows: list[Row], model: Model | None = None, *, write: bool = True):
    """Append rows in one call, defining their queues; `write=False` leaves them in the stage."""
    model = model or Model()
    names = list(dict.fromkeys(queue for queue, *_ in rows))
    first = [model.first_offsets.get(queue, 0) for queue in names]
    columns_of = QueueColumns.of(names)
    numbers = dict(zip(names, journal.define(columns_of, np.array(first)).tolist(), strict=True))
    columns = MessageColumns(
        queues=np.array([numbers[queue] for queue, *_ in rows], np.uint32),
        bodies=BinaryColumn.from_values([body for _, body, _, _ in rows]),
        times=np.array([time for _, _, time, _ in rows], np.int64),
        extras=BinaryColumn(*encode_extras([extra for *_, extra in rows])),
    )
    if write:
        journal.append(columns)
    else:
        assert journal.stage(columns) == len(rows)
    for queue, body, time, extra in rows:
        model.add(queue, body, time, extra)


def read_all(file, queue, **limits) -> list[Message]:
    """Return all messages of a queue, a few at a time."""
    topic, queue_id = queue
    extent = file.extent(topic.encode(), queue_id, **limits)
    if extent is None:
        return []
    found: list[Message] = []
    offset = extent.first_offset
    while offset < extent.next_offset:
        batch = file.read(topic.encode(), queue_id, offset, max_count=100, max_bytes=5000, **limits)
        assert batch.first_offset == offset
        assert len(batch), "a message is missing"
        found += list(batch)
        offset = batch.next_offset
    return found


def everything(file, queues, **limits) -> dict:
    return {queue: read_all(file, queue, **limits) for queue in queues}


def some_rows(count: int, *, queues: int = 7, seed: int = 1, most_bytes: int = 60) -> list[Row]:
    """Return rows of a few topics: empty and long bodies, far times, extras here and there."""
    random = np.random.default_rng(seed)
    topics = ["orders", "a", "zebra", "größe"]
    rows: list[Row] = []
    for i in range(count):
        number = int(random.integers(queues))
        body = random.integers(0, 256, int(random.integers(most_bytes)), np.uint8).tobytes()
        time = 1_700_000_000_000 + int(random.integers(10_000))
        extra = None
        if i % 5 == 0:
            extra = Extra(f"id-{i}", (f"k{i}",), (("h", b"v" * (i % 7)),), i if i % 2 else None)
        if i % 11 == 0:
            time = int(random.integers(-(2**63), 2**63 - 1))
        rows.append(((topics[number % 4], number * 3 % 11), body, time, extra))
    return rows
