"""Batches of entries made of a piece of rows: the work of a load that all cores share.

Each row makes one entry for each of its keys. The last key's entry also carries the message ID, so a
message ID that is found proves that all keys of its row are in. A row whose key is null or empty is
skipped for that key and counted.

Where bad rows are to be skipped, each batch is checked as an index checks it, and a piece that is refused is
halved until its bad rows stand alone. All of a row is in, or nothing of it.

Depends on files, plan, rows, errors, index_service, indexfile, settings, text_times, value_columns,
numpy and pyarrow.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from tierdex.app.load.rows import check_columns
from tierdex.errors import InvalidRequestError
from tierdex.files.row_templates import Template, milliseconds, queue_numbers
from tierdex.index_service.requests.put_columns import make_entry_columns
from tierdex.indexfile.schema import MESSAGE_SCHEMA
from tierdex.settings import load_settings
from tierdex.text_times import Column, RowError
from tierdex.value_columns import meant_times

if TYPE_CHECKING:
    from tierdex.app.load.plan import Plan
    from tierdex.app.load.rows import Piece, Rows

_ENTRY = re.compile(r"entries\[(\d+)\]\.?")


class BadRow(NamedTuple):
    """A row that makes no entry: where it stands, why it was refused, and the row itself."""

    place: str
    error: str
    row: bytes


class Batch(NamedTuple):
    """The columns of one `put_batch`; its n-th entry is of row `kept[n]`, or of row n."""

    columns: dict[str, Any]
    rows: Rows
    kept: np.ndarray | None

    def placed(self, error: InvalidRequestError) -> InvalidRequestError:
        """Return a refusal of ``entries[n]`` as one of the file's row."""
        found = _ENTRY.match(error.field or "")
        if not found or error.field is None:
            return error
        row = int(found[1]) if self.kept is None else int(self.kept[int(found[1])])
        return InvalidRequestError(
            f"{error.field[found.end() :]} {error.detail}".strip(), field=self.rows.place_of(row)
        )


@dataclass
class Batches:
    """What became of a piece: batches to put, in order, bad rows, and counts as in `LoadReport`."""

    batches: list[Batch] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)
    rows: int = 0
    entries: int = 0
    message_ids: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    topics: set[str] = field(default_factory=set)


def make_batches(piece: Piece, source: str, plan: Plan, max_bad: int | None = None) -> Batches:
    """Return the batches of a piece of the file `source`. Raises InvalidRequestError naming a row's place.

    With `max_bad`, bad rows are left out; with more of them than that the rest of the piece is left undone.
    """
    made = Batches()
    _add_piece(made, piece, source, plan, max_bad)
    return made


def _add_piece(made: Batches, piece: Piece, source: str, plan: Plan, max_bad: int | None) -> None:
    if not len(piece) or (max_bad is not None and len(made.bad) > max_bad):
        return
    try:
        _add_rows(made, piece.parse(), source, plan, is_checked=max_bad is not None)
    except InvalidRequestError as error:
        if max_bad is None:
            raise
        middle = len(piece) // 2
        if middle == 0:
            made.rows += 1
            made.bad.append(BadRow(piece.place_of(0), error.detail, piece.text(0)))
            return
        _add_piece(made, piece.part(0, middle), source, plan, max_bad)
        _add_piece(made, piece.part(middle, len(piece)), source, plan, max_bad)


def _add_rows(made: Batches, rows: Rows, source: str, plan: Plan, *, is_checked: bool) -> None:
    """Add the batches of rows, all or none. Errors name the row's place."""
    check_columns(plan.columns, rows.table.column_names, source)
    try:
        columns = _entry_columns(rows, source, plan)
        ids = plan.message_id.evaluate(rows.table) if plan.message_id else None
        keys: list[Column] = [key.evaluate(rows.table) for key in plan.keys] or [None]
    except RowError as error:
        raise InvalidRequestError(str(error), field=rows.place_of(error.row)) from error
    batches = []
    for number, texts in enumerate(keys):
        row_ids = ids if number == len(keys) - 1 else None
        kept = _rows_with(texts, row_ids)
        if kept is None or len(kept):
            taken = {name: _take(column, kept) for name, column in columns.items()}
            taken |= {"keys": _take(texts, kept), "message_id": _take(row_ids, kept)}
            batches.append(Batch(taken, rows, kept))
    if is_checked:
        for batch in batches:
            _check(batch)
    made.batches += batches
    made.rows += rows.table.num_rows
    topics = columns["topic"]
    made.topics.update([topics] if isinstance(topics, str) else topics.unique().to_pylist())
    for template, texts in zip(plan.keys, keys, strict=False):
        made.skipped[template.text] += texts.null_count
        made.entries += len(texts) - texts.null_count
    if ids is not None:
        made.message_ids += len(ids) - ids.null_count
        made.entries += len(ids) - ids.null_count


def _check(batch: Batch) -> None:
    """Raise InvalidRequestError, naming the row's place, for what an index refuses."""
    fields = dict(batch.columns)
    named = {name: fields.pop(name) for name in ("topic", "keys", "message_id", "timestamp")}
    schema = fields.pop("schema", MESSAGE_SCHEMA)
    try:
        make_entry_columns(load_settings(), schema, **named, fields=fields)
    except InvalidRequestError as error:
        raise batch.placed(error) from error


def _entry_columns(rows: Rows, source: str, plan: Plan) -> dict[str, Any]:
    """Return what is the same for every key of a row: topic, timestamp, location."""
    topic: Any = plan.topic.evaluate(rows.table) if plan.topic.columns else plan.topic.text
    if not isinstance(topic, str) and topic.null_count:
        raise RowError(topic.to_pylist().index(None), f"has no topic ({plan.topic.text} is empty)")
    stamps: Any = plan.time_ms
    if plan.timestamp:
        stamps = meant_times(milliseconds(plan.timestamp, rows.table, plan.options.timezone))
    columns = {"topic": topic, "timestamp": stamps, **rows.location}
    if plan.names_source:
        columns |= {"schema": plan.schema, "source": source}
        if "queue_id" not in plan.schema.field_names:
            return columns
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
