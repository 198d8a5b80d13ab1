"""`tierdex load`: makes entries of the rows of a CSV, JSONL or Parquet file.

::

    file -> reader (blocks of rows, each with its place) -> columns of entries -> Index.put_batch

Each row makes one entry for each of its keys. The last key's entry also carries the message ID, so a
message ID that is found proves that all keys of its row are in. The location of a row is the byte
offset and length of its line; for Parquet it is (source, row group, row), in a schema of its own. A
row whose key is null or empty is skipped for that key and counted.

A load is a stream of batches, each applied as a whole. When the load stops at a bad row, the blocks
before it are in. Loading the corrected file again is harmless: queries drop repeated entries.

Depends on text_times and the other modules of this folder.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import pyarrow as pa

from tierdex.app.load.columns import Template, milliseconds, queue_numbers
from tierdex.app.load.csv_rows import CsvFormat, read_csv_rows, read_header
from tierdex.app.load.jsonl_rows import read_jsonl_rows
from tierdex.app.load.parquet_rows import PARQUET_SCHEMA, read_parquet_rows
from tierdex.app.load.register import LoadedFile, LoadRegister
from tierdex.app.load.rows import check_columns
from tierdex.clock import Bell, SystemClock
from tierdex.errors import BacklogFullError, InvalidRequestError, NotFoundError
from tierdex.filesystem import LocalFileSystem
from tierdex.text_times import Column, RowError, check_timezone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tierdex.app.load.rows import Rows
    from tierdex.clock import Clock
    from tierdex.filesystem import FileSystem
    from tierdex.value_rules import Durability

    Progress = Callable[[int, int], None]

Kind = Literal["csv", "jsonl", "parquet"]
KINDS: dict[str, Kind] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
}
_ENTRY = re.compile(r"entries\[(\d+)\]\.?")


class PutPort(Protocol):
    """The verbs of an index that loading calls."""

    def put_batch(self, *args: Any, **columns: Any) -> Any: ...
    def flush(self, durability: Durability = ..., /) -> Any: ...


@dataclass(frozen=True)
class LoadOptions:
    """How the columns of a row become the fields of an entry.

    `topic` is a name, or a template when it has braces. `keys`, `message_id` and `timestamp` are
    columns or templates (see load/columns.py); without `timestamp` an entry has the time of the file's
    last change. `queue` is a whole number, a column or a template; `queue_names` numbers its texts.
    """

    topic: str
    keys: tuple[str, ...] = ()
    message_id: str | None = None
    timestamp: str | None = None
    timezone: str | None = None
    queue: str | None = None
    queue_names: Mapping[str, int] | None = None
    kind: Kind | None = None
    delimiter: str | None = None
    null_values: tuple[str, ...] = ("",)


@dataclass
class LoadReport:
    """Counts of a load: `rows` read, `entries` put, `skipped` rows of each key template (no value)."""

    path: Path
    kind: Kind
    rows: int = 0
    entries: int = 0
    message_ids: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    topics: set[str] = field(default_factory=set)


class Loader:
    """Loads files into one index. Not for several threads at once."""

    def __init__(
        self,
        index: PutPort,
        *,
        register: LoadRegister | None = None,
        filesystem: FileSystem | None = None,
        clock: Clock | None = None,
        patience_s: float = 600.0,
    ) -> None:
        """`register` remembers each file for `--show`. A full backlog is waited for: `patience_s`."""
        self._index = index
        self._register = register
        self._filesystem = filesystem or LocalFileSystem()
        self._put = _PatientPut(index, clock or SystemClock(), patience_s)

    def load(
        self,
        path: Path | str,
        options: LoadOptions,
        progress: Progress | None = None,
        *,
        durability: Durability = "disk",
    ) -> LoadReport:
        """Load a file and bring it to `durability`; call `progress(done_bytes, total_bytes)` a block.

        Raises NotFoundError, InvalidRequestError (naming ``file:line`` or the option), and what
        `Index.put_batch` raises.
        """
        filesystem, path = self._filesystem, Path(path).absolute()
        if not filesystem.exists(path) or filesystem.is_folder(path):
            raise NotFoundError(f"there is no file {path}")
        plan = _Plan.make(options, _kind(path, options), filesystem.modified_ms(path))
        total = filesystem.file_size(path)
        report = LoadReport(path, plan.kind, skipped=dict.fromkeys(options.keys, 0))
        if not total:
            raise InvalidRequestError(f"{path} is empty", field="file")
        form = CsvFormat(plan.delimiter(path), options.null_values)
        for rows in _read(filesystem, path, plan, form):
            _load_rows(self._put, rows, plan, report)
            if progress:
                progress(rows.done_bytes, total)
        if report.rows:
            self._remember(report, options, form)
            self._index.flush(durability)
        return report

    def _remember(self, report: LoadReport, options: LoadOptions, form: CsvFormat) -> None:
        if self._register is None:
            return
        is_csv = report.kind == "csv"
        header = read_header(self._filesystem, report.path, form.delimiter) if is_csv else ()
        self._register.remember(
            LoadedFile(
                str(report.path),
                report.kind,
                tuple(sorted(report.topics)),
                options.keys,
                options.message_id,
                tuple(header),
                form.delimiter,
                options.null_values,
            )
        )


@dataclass(frozen=True)
class _Plan:
    """The options, parsed and checked before the file is touched."""

    options: LoadOptions
    kind: Kind
    topic: Template
    keys: tuple[Template, ...]
    message_id: Template | None
    timestamp: Template | None
    queue: Template | int
    modified_ms: int

    @classmethod
    def make(cls, options: LoadOptions, kind: Kind, modified_ms: int) -> _Plan:
        if not options.keys and options.message_id is None:
            raise InvalidRequestError("give --key, --message-id or both", field="key")
        if options.timezone is not None:
            check_timezone(options.timezone)
        if kind == "parquet" and options.queue is not None:
            raise InvalidRequestError("a row of a Parquet file has no queue", field="queue")
        topic = Template.parse(options.topic, field="topic")
        if not topic.columns or topic.columns == [options.topic]:
            topic = Template(options.topic, ((options.topic, None, 0, None),))
        queue: Template | int = 0
        if options.queue is not None:
            is_number = options.queue.isascii() and options.queue.isdigit()
            queue = (
                int(options.queue) if is_number else Template.parse(options.queue, field="queue")
            )
        return cls(
            options,
            kind,
            topic,
            tuple(Template.parse(key, field="key") for key in options.keys),
            _optional(options.message_id, "message-id"),
            _optional(options.timestamp, "timestamp"),
            queue,
            modified_ms,
        )

    @property
    def columns(self) -> list[str]:
        """Every column that is needed, once."""
        templates = [self.topic, *self.keys, self.message_id, self.timestamp, self.queue]
        names = [n for t in templates if isinstance(t, Template) for n in t.columns]
        return list(dict.fromkeys(names))

    @property
    def time_columns(self) -> frozenset[str]:
        """Columns that are read as times and nothing else."""
        if self.timestamp is None or self.timestamp.columns != [self.timestamp.text]:
            return frozenset()
        others = (self.topic, *self.keys, self.message_id, self.queue)
        used = {n for t in others if isinstance(t, Template) for n in t.columns}
        return frozenset(self.timestamp.columns) - used

    def delimiter(self, path: Path) -> str:
        delimiter = self.options.delimiter or ("\t" if path.suffix.lower() == ".tsv" else ",")
        if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
            raise InvalidRequestError("is one ASCII character", field="delimiter")
        return delimiter


def _optional(text: str | None, field: str) -> Template | None:
    return Template.parse(text, field=field) if text is not None else None


class _PatientPut:
    """Puts batches; while the backlog is full it waits, `patience_s` at most."""

    def __init__(self, index: PutPort, clock: Clock, patience_s: float) -> None:
        self._index = index
        self._clock = clock
        self._patience_s = patience_s

    def __call__(self, **columns: Any) -> None:
        give_up = self._clock.monotonic() + self._patience_s
        while True:
            try:
                self._index.put_batch(**columns)
            except BacklogFullError as error:
                if self._clock.monotonic() >= give_up:
                    raise
                self._clock.wait(Bell(), error.retry_after_s)
            else:
                return


def _kind(path: Path, options: LoadOptions) -> Kind:
    kind = options.kind or KINDS.get(path.suffix.lower())
    if kind is None:
        known = ", ".join(KINDS)
        raise InvalidRequestError(
            f"cannot tell the format of {path.name}: the name ends in none of {known}", field="file"
        )
    return kind


def _read(filesystem: FileSystem, path: Path, plan: _Plan, form: CsvFormat) -> Iterator[Rows]:
    if plan.kind == "csv":
        return read_csv_rows(filesystem, path, plan.columns, form)
    if plan.kind == "jsonl":
        return read_jsonl_rows(filesystem, path, plan.columns, times=plan.time_columns)
    return read_parquet_rows(path, plan.columns)


def _load_rows(put: _PatientPut, rows: Rows, plan: _Plan, report: LoadReport) -> None:
    """Turn one block into entries. Errors name the row's place."""
    check_columns(plan.columns, rows.table.column_names, report.path)
    try:
        columns = _entry_columns(rows, plan)
        ids = plan.message_id.evaluate(rows.table) if plan.message_id else None
        keys: list[Column] = [key.evaluate(rows.table) for key in plan.keys] or [None]
    except RowError as error:
        raise InvalidRequestError(str(error), field=rows.place_of(error.row)) from error
    topics = columns["topic"]
    report.topics.update([topics] if isinstance(topics, str) else topics.unique().to_pylist())
    report.rows += rows.table.num_rows
    for number, texts in enumerate(keys):
        if texts is not None:
            report.skipped[plan.keys[number].text] += texts.null_count
            report.entries += len(texts) - texts.null_count
        row_ids = ids if number == len(keys) - 1 else None
        kept = _rows_with(texts, row_ids)
        taken = {name: _take(column, kept) for name, column in columns.items()}
        try:
            if kept is None or len(kept):
                put(keys=_take(texts, kept), message_id=_take(row_ids, kept), **taken)
        except InvalidRequestError as error:
            raise _with_place(error, rows, kept) from error
    if ids is not None:
        report.message_ids += len(ids) - ids.null_count
        report.entries += len(ids) - ids.null_count


