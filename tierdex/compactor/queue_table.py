"""The published end offset of each queue: the ends of files, joined into one object now and then.

::

    queue table (all files up to then)  +  sidecars of the *uncovered* files since  =  `remote`

A file's sidecar has the end offset of each of its queues. Files expire, so their ends are put into
a queue table before they leave the list, and also whenever 2 % of the bytes published since the
last table pay for it: a commit costs what it changes, however many queues there are. The table is
an immutable object, named and collected as files are: an orphan until a commit names it, dropped by
the commit that names the next. A table never has a lower end than the one before it.

Its bytes are one Arrow stream (topic: dictionary of strings, queue_id i4, end i8), ordered by
(topic's number, queue_id). The manifest has its length and CRC32C.

Depends on indexfile, lifecycle and the store.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import google_crc32c
import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.indexfile.schema import TOPIC_DICTIONARY
from tierdex.lifecycle.manifests.manifest import QueueTableRef
from tierdex.lifecycle.paths import StorePaths

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tierdex.indexfile.compacted.sidecar import Sidecar
    from tierdex.storage_layer.base import Store

_ENDS: Final = np.dtype([("topic", "<i4"), ("queue_id", "<i4"), ("end", "<i8")])


@dataclass(frozen=True)
class QueueEnds:
    """End offsets of queues. `rows` (topic: index of `names`) in the order of (topic, queue_id)."""

    names: Sequence[str]
    rows: np.ndarray

    @classmethod
    def of_sidecar(cls, sidecar: Sidecar) -> QueueEnds:
        """Return what one file tells."""
        queues = sidecar.plan.queues
        rows = np.zeros(len(queues), _ENDS)
        for name in ("topic", "queue_id", "end"):
            rows[name] = queues[name]
        return cls(sidecar.dictionaries.strings(TOPIC_DICTIONARY), rows)

    @classmethod
    def join(cls, many: Iterable[QueueEnds]) -> QueueEnds:
        """Return the greatest end of each queue."""
        numbers: dict[str, int] = {}
        moved = [np.zeros(0, _ENDS)]
        for ends in many:
            remap = [numbers.setdefault(name, len(numbers)) for name in ends.names]
            rows = ends.rows.copy()
            rows["topic"] = np.array(remap, np.int32)[rows["topic"]]
            moved.append(rows)
        rows = np.concatenate(moved)
        rows = rows[np.lexsort((rows["end"], rows["queue_id"], rows["topic"]))]
        is_last = np.ones(len(rows), bool)  # of its queue: the greatest end
        is_last[:-1] = (rows["topic"][1:] != rows["topic"][:-1]) | (
            rows["queue_id"][1:] != rows["queue_id"][:-1]
        )
        return cls(list(numbers), rows[is_last])

    @classmethod
    def decode(cls, data: bytes, ref: QueueTableRef) -> QueueEnds:
        """Return the table in `data`. Raises CorruptFileError."""
        import pyarrow as pa

        if len(data) != ref.bytes or google_crc32c.value(data) != ref.crc:
            raise CorruptFileError(ref.object_key, "is not the queue table that the manifest names")
        try:
            with pa.ipc.open_stream(data) as stream:
                table = stream.read_all().combine_chunks()
            topic = table.column("topic").chunk(0) if table.num_rows else None
            rows = np.zeros(table.num_rows, _ENDS)
            if topic is None:
                return cls([], rows)
            rows["topic"] = topic.indices.to_numpy()
            rows["queue_id"] = table.column("queue_id").to_numpy()
            rows["end"] = table.column("end").to_numpy()
        except (pa.ArrowException, KeyError, ValueError) as error:
            raise CorruptFileError(ref.object_key, f"not a queue table: {error}") from error
        return cls(topic.dictionary.to_pylist(), rows)

    def encode(self) -> bytes:
        """Return the object's bytes."""
        import pyarrow as pa

        columns: dict[str, Any] = {
            "topic": pa.DictionaryArray.from_arrays(
                np.ascontiguousarray(self.rows["topic"]), pa.array(self.names, pa.string())
            ),
            "queue_id": np.ascontiguousarray(self.rows["queue_id"]),
            "end": np.ascontiguousarray(self.rows["end"]),
        }
        table = pa.table(columns)
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
            writer.write_table(table)
        data: bytes = sink.getvalue().to_pybytes()
        return data

    def of(self, topic: str, queue_id: int) -> int | None:
        """Return the queue's end offset; None when it is unknown."""
        number = self._numbers.get(topic)
        if number is None:
            return None
        place = int(np.searchsorted(self._places, (number << 32) + queue_id))
        if place == len(self.rows) or self._places[place] != (number << 32) + queue_id:
            return None
        return int(self.rows["end"][place])

    @cached_property
    def _numbers(self) -> Mapping[str, int]:
        return {name: number for number, name in enumerate(self.names)}

    @cached_property
    def _places(self) -> np.ndarray:
        places: np.ndarray = (self.rows["topic"].astype(np.int64) << 32) + self.rows["queue_id"]
        return places


class QueueTables:
    """Reads and writes the tables of nodes; keeps the last one. Safe to share between threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._kept: tuple[QueueTableRef, QueueEnds] | None = None

    def read(self, ref: QueueTableRef) -> QueueEnds:
        """Return a table, with one request unless it is kept. Raises CorruptFileError, store's errors."""
        with self._lock:
            if self._kept is None or self._kept[0] != ref:
                data = self._store.get(ref.object_key)
                self._kept = ref, QueueEnds.decode(data, ref)
            return self._kept[1]

    def write(self, node: str, read_number: int, uuid: bytes, ends: QueueEnds) -> QueueTableRef:
        """Upload a table; no reader sees it until a commit names it."""
        data = ends.encode()
        key = StorePaths(node).queue_table(read_number, uuid)
        self._store.put(key, data)
        ref = QueueTableRef(key, uuid, len(data), google_crc32c.value(data))
        with self._lock:
            self._kept = ref, ends
        return ref
