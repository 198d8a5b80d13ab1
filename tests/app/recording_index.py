"""A small index in memory that keeps what is put, for tests of what loads into one."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tierdex.index_service.answer import Answer, Entry
from tierdex.index_service.requests.put_columns import make_entry_columns
from tierdex.indexfile.schema import MESSAGE_SCHEMA
from tierdex.settings import Settings


class Put(NamedTuple):
    topic: str
    key: str | None
    message_id: str | None
    timestamp: int
    location: dict


class RecordingIndex:
    """Checks batches as an index does; `failures` are raised by the next calls, first one first."""

    def __init__(self, failures=()):
        self.puts: list[Put] = []
        self.batches = 0
        self.flushed: list[str] = []
        self._failures = list(failures)
        self._settings = Settings()

    def put_batch(
        self, *, topic, keys=None, message_id=None, timestamp, schema=MESSAGE_SCHEMA, **location
    ):
        if self._failures:
            raise self._failures.pop(0)
        columns = make_entry_columns(
            self._settings,
            schema,
            topic=topic,
            keys=keys,
            message_id=message_id,
            timestamp=timestamp,
            fields=location,
        )
        self.batches += 1
        for column in (topic, keys, message_id):
            assert column is None or isinstance(column, str | pa.Array)
        for row in range(columns.count):
            place = 0 if columns.topic_index is None else int(columns.topic_index[row])
            self.puts.append(
                Put(
                    columns.topics[place],
                    columns.keys[row].as_py() if columns.keys is not None else None,
                    columns.message_ids[row].as_py() if columns.message_ids is not None else None,
                    int(columns.timestamp[row]),
                    {name: _value(column, row) for name, column in columns.fields.items()},
                )
            )
        return "os"

    def flush(self, durability="os"):
        self.flushed.append(durability)
        return durability

    def query(self, topic=None, *, key=None, message_id=None):
        found = [
            Entry(
                put.topic,
                put.location.get("queue_id"),
                put.location.get("offset"),
                put.location.get("size"),
                put.timestamp,
                "",
                "unsealed",
                "",
                put.location,
                put.location.get("source"),
            )
            for put in self.puts
            if (message_id is not None and put.message_id == message_id)
            or (key is not None and put.topic == topic and put.key == key)
        ]
        return Answer(found)


def _value(column, row):
    if isinstance(column, tuple):
        return column[0][int(column[1][row])]
    return np.asarray(column)[row].item()
