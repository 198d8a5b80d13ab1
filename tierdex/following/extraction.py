"""Turns records into entries: one row for each key and message ID that the selectors give.

The rows of a record stand together, in the order of the records. So a batch that was cut short by a crash
lacks whole records and, of one record, the last rows: a follower that reads again from the last record that
is in, itself included, misses nothing.

Depends on errors, records, selectors, texts, text_times, value_columns, numpy and pyarrow.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from tierdex.errors import InvalidRequestError
from tierdex.following.records import NO_TIME, Parts
from tierdex.following.selectors import (
    HeaderPart,
    JsonPart,
    KeyPart,
    Selector,
    TracesPart,
    ValuePart,
    WordsPart,
)
from tierdex.following.texts import RecordTexts, Texts
from tierdex.text_times import check_timezone, readable_times
from tierdex.value_columns import meant_times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.following.records import RecordBatch

pc: Any = pyarrow.compute


@dataclass(frozen=True)
class Extraction:
    """Which parts of a record become its keys, its message ID, its time. Checked when it is made."""

    keys: tuple[Selector, ...]
    message_id: Selector | None = None
    time: Selector | None = None  # None: the record's own
    timezone: str = "UTC"  # of times that do not say it
    max_key_bytes: int = 4096
    has_own_times: bool = True  # records have times of their log

    def __post_init__(self) -> None:
        if not self.keys and self.message_id is None:
            raise InvalidRequestError("give --key, --message-id or both", field="key")
        check_timezone(self.timezone)
        for single, name in ((self.message_id, "message-id"), (self.time, "time")):
            if single and single.gives_several:
                raise InvalidRequestError(f"{single.text!r} gives several texts", field=name)

    @property
    def selectors(self) -> tuple[Selector, ...]:
        return (*self.keys, *(each for each in (self.message_id, self.time) if each))

    def wanted(self) -> Parts:
        """Return the parts of a record that are looked at."""
        parts = {
            type(part.whole if isinstance(part, WordsPart) else part)
            for selector in self.selectors
            for part in selector.sources
        }
        return Parts(
            KeyPart in parts, bool(parts & {JsonPart, TracesPart, ValuePart}), HeaderPart in parts
        )

    def entries_of(self, batch: RecordBatch) -> Extracted:
        """Return the entries of a batch, and what was wanted in vain."""
        texts = RecordTexts(batch, self.selectors)
        extracted = Extracted(len(batch), batch)
        of_keys = [self._checked(texts.of(key), key, extracted) for key in self.keys]
        of_ids: Texts | None = None
        if self.message_id is not None:
            of_ids = self._checked(texts.of(self.message_id), self.message_id, extracted)
        extracted.timestamps = self._times(batch, texts, extracted)
        extracted.unreadable = int(np.count_nonzero(texts.unreadable))
        extracted.readable = ~texts.unreadable
        _join(extracted, of_keys, of_ids)
        _leave_out_untimed(extracted)
        return extracted

    def _checked(self, found: Texts, selector: Selector, extracted: Extracted) -> Texts:
        """Leave out texts that are too long; note the records without any text."""
        lengths = pc.binary_length(found.column)
        longest = pc.max(lengths).as_py()
        if longest is not None and longest > self.max_key_bytes:
            fits = np.asarray(pc.less_equal(lengths, self.max_key_bytes))
            extracted.too_long += int(len(fits) - np.count_nonzero(fits))
            extracted.without[selector.text] = _rows_without(found.rows, extracted.records)
            return Texts(found.column.filter(pa.array(fits)), found.rows[fits])
        extracted.without[selector.text] = _rows_without(found.rows, extracted.records)
        return found

    def _times(self, batch: RecordBatch, texts: RecordTexts, extracted: Extracted) -> np.ndarray:
        if self.time is None:
            return batch.timestamps
        said = texts.column(self.time)
        stamps, is_time = readable_times(said, self.timezone)
        extracted.untimed = int(len(is_time) - np.count_nonzero(is_time))
        extracted.first_untimed = int(np.argmin(is_time)) if extracted.untimed else None
        others = batch.timestamps
        if not self.has_own_times:
            others = np.where(np.asarray(said.is_null()), others, NO_TIME)
        return np.where(is_time, stamps, others)


@dataclass
class Extracted:
    """The entries of `records` records: columns of `put_batch`, one entry a row, and counts.

    `without` has, for each key and message ID, the records (int64, rising) where it gave nothing. A text
    that is too long was there: it counts in `too_long` only. `untimed` records lack a time where it should
    stand, or have one that is not understood: theirs is their log's. In a log without times a text that is
    not understood makes no entry: any number in its place would be wrong.
    """

    records: int
    batch: RecordBatch
    rows: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    keys: Any = None
    message_ids: Any = None
    timestamps: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    readable: np.ndarray = field(default_factory=lambda: np.empty(0, bool))
    without: dict[str, np.ndarray] = field(default_factory=dict)
    unreadable: int = 0
    too_long: int = 0
    untimed: int = 0
    first_untimed: int | None = None

    @property
    def count(self) -> int:
        """Entries: keys and message IDs."""
        return len(self.rows)

    def columns(self) -> dict[str, Any]:
        """Return the columns for `put_batch`, without the topic."""
        batch, rows = self.batch, self.rows
        whole = len(rows) == self.records and bool((rows == np.arange(len(rows))).all())
        located = {
            "timestamp": self.timestamps,
            "queue_id": batch.partitions,
            "offset": batch.offsets,
            "size": batch.sizes,
        }
        if not whole:
            located = {name: column[rows] for name, column in located.items()}
        located["timestamp"] = meant_times(
            located["timestamp"]
        )  # the source's, whatever they look like
        return {"keys": self.keys, "message_id": self.message_ids, **located}


def _join(extracted: Extracted, of_keys: Sequence[Texts], of_ids: Texts | None) -> None:
    """Set `rows`, `keys` and `message_ids`: the rows of one record stand together, its ID last."""
    every = [*of_keys, *([of_ids] if of_ids else [])]
    if len(every) == 1:
        extracted.rows = every[0].rows
        extracted.keys = of_keys[0].column if of_keys else None
        extracted.message_ids = of_ids.column if of_ids else None
        return
    rows = np.concatenate([texts.rows for texts in every])
    order = np.argsort(rows, kind="stable")
    taken = pa.array(order)
    extracted.rows = rows[order]
    keys = [texts.column for texts in of_keys]
    if of_ids is None:
        extracted.keys = pa.concat_arrays(keys).take(taken)
        return
    no_keys, no_ids = (
        pa.nulls(n, pa.string()) for n in (len(of_ids.rows), len(rows) - len(of_ids.rows))
    )
    extracted.keys = pa.concat_arrays([*keys, no_keys]).take(taken)
    extracted.message_ids = pa.concat_arrays([no_ids, of_ids.column]).take(taken)


def _leave_out_untimed(extracted: Extracted) -> None:
    """Leave out the entries of records without a known time: they are counted in `untimed`."""
    is_timed = extracted.timestamps[extracted.rows] != NO_TIME
    if is_timed.all():
        return
    kept = pa.array(is_timed)
    extracted.rows = extracted.rows[is_timed]
    extracted.keys = None if extracted.keys is None else extracted.keys.filter(kept)
    extracted.message_ids = (
        None if extracted.message_ids is None else extracted.message_ids.filter(kept)
    )


def _rows_without(rows: np.ndarray, count: int) -> np.ndarray:
    has_any = np.zeros(count, bool)
    has_any[rows] = True
    return np.flatnonzero(~has_any)
