"""A log that publishes into a store, what it reads, and what the tasks of the source give, without Spark."""

from __future__ import annotations

import pickle

import pyarrow as pa

from tierdex.log_service.message_log import MessageLog
from tierdex.pipeline.logs.log_columns import DEFAULT_LOG_COLUMNS
from tierdex.pipeline.logs.log_options import LogOptions
from tierdex.pipeline.logs.log_reader import LogReader

BEGIN_MS = 1_700_000_000_000


def open_log(folder, url, **settings) -> MessageLog:
    """Open a log that works only when it is told to."""
    chosen = {"node": "n", "journal_bytes": 1 << 20, "max_message_bytes": 64 << 10}
    return MessageLog.open(
        folder, store=url, background=False, disk_reserve_bytes=0, **(chosen | settings)
    )


def publish(log) -> None:
    """Publish what was appended so far: one file."""
    log.roll()
    log.run_compaction()


def fill(log, count, first=0, queues=4, topics="ab", body_bytes=300):
    """Append messages: i of topic and queue by turns, 1 s apart, some with keys, headers and an ID."""
    for i in range(first, first + count):
        log.append(
            topic=topics[i % len(topics)], queue_id=i % queues, body=b"%06d" % i * (body_bytes // 6),
            keys=[f"k{i}", f"shared{i % 5}"] if i % 3 else None,
            message_id=f"id-{i}" if i % 4 == 0 else None,
            headers=[("n", b"%d" % i), ("", b"")] if i % 5 == 0 else None,
            timestamp=BEGIN_MS + 1000 * i, durability="received",
        )  # fmt: skip


def told(log, topics="ab") -> list[tuple]:
    """Return what the log itself reads of all of its queues, as `rows` does."""
    return sorted(
        (
            "n", topic, queue_id, m.offset, m.timestamp, list(m.keys),
            [{"name": name, "value": value} for name, value in m.headers], m.message_id, m.body,
        )
        for topic in topics
        for queue_id in log.queues(topic)
        for m in log.reader(topic, queue_id, log.begin_offset(topic, queue_id))
    )  # fmt: skip


COLUMNS = DEFAULT_LOG_COLUMNS[:-1]  # without the file


def scan(url, columns=COLUMNS, folder=None, **options):
    """Return what all tasks of a scan give, as one table; notes of the scan go to `folder`."""
    reader = LogReader(LogOptions.parse({"path": url, **options}), tuple(columns), folder)
    return read_all(reader, reader.partitions(), columns)


def read_all(reader, partitions, columns=COLUMNS):
    """Return what tasks give, each made of what Spark sends it."""
    reader = pickle.loads(pickle.dumps(reader))
    batches = [batch for partition in partitions for batch in reader.read(partition)]
    return pa.Table.from_batches(batches) if batches else pa.table({name: [] for name in columns})


def rows(table) -> list[tuple]:
    """Return the messages of a table as `told` does."""
    return sorted(tuple(row[name] for name in COLUMNS) for row in table.to_pylist())
