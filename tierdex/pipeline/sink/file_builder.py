"""Builds compacted files of a task's rows: gather, sort by hash, write, upload. No reader sees them.

::

    batches -> rows (one file's worth in memory) -> sorted, newest row first among equals
            -> a temporary file of the executor -> verified -> one object -> FileRow

The order of arrival is the order of rows in the task. The row's number is 0: the commit that
publishes the row gives it a number, since only a commit knows which are free. An object that is
never published is garbage, which the node's next collection removes.

Depends on indexfile, compactor, lifecycle, the store, fileparts and entry_rows.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tierdex.compactor.file_row import make_row
from tierdex.compactor.rewrite import CHUNK_ITEMS
from tierdex.compactor.upload import upload_file
from tierdex.errors import InvalidRequestError
from tierdex.fileparts.dictionary import Dictionaries
from tierdex.indexfile.compacted.writer import FilePlan
from tierdex.indexfile.row_bounds import RowBounds
from tierdex.indexfile.schema import join_rows
from tierdex.lifecycle.paths import StorePaths
from tierdex.pipeline.sink.entry_rows import name_row, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from tierdex.clock import Clock
    from tierdex.ids import IdSource
    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.pipeline.sink.entry_form import EntryForm
    from tierdex.settings import Settings
    from tierdex.storage_layer.base import Store

_SLOTS_PER_ITEM = 0.25


class BuildTask(NamedTuple):
    """One task of a write: whose files it builds, and how they are cut."""

    node: str
    read_number: (
        int  # a manifest number of `node` that was read before; it goes into objects' names
    )
    partition: int
    target_entries: int  # of one file, at most
    time_bucket_ms: int  # no file holds two of these; 0: cut by count alone


class FileBuilder:
    """Turns one task's batches into files of at most `target_entries` entries. One thread."""

    def __init__(
        self,
        task: BuildTask,
        form: EntryForm,
        *,
        store: Store,
        settings: Settings,
        clock: Clock,
        ids: IdSource,
    ) -> None:
        self._task = task
        self._form = form
        self._store = store
        self._paths = StorePaths(task.node)
        self._settings = settings
        self._clock = clock
        self._ids = ids
        self._begin_ms = clock.now_ms()
        self._rows_seen = 0
        self._published: list[FileRow] = []
        self._start_file()

    def _start_file(self) -> None:
        self._dictionaries = Dictionaries(self._form.schema.dictionary_names)
        self._held: list[np.ndarray] = []
        self._entries = 0
        self._bucket: int | None = None

    def add_all(self, batches: Iterable[pa.RecordBatch]) -> list[FileRow]:
        """Build files of all batches; return their rows. Raises InvalidRequestError, store's errors."""
        for batch in batches:
            for bucket, piece in self._pieces(batch):
                if self._bucket is not None and bucket != self._bucket:
                    self._finish_file()
                self._bucket = bucket
                self._add(piece)
        self._finish_file()
        return self._published

    def _pieces(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Cut a batch where the time bucket changes."""
        if not self._task.time_bucket_ms or not batch.num_rows:
            yield 0, batch
            return
        buckets = _times(batch) // self._task.time_bucket_ms
        cuts = [0, *(np.flatnonzero(np.diff(buckets)) + 1).tolist(), batch.num_rows]
        for low, high in pairwise(cuts):
            yield int(buckets[low]), batch.slice(low, high - low)

    def _add(self, batch: pa.RecordBatch) -> None:
        while batch.num_rows:
            room = self._task.target_entries - self._entries
            if not room:
                bucket = self._bucket
                self._finish_file()
                self._bucket = bucket
                continue
            piece = batch.slice(0, room)
            try:
                rows = rows_of(self._form, piece, self._dictionaries, self._settings)
                self._held += [part for part in rows if len(part)]
            except InvalidRequestError as error:
                raise name_row(error, self._task.partition, self._rows_seen) from error
            self._dictionaries.keep()
            self._entries += piece.num_rows
            self._rows_seen += piece.num_rows
            batch = batch.slice(piece.num_rows)

    def _finish_file(self) -> None:
        if self._held:
            rows = join_rows(self._held)
            self._held = []
            self._published.append(self._write(rows))
        self._start_file()

    def _write(self, rows: np.ndarray) -> FileRow:
        plan = FilePlan(
            uuid=self._ids.uuid(),
            schema=self._form.schema,
            dictionaries=self._dictionaries,
            slot_count=max(1, round(len(rows) * _SLOTS_PER_ITEM)),
            bounds=RowBounds.measure(self._form.schema, [rows]),
            expected_items=len(rows),
            dates={"begin_ms": self._begin_ms, "sealed_at_ms": self._clock.now_ms()},
        )
        key = self._paths.file_object(self._task.read_number, plan.uuid)
        summary = upload_file(
            self._store,
            key,
            _in_hash_order(rows),
            plan,
            filter_bits=self._settings.filter_bits,
            created_ms=plan.dates["sealed_at_ms"],
        )
        return make_row(summary, plan.uuid, key, plan.dates)


def _in_hash_order(rows: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the rows sorted by hash, the last row first among equal hashes."""
    count = len(rows)
    newest_first = np.ascontiguousarray(rows["key_hash"][::-1])
    order = (count - 1) - np.argsort(newest_first, kind="stable")
    for first in range(0, count, CHUNK_ITEMS):
        yield rows.take(order[first : first + CHUNK_ITEMS])


def _times(batch: pa.RecordBatch) -> np.ndarray:
    """Return the batch's times in milliseconds; wrong ones are found when the batch is read."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = batch.column("timestamp")
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
        column = pc.divide(column, 1000)
    return np.asarray(column.fill_null(0)).astype(np.int64, copy=False)