def _entry_columns(rows: Rows, plan: _Plan) -> dict[str, Any]:
    """Return what is the same for every key of a row: topic, timestamp, location."""
    topic: Any = plan.topic.evaluate(rows.table) if plan.topic.columns else plan.topic.text
    if not isinstance(topic, str) and topic.null_count:
        raise RowError(topic.to_pylist().index(None), f"has no topic ({plan.topic.text} is empty)")
    stamps: Any = plan.modified_ms
    if plan.timestamp:
        stamps = milliseconds(plan.timestamp, rows.table, plan.options.timezone)
    columns = {"topic": topic, "timestamp": stamps, **rows.location}
    if plan.kind == "parquet":
        return {**columns, "schema": PARQUET_SCHEMA}
    queue: Any = plan.queue
    if isinstance(queue, Template):
        queue = queue_numbers(queue, rows.table, plan.options.queue_names)
    return {**columns, "queue_id": queue}


def _rows_with(texts: Column, ids: Column) -> np.ndarray | None:
    """Return the rows (int64) that have a key or a message ID; None when all have."""
    present = [column for column in (texts, ids) if column is not None]
    if any(column.null_count == 0 for column in present):
        return None
    has_any = np.zeros(len(present[0]), bool)
    for column in present:
        has_any |= column.is_valid().to_numpy(zero_copy_only=False)
    return np.flatnonzero(has_any)


def _take(column: Any, kept: np.ndarray | None) -> Any:
    if kept is None or not isinstance(column, pa.Array | np.ndarray):
        return column
    return column[kept] if isinstance(column, np.ndarray) else column.take(pa.array(kept))


def _with_place(
    error: InvalidRequestError, rows: Rows, kept: np.ndarray | None
) -> InvalidRequestError:
    """Return a refusal of ``entries[n]`` as one of the file's row."""
    found = _ENTRY.match(error.field or "")
    if not found or error.field is None:
        return error
    row = int(found[1]) if kept is None else int(kept[int(found[1])])
    return InvalidRequestError(
        f"{error.field[found.end() :]} {error.detail}".strip(), field=rows.place_of(row)
    )
