"""`KeepingTarget`: keeps the messages of a followed log in a message log of ours, keys and all.

The offsets of the archive are its own, without gaps; the source's have gaps. So where reading goes on
stands in the archive: each append ends with a *position message*, in the topic ``<topic>.positions``::

    append   | record | record | ... | {"0": 4711, "1": 17} |      one stage, whole or not at all after a
    crash

A record is kept once, whatever ends this process and when; so it is by the next owner of the archive's node,
who has the position of what is published. Its key and headers become headers (the key as ``key``), a record
without a value an empty body. A record that a message log cannot take (a body that is too long) is passed
over and counted. A position message whose age has come is written anew; had it gone while no follower ran,
the saved positions of the folder count.

Depends on errors, records, positions, extraction, value_columns and log_service.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson

from tierdex.errors import InvalidRequestError
from tierdex.following.positions import FILE_NAME, PositionFile
from tierdex.following.records import NO_TIME, Parts
from tierdex.log_service.read.queue_reader import refuse_missing
from tierdex.value_columns import meant_times

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tierdex.following.extraction import Extracted
    from tierdex.following.records import RecordBatch
    from tierdex.log_service.message_log import MessageLog
    from tierdex.seams import Seams

_APPEND_BYTES: Final = 2 << 20  # of bodies, keys and headers: half a stage
_ROW_BYTES: Final = 64
_POSITIONS: Final = ".positions"


class KeepingTarget:
    """One topic of a message log that this process has open for writing. See `Target`."""

    repeats_last = False

    def __init__(self, log: MessageLog, topic: str, seams: Seams) -> None:
        """Raises IncompleteAnswerError while the last position cannot be read, InvalidRequestError."""
        self._log = log
        self._topic = topic
        self._positions_topic = topic + _POSITIONS
        self._at = self._last_positions(PositionFile(seams.filesystem, self.folder))

    @property
    def folder(self) -> Path:
        return self._log.index.data_folder  # of the log, too

    def wanted(self, parts: Parts) -> Parts:
        return Parts()

    def watermark(self, partition: int) -> int | None:
        return self._at.get(partition)

    def put(self, extracted: Extracted) -> int:
        said, own = extracted.timestamps, extracted.batch.timestamps
        batch = replace(extracted.batch, timestamps=np.where(said == NO_TIME, own, said))
        keys, ids = _names(extracted)
        sizes = _row_bytes(batch)
        begin, passed_over = 0, 0
        for end in _cuts(sizes):
            rows = range(begin, end)
            try:
                self._append(batch, rows, keys, ids)
            except InvalidRequestError:
                passed_over += self._append_singly(batch, rows, keys, ids)
            begin = end
        return passed_over

    def sync(self) -> None:
        if self._at and self._position_is_gone():
            position = _position(self._at)
            self._log.append(
                topic=self._positions_topic, queue_id=0, body=position, durability="os"
            )
        self._log.flush("disk")

    def _append_singly(self, batch: RecordBatch, rows: range, keys: Any, ids: Any) -> int:
        """Append row by row; return how many were refused. The position passes those as well."""
        refused = 0
        for row in rows:
            try:
                self._append(batch, range(row, row + 1), keys, ids)
            except InvalidRequestError:
                self._append(batch, range(row, row), keys, ids, behind=row)
                refused += 1
        return refused

    def _append(
        self, batch: RecordBatch, rows: range, keys: Any, ids: Any, *, behind: int | None = None
    ) -> None:
        """Append these rows and the position behind them, or the position behind one row alone."""
        at = dict(self._at)
        for row in rows if behind is None else [behind]:
            at[int(batch.partitions[row])] = int(batch.offsets[row]) + 1
        begin, count = rows.start, len(rows)
        bodies = [value or b"" for value in (batch.values or [])[begin : rows.stop]]
        headers = [_headers(batch, row) for row in rows]
        topics = [self._topic] * count + [self._positions_topic]
        self._log.append_batch(
            topic=topics,
            queue_id=np.append(batch.partitions[begin : rows.stop], np.int32(0)),
            body=[*bodies, _position(at)],
            keys=[*keys[begin : rows.stop], []],
            message_id=[*ids[begin : rows.stop], None],
            headers=[*headers, []],
            timestamp=meant_times(np.append(batch.timestamps[begin : rows.stop], np.int64(0))),
            durability="os",
        )
        self._at = at

    def _last_positions(self, saved: PositionFile) -> dict[int, int]:
        end = self._log.end_offset(self._positions_topic, 0, level="os")
        if end == 0:
            return {}
        answer = self._log.read(self._positions_topic, 0, end - 1, max_count=1, visible="os")
        refuse_missing(answer, end - 1)
        if answer.messages:
            said = orjson.loads(answer.messages[0].body)
            return {int(partition): offset for partition, offset in said.items()}
        rows = saved.load(self._topic).partitions
        if not rows:
            raise InvalidRequestError(
                f"the positions of {self._topic!r} are gone by their age, and no {FILE_NAME} tells them: "
                "follow into another topic",
                field="topic",
            )
        return {partition: row.next for partition, row in rows.items()}

    def _position_is_gone(self) -> bool:
        begin = self._log.begin_offset(self._positions_topic, 0)
        return begin == self._log.end_offset(self._positions_topic, 0, level="os")


def _position(at: Mapping[int, int]) -> bytes:
    return orjson.dumps({str(partition): offset for partition, offset in at.items()})


def _names(extracted: Extracted) -> tuple[list[list[str]], list[str | None]]:
    """Return, for each record, its keys and its message ID."""
    keys: list[list[str]] = [[] for _ in range(extracted.records)]
    ids: list[str | None] = [None] * extracted.records
    rows = extracted.rows.tolist()
    if extracted.keys is not None:
        for row, key in zip(rows, extracted.keys.to_pylist(), strict=True):
            if key is not None and key not in keys[row]:
                keys[row].append(key)
    if extracted.message_ids is not None:
        for row, text in zip(rows, extracted.message_ids.to_pylist(), strict=True):
            if text is not None:
                ids[row] = text
    return keys, ids


def _headers(batch: RecordBatch, row: int) -> list[tuple[str, bytes]]:
    headers = list((batch.headers[row] if batch.headers else None) or ())
    key = batch.keys[row] if batch.keys else None
    return headers if key is None else [("key", key), *headers]


def _row_bytes(batch: RecordBatch) -> np.ndarray:
    """Return about what each record takes in a stage: int64[n]."""
    sizes: np.ndarray = batch.sizes.astype(np.int64) * 2 + _ROW_BYTES  # keys come out of bodies
    if batch.headers is not None:
        extra = [sum(len(n) + len(v) for n, v in each) if each else 0 for each in batch.headers]
        sizes = sizes + np.array(extra, np.int64)
    if batch.keys is not None:
        sizes = sizes + np.array([len(key or b"") for key in batch.keys], np.int64)
    return sizes


def _cuts(sizes: np.ndarray) -> list[int]:
    """Return the ends of runs of rows that fit an append; a row may be longer than that alone."""
    ends, total = [], 0
    for row, size in enumerate(sizes.tolist()):
        if total and total + size > _APPEND_BYTES:
            ends.append(row)
            total = 0
        total += size
    return [*ends, len(sizes)] if len(sizes) else []
