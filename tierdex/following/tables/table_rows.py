"""`FileRows`: the keys, IDs and times of a data file's rows, at their positions in the file.

A key's column may have been renamed since the table was first followed: it is known again by its physical
name or its field ID. One whose type has changed stays a key only where the same value is the same text.

Depends on errors, files, text_times, numpy and pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute

from tierdex.errors import InvalidRequestError
from tierdex.files.parquet_file import open_parquet
from tierdex.files.row_templates import milliseconds, one_array
from tierdex.text_times import RowError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tierdex.files.row_templates import Template
    from tierdex.files.table_columns import TableColumns
    from tierdex.following.tables.table_source import LiveFile

pc: Any = pyarrow.compute
_BATCH_ROWS: Final = 1 << 18


class NamedRows(NamedTuple):
    """Rows that have a name: its texts, the rows' positions (u8) and times (int64 ms)."""

    texts: Any
    positions: np.ndarray
    times: np.ndarray | int


class Part(NamedTuple):
    """Some rows of a file, up to position `end`: what is put of them, as arguments of `put_batch`."""

    end: int
    rows: int
    names: list[tuple[str, NamedRows]]
    too_long: int


class RowNames(NamedTuple):
    """What rows are indexed by: templates of their keys, their message ID and their time."""

    keys: tuple[Template, ...]
    message_id: Template | None
    time: Template | None = None
    timezone: str = "UTC"


class FileRows:
    """Reads the rows of the files of one snapshot."""

    def __init__(
        self,
        columns: TableColumns,
        first: TableColumns | None,
        names: RowNames,
        max_key_bytes: int,
    ) -> None:
        """`first` are the columns when the table was first followed. Raises InvalidRequestError."""
        self._columns = columns
        self._templates = [("key", each) for each in names.keys]
        if names.message_id is not None:
            self._templates.append(("message_id", names.message_id))
        self._time = names.time
        self._timezone = names.timezone
        self._max_key_bytes = max_key_bytes
        read = [name for _, each in self._templates for name in each.columns]
        read += [] if names.time is None else names.time.columns
        self._wanted = [
            columns.known_again(each, first) for each in (first or columns).wanted(read)
        ]

    def read(self, opened: Any, file: LiveFile, time_ms: int) -> Iterator[Part]:
        """Yield the rows of a data file. Raises InvalidRequestError for values that can be no key."""
        with open_parquet(opened, file.path, "us") as parquet:
            roots = self._columns.roots(parquet.schema_arrow, self._wanted)
            there = [each for each in dict.fromkeys(roots.values()) if each is not None]
            first = 0
            batches: Any = (
                parquet.iter_batches(_BATCH_ROWS, columns=there)
                if there
                else _without_columns(parquet.metadata.num_rows)
            )
            for batch in batches:
                if batch.num_rows:
                    rows = pa.Table.from_batches([batch])
                    yield self._part(rows, file, first, time_ms)
                    first += batch.num_rows
            if first == 0:
                yield Part(0, 0, [], 0)

    def texts_of(
        self, rows: pa.Table, partition: Mapping[str, str | None]
    ) -> list[tuple[str, Any]]:
        """Return the texts of each template for rows as a file has them, under `key` or `message_id`."""
        table = self._columns.logical(rows, self._wanted, partition)
        return [(name, one_array(each.evaluate(table))) for name, each in self._templates]

    def _part(self, rows: pa.Table, file: LiveFile, first: int, time_ms: int) -> Part:
        count = rows.num_rows
        try:
            table = self._columns.logical(rows, self._wanted, file.partition)
            positions = np.arange(first, first + count, dtype=np.uint64)
            times = self._times(table, time_ms)
            names, too_long = [], 0
            for name, template in self._templates:
                texts = one_array(template.evaluate(table))
                fits = pc.less_equal(pc.binary_length(texts), self._max_key_bytes)
                too_long += count - texts.null_count - (pc.sum(fits).as_py() or 0)
                kept = np.asarray(fits.fill_null(False))
                if kept.any():
                    own = times if isinstance(times, int) else times[kept]
                    some = texts if kept.all() else texts.filter(pa.array(kept))
                    names.append((name, NamedRows(some, positions[kept], own)))
        except RowError as error:
            raise InvalidRequestError(
                f"{file.path}, row {first + error.row}: {error}", field="key"
            ) from error
        return Part(first + count, count, names, too_long)

    def _times(self, table: pa.Table, time_ms: int) -> np.ndarray | int:
        """Return the time of each row; that of the commit where the row has none."""
        if self._time is None:
            return time_ms
        texts = one_array(self._time.evaluate(table))
        has = np.asarray(texts.is_valid())
        times = np.full(table.num_rows, time_ms, np.int64)
        if has.any():
            some = table if has.all() else table.filter(pa.array(has))
            times[has] = milliseconds(self._time, some, self._timezone)
        return times


def _without_columns(count: int) -> Iterator[pa.RecordBatch]:
    """Yield batches of rows of which a file has no wanted column: partitions or defaults have all of it."""
    for begin in range(0, count, _BATCH_ROWS):
        size = min(_BATCH_ROWS, count - begin)
        yield pa.record_batch([pa.nulls(size)], names=["\0"])
