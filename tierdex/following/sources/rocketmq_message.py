"""Messages of RocketMQ as a broker stores and sends them: a record's place, key, value and headers.

::

    size | magic | CRC | queue | flag | queue offset | commit log offset | sysflag | born | born host |
    stored | store host | times consumed | prepared offset | body | topic | properties

`KEYS`, the names of a message divided by blanks, is the record's key; the other properties are headers,
among them `UNIQ_KEY`, the ID that its producer gave it. Bodies are unfolded (zlib, LZ4, zstd), and so is a
batch that was stored as one message: each message in it has the next offset of the queue.

Source: RocketMQ 5.3.3, MessageDecoder, MessageSysFlag and MessageVersion. Depends on pyarrow.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tierdex.following.records import Headers

_HEAD: Final = struct.Struct(">iIiiiqqiq")
_BATCHED: Final = struct.Struct(">iIiii")  # size, magic, CRC, flag, length of the body
_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
_SHORT: Final = struct.Struct(">H")
_BYTE: Final = struct.Struct(">B")
_FILLER: Final = struct.Struct(">iI")  # behind the last message of a full file: what is left, magic
_FILLER_MAGIC: Final = 0xCBD43194
_MAGIC: Final = 0xDAA320A7
_WIDE_MAGIC: Final = 0xDAA320AB  # the topic's length has two bytes
_COMPRESSED, _BORN_V6, _STORED_V6, _UNWRAP, _BATCH = 0x1, 0x10, 0x20, 0x40, 0x80
_CODECS: Final = {0: "zlib", 1: "lz4", 2: "zstd", 3: "zlib"}  # bits 8 to 10 of the sysflag
_KEYS: Final = b"KEYS"
_BODY_MOST: Final = 64 << 20  # unfolded; a broker takes 4 MiB by default


class StoredMessage(NamedTuple):
    """One message; `stored` is int64 ms, `position` its byte in the broker's commit log."""

    topic: str
    queue: int
    offset: int
    position: int
    stored: int
    key: bytes | None
    value: bytes
    headers: Headers


def messages_in(data: bytes) -> Iterator[StoredMessage]:
    """Yield the messages of a broker's answer. Raises ValueError for bytes that are none."""
    at = 0
    while at < len(data):
        size = size_at(data, at)
        if size <= _HEAD.size or at + size > len(data):
            raise ValueError(f"a message of {size} bytes at byte {at} of {len(data)}")
        yield from messages_of(data[at : at + size])
        at += size


def size_at(data: bytes, at: int) -> int:
    """Return the size that a message at a byte says it has; 0 where none is or it is not whole."""
    return _INT.unpack_from(data, at)[0] if at + _INT.size <= len(data) else 0


def is_filler(data: bytes) -> bool:
    """Return whether the rest of a file of the commit log holds no message."""
    return len(data) < _FILLER.size or _FILLER.unpack_from(data)[1] == _FILLER_MAGIC


def messages_of(data: bytes) -> Iterator[StoredMessage]:
    """Yield the message that is stored in `data`, or those of a stored batch. Raises ValueError."""
    try:
        yield from _unwrapped(data)
    except (struct.error, IndexError) as error:
        raise ValueError(f"a message of {len(data)} bytes is cut: {error}") from error


def _unwrapped(data: bytes) -> Iterator[StoredMessage]:
    _, magic, _, queue, _, offset, position, sysflag, born = _HEAD.unpack_from(data)
    if magic not in (_MAGIC, _WIDE_MAGIC):
        raise ValueError(f"no message of version 1 or 2: {magic:#x}")
    at = _HEAD.size + (16 if sysflag & _BORN_V6 else 4) + 4
    (stored,) = _LONG.unpack_from(data, at)
    at += 8 + (16 if sysflag & _STORED_V6 else 4) + 4 + 4 + 8
    at, body = _counted(data, at, _INT)
    at, name = _counted(data, at, _SHORT if magic == _WIDE_MAGIC else _BYTE)
    topic = name.decode(errors="backslashreplace")
    _, properties = _counted(data, at, _SHORT)
    key, headers = _parted(properties)
    if sysflag & _COMPRESSED:
        body = _unfolded(body, _CODECS.get(sysflag >> 8 & 7))
    if not (sysflag & _UNWRAP and sysflag & _BATCH):
        yield StoredMessage(
            topic, queue, offset, position, stored, key, body, (*headers, _born(born))
        )
        return
    inner = 0
    while inner < len(body):  # a client's batch: shorter heads, no place
        size, _, _, _, length = _BATCHED.unpack_from(body, inner)
        if size < _BATCHED.size + 2 or not 0 <= length <= size:
            raise ValueError(f"a batch holds a message of {size} bytes")
        value = body[inner + _BATCHED.size : inner + _BATCHED.size + length]
        _, properties = _counted(body, inner + _BATCHED.size + length, _SHORT)
        key, headers = _parted(properties)
        yield StoredMessage(
            topic, queue, offset, position, stored, key, value, (*headers, _born(born))
        )
        inner += size
        offset += 1


def _counted(data: bytes, at: int, form: struct.Struct) -> tuple[int, bytes]:
    """Return where the next part begins, and the bytes of this one, which its length stands before."""
    (length,) = form.unpack_from(data, at)
    end = at + form.size + length
    if not at <= end <= len(data):
        raise ValueError(f"a part of {length} bytes at byte {at} of {len(data)}")
    return end, data[at + form.size : end]


def _born(born: int) -> tuple[str, bytes]:
    return "BORN_TIME", b"%d" % born  # when its producer made it, by the producer's clock


def _parted(properties: bytes) -> tuple[bytes | None, list[tuple[str, bytes]]]:
    """Return KEYS and the other properties."""
    key, headers = None, []
    for pair in properties.split(b"\x02"):
        name, divider, value = pair.partition(b"\x01")
        if name == _KEYS:
            key = value
        elif divider:
            headers.append((name.decode(errors="backslashreplace"), value))
    return key, headers


def _unfolded(body: bytes, codec: str | None) -> bytes:
    """Return a body as it was before it was compressed; one that cannot be unfolded as it is."""
    try:
        if codec == "zlib":
            unfolding = zlib.decompressobj()
            found = unfolding.decompress(body, _BODY_MOST)
            return body if unfolding.unconsumed_tail else found
        if codec is None:
            return body
        with pa.input_stream(pa.BufferReader(body), compression=codec) as stream:
            read: bytes = stream.read(_BODY_MOST + 1)
            return body if len(read) > _BODY_MOST else read
    except (zlib.error, pa.ArrowException, OSError):
        return body
