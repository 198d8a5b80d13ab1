"""Columns that an append takes: bytes without Python objects, messages by column.

`BinaryColumn` is Arrow's layout (offsets into one run of bytes), without a copy where the caller has
Arrow; `MessageColumns` is what a journal stages; `QueueColumns` names queues.

Bounds are checked at construction, since kernels trust them. Depends on layout, fileparts and
message_columns; pyarrow is loaded when an Arrow array comes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tierdex.errors import InvalidRequestError
from tierdex.fileparts.memory import address
from tierdex.logfile import layout
from tierdex.logfile.kernels import message_columns as k

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ROW_BYTES_MOST = layout.ROW_BYTES + layout.LONG_TIME_BYTES + layout.EXTRA_LENGTH_BYTES + 3


class BinaryColumn:
    """A column of bytes: row i is `data[offsets[i] : offsets[i + 1]]`.

    `offsets` i4 or i8, `data` u1, both contiguous. Borrows its buffers and keeps them alive. Immutable.
    """

    __slots__ = ("data", "largest", "offsets")

    def __init__(self, offsets: np.ndarray, data: np.ndarray, *, field: str = "body") -> None:
        """Take the buffers. Raises InvalidRequestError, naming `field`, when bounds are broken."""
        assert offsets.dtype in (np.int32, np.int64), offsets.dtype
        assert data.dtype == np.uint8, data.dtype
        self.offsets = np.ascontiguousarray(offsets)
        self.data = np.ascontiguousarray(data)
        count = len(offsets) - 1
        self.largest = -1  # bytes of the longest value
        if count >= 0:
            self.largest = int(k.greatest_length(*self._place, count, len(self.data)))
        if self.largest < 0:
            raise InvalidRequestError("offsets are out of bounds", field=field)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def content_bytes(self) -> int:
        """Bytes of all values."""
        return int(self.offsets[-1]) - int(self.offsets[0])

    @property
    def _place(self) -> tuple[int, int]:
        return address(self.offsets), self.offsets.itemsize

    def slice(self, first: int, end: int) -> BinaryColumn:
        """Return the rows [first, end), without a copy; `largest` stays what no value is above."""
        part = object.__new__(BinaryColumn)
        part.data, part.largest = self.data, self.largest
        part.offsets = self.offsets[first : end + 1]
        return part

    def first_longer(self, most: int) -> int:
        """Return the first row of more than `most` bytes, or -1."""
        if self.largest <= most:
            return -1
        return int(k.first_longer(*self._place, len(self), most))

    @classmethod
    def from_values(cls, values: Iterable[bytes], *, field: str = "body") -> BinaryColumn:
        """Return a column of a few values, which are copied."""
        listed = list(values)
        offsets = np.zeros(len(listed) + 1, np.int64)
        np.cumsum([len(value) for value in listed], out=offsets[1:])
        return cls(offsets, np.frombuffer(b"".join(listed), np.uint8), field=field)

    @classmethod
    def from_arrow(cls, array: Any, *, field: str = "body") -> BinaryColumn:
        """Return a column over an Arrow array of binary or string, without a copy.

        Raises InvalidRequestError for other types and for nulls.
        """
        import pyarrow as pa

        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        kind = array.type
        if pa.types.is_large_binary(kind) or pa.types.is_large_string(kind):
            width: np.dtype = np.dtype(np.int64)
        elif pa.types.is_binary(kind) or pa.types.is_string(kind):
            width = np.dtype(np.int32)
        else:
            raise InvalidRequestError(f"holds {kind}, not binary", field=field)
        if array.null_count:
            raise InvalidRequestError("holds nulls", field=field)
        _, offset_buffer, data_buffer = array.buffers()
        if not len(array) or offset_buffer is None:
            return cls(np.zeros(1, width), np.empty(0, np.uint8), field=field)
        if offset_buffer.size < width.itemsize * (array.offset + len(array) + 1):
            raise InvalidRequestError("offsets are cut", field=field)
        offsets = np.frombuffer(offset_buffer, width, len(array) + 1, width.itemsize * array.offset)
        has_bytes = data_buffer is not None and data_buffer.size
        data = np.frombuffer(data_buffer, np.uint8) if has_bytes else np.empty(0, np.uint8)
        return cls(offsets, data, field=field)

    def value(self, row: int) -> bytes:
        return self.data[self.offsets[row] : self.offsets[row + 1]].tobytes()


@dataclass(frozen=True)
class QueueColumns:
    """Queues by name: queue i is `queue_ids[i]` of the topic `topics[topic_index[i]]`."""

    topics: BinaryColumn  # i8 offsets that begin with 0
    topic_index: np.ndarray  # u4
    queue_ids: np.ndarray  # i4

    @classmethod
    def of(cls, queues: Sequence[tuple[str, int]]) -> QueueColumns:
        """Return the columns of a few queues. Raises InvalidRequestError for what is no topic."""
        names = sorted({topic for topic, _ in queues})
        places = {name: number for number, name in enumerate(names)}
        encoded = [encode_topic(name) for name in names]
        for _, queue_id in queues:
            if not 0 <= queue_id <= layout.QUEUE_ID_MAX:
                raise InvalidRequestError(f"{queue_id} is not an int32 >= 0", field="queue_id")
        return cls(
            BinaryColumn.from_values(encoded, field="topic"),
            np.array([places[topic] for topic, _ in queues], np.uint32),
            np.array([queue_id for _, queue_id in queues], np.int32),
        )

    def __len__(self) -> int:
        return len(self.queue_ids)

    def __post_init__(self) -> None:
        offsets = self.topics.offsets
        assert offsets.dtype == np.int64, "topics by i8 offsets"
        assert int(offsets[0]) == 0, "topics from the first byte"
        assert self.topic_index.dtype == np.uint32, self.topic_index.dtype
        assert self.queue_ids.dtype == np.int32, self.queue_ids.dtype
        lengths = np.diff(offsets)
        if len(lengths) and not 1 <= lengths.min() <= lengths.max() <= layout.TOPIC_BYTES_MAX:
            raise InvalidRequestError("must have 1 to 255 bytes of UTF-8", field="topic")
        assert not len(self) or int(self.topic_index.max()) < len(self.topics), "topic index"
        if len(self) and int(self.queue_ids.min()) < 0:
            raise InvalidRequestError("must not be negative", field="queue_id")

    def addresses(self) -> tuple[int, int, int, int]:
        """Return (names, their ends, topic index, queue ids) for the kernels."""
        ends = address(self.topics.offsets) + self.topics.offsets.itemsize
        return address(self.topics.data), ends, address(self.topic_index), address(self.queue_ids)


def encode_topic(topic: str) -> bytes:
    """Return a topic's bytes. Raises InvalidRequestError for what is not text of 1 to 255 bytes."""
    try:
        name = topic.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError("is not valid text (lone surrogate)", field="topic") from error
    if not 1 <= len(name) <= layout.TOPIC_BYTES_MAX:
        raise InvalidRequestError("must have 1 to 255 bytes of UTF-8", field="topic")
    return name


