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

import logging
import threading
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import google_crc32c
import numpy as np

from tierdex.errors import CorruptFileError, NotFoundError
from tierdex.indexfile.schema import TOPIC_DICTIONARY
from tierdex.lifecycle.manifests import changes
from tierdex.lifecycle.manifests.changes import TableDraft
from tierdex.lifecycle.manifests.manifest import QueueTableRef
from tierdex.lifecycle.paths import StorePaths

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tierdex.compactor.components import CompactorComponents
    from tierdex.indexfile.compacted.sidecar import Sidecar
    from tierdex.lifecycle.manifests.manifest import FileRow, ManifestState
    from tierdex.storage_layer.base import Store

logger = logging.getLogger(__name__)

READS: Final = 3  # of a file that leaves the list, until its ends are given up
PAYS_FOR_A_TABLE: Final = 50  # bytes published since the last one, for each byte of the next
_SMALL: Final = 4096  # a table's bytes when it is small, about
_ROW_BYTES: Final = 16
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
    def of_mapping(cls, ends: Mapping[tuple[str, int], int]) -> QueueEnds:
        """Return what a manifest of format 1 said."""
        numbers = {topic: number for number, topic in enumerate(sorted({t for t, _ in ends}))}
        items = sorted((numbers[topic], queue_id, end) for (topic, queue_id), end in ends.items())
        return cls(list(numbers), np.array(items, _ENDS))

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


def table_if_it_pays(
    components: CompactorComponents, row: FileRow, reader: Sidecar
) -> TableDraft | None:
    """Upload the next table, with the ends of the file `row`, when enough bytes were published since.

    Also when the manifest still holds end offsets itself, as in format 1.
    """
    state = components.claim.get().state
    published = row.bytes + sum(state.files[uuid].bytes for uuid in state.uncovered)
    before = _SMALL if state.queue_table is None else max(_SMALL, state.queue_table.bytes)
    expected = before + _ROW_BYTES * len(reader.plan.queues)
    if not state.end_offsets and expected * PAYS_FOR_A_TABLE > published:
        return None
    return _draft(components, state, [QueueEnds.of_sidecar(reader)])


def cover(components: CompactorComponents, uuids: Iterable[bytes]) -> None:
    """Commit a table before `uuids` leave the list, if one of them tells more than the newest table."""
    node = components.claim.get()
    leaving = node.state.uncovered.intersection(uuids)
    if not leaving:
        return
    draft = _draft(components, node.state, [], leaving)
    # Durable before the files leave the list: no watermark falls.
    node.commit(lambda state: changes.cover_ends(state, draft))


def _draft(
    components: CompactorComponents,
    state: ManifestState,
    more: list[QueueEnds],
    leaving: Collection[bytes] = (),
) -> TableDraft:
    """Upload a table of what the newest one, the uncovered files and `more` tell.

    A file that cannot be read stays uncovered: a later table tells its ends. One of `leaving` is read
    again; then it is given up, since retention must end: the watermark is too low from there on, and
    a broker replays more, which is harmless.
    """
    told = [QueueEnds.of_mapping(state.end_offsets), *more]
    if state.queue_table is not None:
        told.insert(0, components.queue_tables.read(state.queue_table))
    covered = set(leaving)
    for uuid in state.uncovered:
        ends = _ends_of(components, state.files[uuid], reads=READS if uuid in leaving else 1)
        if ends is not None:
            told.append(ends)
            covered.add(uuid)
    ref = components.queue_tables.write(
        state.node, state.number, components.ids.uuid(), QueueEnds.join(told)
    )
    return TableDraft(ref, state.queue_table, frozenset(covered))


def _ends_of(components: CompactorComponents, row: FileRow, *, reads: int) -> QueueEnds | None:
    """Return what a published file tells; None when no read gives it as it was written."""
    for _ in range(reads):  # damage may lie in between: then the next read is another
        try:
            return QueueEnds.of_sidecar(components.reader_of_row(row).sidecar())
        except (CorruptFileError, NotFoundError) as error:
            logger.warning("ends not told", extra={"object": row.object_key, "error": str(error)})
    return None
