"""Bodies that producers compressed: gzip, zstd, lz4 frames, snappy, each undone up to a bound.

A stream is read no further than the bound, and a zstd frame whose window is greater is refused before
memory is taken for it: a small message that would unfold into gigabytes costs nothing. Frames that readers
are to skip may stand before zstd and lz4, zeros behind gzip.

Depends on resolver, google_crc32c and pyarrow.
"""

from __future__ import annotations

import zlib
from typing import Final, Literal

import google_crc32c
import pyarrow as pa

from tierdex.resolving.resolver import TooLargeError

Compression = Literal["auto", "none", "gzip", "zstd", "lz4", "snappy"]
_FRAMED: Final = b"\xff\x06\x00\x00sNaPpY"
_XERIAL: Final = b"\x82SNAPPY\x00"
_MAGICS: Final = {
    b"\x1f\x8b\x08": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    _FRAMED: "snappy",
    _XERIAL: "snappy",
}
_SKIPPED: Final = range(0x184D2A50, 0x184D2A60)  # first word of a frame to skip, then its length
_WINDOW_MOST: Final = 8 << 20  # what every reader of zstd must be able to hold


def kind_of(data: bytes, said: Compression) -> str | None:
    """Return how a body is compressed, None when it is not; raw snappy has no sign of its own."""
    if said == "none":
        return None
    if said != "auto":
        return said
    at = _first_frame(data)
    return next((kind for magic, kind in _MAGICS.items() if data.startswith(magic, at)), None)


def decompress(data: bytes, kind: str, max_bytes: int) -> bytes:
    """Return the body. Raises TooLargeError above `max_bytes`, ValueError for what is damaged."""
    if kind == "snappy":
        return _snappy(data, max_bytes)
    if kind == "gzip":
        return _gzip(data, max_bytes)
    if kind == "zstd" and (window := _window(data)) > max(max_bytes, _WINDOW_MOST):
        raise TooLargeError(window)
    try:
        with pa.input_stream(pa.BufferReader(data), compression=kind) as stream:
            found: bytes = stream.read(max_bytes + 1)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"is not valid {kind}") from error
    if len(found) > max_bytes:
        raise TooLargeError(len(found))
    return found


def _window(data: bytes) -> int:
    """Return the window of a zstd frame in bytes; 0 where it is as long as the content."""
    at = _first_frame(data)
    if len(data) < at + 6 or data[at + 4] & 0x20:
        return 0
    return (1 << (10 + (data[at + 5] >> 3))) // 8 * (8 + (data[at + 5] & 7))


def _first_frame(data: bytes) -> int:
    """Return where the first frame begins that is not to be skipped."""
    at = 0
    while at + 8 <= len(data) and int.from_bytes(data[at : at + 4], "little") in _SKIPPED:
        at += 8 + int.from_bytes(data[at + 4 : at + 8], "little")
    return at


def _gzip(data: bytes, max_bytes: int) -> bytes:
    """Return the members' text; zeros behind the last one are padding, as every gzip reads them."""
    found: list[bytes] = []
    room = max_bytes + 1
    while data:
        member = zlib.decompressobj(wbits=31)
        try:
            part = member.decompress(data, room)
        except zlib.error as error:
            raise ValueError("is not valid gzip") from error
        found.append(part)
        room -= len(part)
        if room <= 0:
            raise TooLargeError(max_bytes + 1)
        if not member.eof:
            raise ValueError("is not valid gzip")
        data = member.unused_data.lstrip(b"\0")
    return b"".join(found)


def _snappy(data: bytes, max_bytes: int) -> bytes:
    try:
        if data.startswith(_FRAMED):
            return _framed(data, max_bytes)
        if data.startswith(_XERIAL):
            return _xerial(data, max_bytes)
        return _raw(data, max_bytes)
    except (pa.ArrowException, OSError, IndexError) as error:
        raise ValueError("is not valid snappy") from error


def _raw(data: bytes, max_bytes: int) -> bytes:
    size = shift = 0
    for byte in data[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        raise ValueError("is not valid snappy")
    if size > max_bytes:
        raise TooLargeError(size)
    found: bytes = pa.Codec("snappy").decompress(data, decompressed_size=size, asbytes=True)
    return found


def _framed(data: bytes, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    at, total = 0, 0
    while at < len(data):
        kind, length = data[at], int.from_bytes(data[at + 1 : at + 4], "little")
        chunk = data[at + 4 : at + 4 + length]
        if len(chunk) != length:
            raise ValueError("is cut")
        at += 4 + length
        if kind in (0, 1):
            part = _raw(chunk[4:], max_bytes - total) if kind == 0 else chunk[4:]
            crc = google_crc32c.value(part)
            masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
            if masked.to_bytes(4, "little") != chunk[:4]:
                raise ValueError("has a wrong checksum")
            total += len(part)
            parts.append(part)
        elif 2 <= kind <= 0x7F:
            raise ValueError("has an unknown chunk")
    if total > max_bytes:
        raise TooLargeError(total)
    return b"".join(parts)


def _xerial(data: bytes, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    at, total = 16, 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        chunk = data[at + 4 : at + 4 + length]
        if len(chunk) != length:
            raise ValueError("is cut")
        parts.append(_raw(chunk, max_bytes - total))
        total += len(parts[-1])
        at += 4 + length
    return b"".join(parts)