class MessageColumns:
    """Messages of one append, by column; row i goes to queue `queues[i]` of the file.

    `queues` and `times` are one value for all rows, or one each. `extras` holds the bytes of each extra,
    `held` (u1) is 1 for rows that wait for the timer.
    Raises InvalidRequestError for a body or an extra that no row can hold.
    """

    def __init__(
        self,
        *,
        queues: np.ndarray | int,
        bodies: BinaryColumn,
        times: np.ndarray | int,
        extras: BinaryColumn | None = None,
        held: np.ndarray | None = None,
    ) -> None:
        self.count = len(bodies)
        self.queues = np.ascontiguousarray(np.atleast_1d(queues), np.uint32)
        times = np.ascontiguousarray(np.atleast_1d(times), np.int64)
        for name, column in (("queue", self.queues), ("timestamp", times)):
            if len(column) not in (1, self.count):
                raise InvalidRequestError(f"has {len(column)} rows, not {self.count}", field=name)
        if extras is not None and len(extras) != self.count:
            raise InvalidRequestError(f"has {len(extras)} rows, not {self.count}", field="extras")
        words = self.words = np.zeros(k.COLUMN_WORDS, np.int64)
        words[k.C_QUEUES] = address(self.queues)
        words[k.C_QUEUE_STRIDE] = 4 if len(self.queues) > 1 else 0
        words[k.C_OFFSETS] = address(bodies.offsets)
        words[k.C_OFFSET_BYTES] = bodies.offsets.itemsize
        words[k.C_BODIES] = address(bodies.data)
        words[k.C_TIMES] = address(times)
        words[k.C_TIME_STRIDE] = 8 if len(times) > 1 else 0
        if held is not None:
            assert held.dtype == np.uint8
            assert len(held) == self.count
            words[k.C_HELD] = address(held)
        if extras is not None:
            assert extras.offsets.dtype == np.int64
            words[k.C_EXTRA_OFFSETS] = address(extras.offsets)
            words[k.C_EXTRAS] = address(extras.data)
        self._keep = bodies, times, extras, held
        # At most: what times and padding take depends on each row.
        self.row_bytes = ROW_BYTES_MOST * self.count + bodies.content_bytes
        self.largest_row = ROW_BYTES_MOST + bodies.largest
        if extras is not None:
            self.row_bytes += extras.content_bytes
            self.largest_row += extras.largest
            _refuse_longer(extras, layout.EXTRA_BYTES_MAX, "extras")
        _refuse_longer(bodies, layout.BODY_BYTES_MAX, "body")


def _refuse_longer(column: BinaryColumn, most: int, field: str) -> None:
    row = column.first_longer(most)
    if row >= 0:
        raise InvalidRequestError(f"is above {most} bytes", field=f"{field}[{row}]")
