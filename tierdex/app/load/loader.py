"""`tierdex load`: any CSV, JSONL or Parquet file becomes entries that point back at its rows.

::

    file -> reader (blocks of rows, each with its place) -> columns of entries -> Index.put_batch

One entry a row and key; the last key's entry carries the message ID too, so that a message ID that
is found says that its row is in with all keys. A row's location is the
byte offset and length of its line, or for Parquet (source, row group, row) through a schema of its
own. Rows whose key is null or empty are skipped for that key and counted.

A load is a stream of batches, each applied whole. When it stops at a bad row, the blocks before are
in; loading the mended file again is harmless, since a repeat is answered once.

Depends on the other modules of this folder.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import pyarrow as pa

from tierdex.app.load.columns import Template, check_timezone, milliseconds, queue_numbers
from tierdex.app.load.csv_rows import CsvFormat, read_csv_rows, read_header
from tierdex.app.load.jsonl_rows import read_jsonl_rows
from tierdex.app.load.parquet_rows import PARQUET_SCHEMA, read_parquet_rows
from tierdex.app.load.rows import Column, RowError, check_columns
from tierdex.app.load.sources import Source, SourceRegister
from tierdex.clock import Bell, SystemClock
from tierdex.errors import BacklogFullError, InvalidRequestError, NotFoundError
from tierdex.filesystem import LocalFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tierdex.app.load.rows import Rows
    from tierdex.clock import Clock
    from tierdex.filesystem import FileSystem

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
    """What loading needs of an index."""

    def put_batch(self, *args: Any, **columns: Any) -> Any: ...
    def flush(self, durability: str = ..., /) -> Any: ...


@dataclass(frozen=True)
class LoadOptions:
    """What of a row becomes what of an entry.

    `topic` is a name, or a template when it has braces. `keys` and `message_id` are columns or
    templates (see loading/columns.py). `timestamp` likewise; none: the file's time of change.
    `queue` is a whole number, a column or a template, with `queue_names` for text.
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
    """What was done: `rows` read, `entries` put, `skipped` rows a key template (no value there)."""

    path: Path
    kind: Kind
    rows: int = 0
    entries: int = 0
    message_ids: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    topics: set[str] = field(default_factory=set)


def load_file(
    index: PutPort,
    path: Path | str,
    options: LoadOptions,
    *,
    progress: Progress | None = None,
    sources: SourceRegister | None = None,
    filesystem: FileSystem | None = None,
    clock: Clock | None = None,
    patience_s: float = 600.0,
    durability: str = "disk",
) -> LoadReport:
    """Load a file and bring it to `durability`; `progress(done_bytes, total_bytes)` is called a block.

    `sources` remembers the file for `--show`. A full backlog is waited for, up to `patience_s`.
    Raises NotFoundError, InvalidRequestError (naming ``file:line`` or the option), and what
    `Index.put_batch` raises.
    """
    filesystem = filesystem or LocalFileSystem()
    path = Path(path).absolute()
    if not filesystem.exists(path) or filesystem.is_folder(path):
        raise NotFoundError(f"there is no file {path}")
    plan = _Plan.make(options, _kind(path, options), filesystem.modified_ms(path))
    total = filesystem.file_size(path)
    report = LoadReport(path, plan.kind, skipped=dict.fromkeys(options.keys, 0))
    if not total:
        raise InvalidRequestError(f"{path} is empty", field="file")
    put = _PatientPut(index, clock or SystemClock(), patience_s)
    form = CsvFormat(plan.delimiter(path), options.null_values)
    for rows in _read(filesystem, path, plan, form):
        _load_rows(put, rows, plan, report)
        if progress:
            progress(rows.done_bytes, total)
    if sources is not None and report.rows:
        columns = read_header(filesystem, path, form.delimiter) if plan.kind == "csv" else ()
        sources.remember(
            Source(
                str(path),
                plan.kind,
                tuple(sorted(report.topics)),
                options.keys,
                options.message_id,
                tuple(columns),
                form.delimiter,
                options.null_values,
            )
        )
    if report.rows:
        index.flush(durability)
    return report


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
    """Puts batches, and waits while the backlog is full: a load is no reason to give up early."""

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
