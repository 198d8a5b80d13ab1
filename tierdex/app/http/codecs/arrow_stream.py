"""Arrow IPC streams: read from an untrusted caller into a table, and written from a table.

The metadata of a message is checked before its body is opened. A record batch with compressed
buffers (which could unfold to any size) or with too many rows is refused. The table is validated in
full, offsets and UTF-8 included, before any value is used. Types in which a few bytes stand for
many (views, run ends, dictionaries but for a topic's, structs but for a message's headers) are
refused: a megabyte of them could unfold to terabytes.

Depends on errors and pyarrow.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any

import pyarrow as pa

from tierdex.errors import InvalidRequestError, RequestTooLargeError

ARROW_STREAM = "application/vnd.apache.arrow.stream"

# Field numbers in Arrow's flatbuffers (Message.fbs): vtable slot = 4 + 2 * number.
_MESSAGE_HEADER_TYPE, _MESSAGE_HEADER = 1, 2
_BATCH_LENGTH, _BATCH_COMPRESSION = 0, 3
_DICTIONARY_BATCH_DATA = 1
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3  # values of the union MessageHeader
_CONTINUATION = 0xFFFFFFFF
_KEPT_METADATA_BYTES = 1024  # of a message: callers' schemas and topics are the same every time

_PLAIN_KINDS = frozenset(
    kind.id
    for kind in (
        pa.null(), pa.bool_(), pa.string(), pa.large_string(), pa.binary(), pa.large_binary(),
        pa.int8(), pa.int16(), pa.int32(), pa.int64(),
        pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
        pa.float16(), pa.float32(), pa.float64(), pa.date32(), pa.date64(),
        pa.time32("s"), pa.time64("us"), pa.timestamp("s"), pa.duration("s"),
        pa.month_day_nano_interval(),
    )
)  # fmt: skip
_LIST_KINDS = frozenset((pa.list_(pa.null()).id, pa.large_list(pa.null()).id))
_HEADER = pa.struct([("name", pa.string()), ("value", pa.binary())])  # of a message
_DICTIONARY_KIND = pa.dictionary(pa.int8(), pa.null()).id
_WRITE_OPTIONS = pa.ipc.IpcWriteOptions()  # made once: else the environment is read for each stream


def read_stream(body: bytes | bytearray, *, max_rows: int, field: str) -> Any:
    """Return the table. Raises InvalidRequestError, or RequestTooLargeError above `max_rows`."""
    try:
        _refuse_bombs(memoryview(body), max_rows, field)
        with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
            table = reader.read_all()
        _refuse_unfolding(table, field)
        table.validate(full=True)
    except (pa.ArrowException, OSError, struct.error, IndexError, ValueError) as error:
        raise InvalidRequestError(f"is not an Arrow stream: {error}", field=field) from None
    return table


def write_stream(table: Any) -> memoryview:
    """Return the table as an uncompressed Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_WRITE_OPTIONS) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())


def _refuse_unfolding(table: Any, field: str) -> None:
    """Refuse columns whose rows may share bytes. Raises InvalidRequestError."""
    for column in table.schema:
        kind = column.type
        if kind.id in _LIST_KINDS or (kind.id == _DICTIONARY_KIND and column.name == "topic"):
            kind = kind.value_type
        if kind == _HEADER and column.name == "headers":
            continue
        if kind.id not in _PLAIN_KINDS:
            raise InvalidRequestError(
                f"must be plain strings or numbers, not {column.type}",
                field=f"{field}.{column.name[:64]}",
            )


def _refuse_bombs(body: memoryview, max_rows: int, field: str) -> None:
    """Walk the messages of the stream and check each batch's metadata."""
    position, rows = 0, 0
    while position + 4 <= len(body):
        (size,) = struct.unpack_from("<I", body, position)
        position += 4
        if size == _CONTINUATION:
            (size,) = struct.unpack_from("<I", body, position)
            position += 4
        if size == 0:
            return
        if size > len(body) - position:
            raise ValueError("a message is longer than the body")
        metadata = body[position : position + size]
        describe = _describe_kept if size <= _KEPT_METADATA_BYTES else _describe_message
        kind, batch_rows, is_compressed, body_bytes = describe(bytes(metadata))
        if is_compressed:
            raise InvalidRequestError("compressed buffers are not accepted here", field=field)
        if kind == _RECORD_BATCH:
            rows += batch_rows
        if rows > max_rows or batch_rows > max_rows:
            raise RequestTooLargeError(f"more than {max_rows} rows in one batch", field=field)
        if batch_rows < 0 or body_bytes < 0:
            raise ValueError("a negative length")
        position += size + body_bytes


def _describe_message(metadata: bytes) -> tuple[int, int, bool, int]:
    """Return (header type, rows, whether compressed, body bytes) of one message."""
    (root,) = struct.unpack_from("<I", metadata, 0)
    message = _Table(metadata, root)
    kind = message.number(_MESSAGE_HEADER_TYPE, "<B")
    body_bytes = message.number(3, "<q")
    header = message.table(_MESSAGE_HEADER)
    if header is not None and kind == _DICTIONARY_BATCH:
        header = header.table(_DICTIONARY_BATCH_DATA)
    if header is None or kind not in (_DICTIONARY_BATCH, _RECORD_BATCH):
        return kind, 0, False, body_bytes
    return (
        kind,
        header.number(_BATCH_LENGTH, "<q"),
        header.table(_BATCH_COMPRESSION) is not None,
        body_bytes,
    )


_describe_kept = lru_cache(maxsize=64)(_describe_message)


class _Table:
    """A flatbuffers table: fields found through its vtable; absent ones have their default."""

    def __init__(self, data: bytes, position: int) -> None:
        (back,) = struct.unpack_from("<i", data, position)
        self._data, self._position, self._vtable = data, position, position - back
        if self._vtable < 0:
            raise ValueError("a table points outside the message")
        (self._vtable_bytes,) = struct.unpack_from("<H", data, self._vtable)

    def number(self, field: int, code: str) -> int:
        at = self._at(field)
        return 0 if at is None else int(struct.unpack_from(code, self._data, at)[0])

    def table(self, field: int) -> _Table | None:
        at = self._at(field)
        if at is None:
            return None
        (forward,) = struct.unpack_from("<I", self._data, at)
        return _Table(self._data, at + forward)

    def _at(self, field: int) -> int | None:
        slot = 4 + 2 * field
        if slot + 2 > self._vtable_bytes:
            return None
        (offset,) = struct.unpack_from("<H", self._data, self._vtable + slot)
        return self._position + offset if offset else None
