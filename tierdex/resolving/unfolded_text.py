"""The text of a gzip or zstd file, or of a pipe, read by position.

A stream has no positions. Its text is unfolded from the begin, and a window of it is kept: reading on costs
every byte once, while a line far inside a compressed file costs all of the text before it.

Depends on errors and pyarrow.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import pyarrow as pa

from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable

CODECS: Final = {".gz": "gzip", ".zst": "zstd"}
_CHUNK_BYTES: Final = 4 << 20  # of the compressed file: one request of a store


class Text(Protocol):
    """Bytes by position."""

    def read_at(self, position: int, length: int) -> bytes:
        """Return the bytes of a range, fewer only at the end."""
        ...


def codec_of(address: str) -> str | None:
    """Return how a file is compressed, by its name; None: it is not."""
    return CODECS.get(PurePosixPath(address).suffix.lower())


class UnfoldedText:
    """The text of a stream. `open_stream` begins it again, for a reader that goes back."""

    def __init__(self, open_stream: Callable[[], Any], name: str) -> None:
        self._open_stream = open_stream
        self._name = name
        self._stream = open_stream()
        self._window = bytearray()
        self._begin = 0  # of the window in the text

    @classmethod
    def of_file(cls, file: Any, codec: str, name: str) -> UnfoldedText:
        """Return the text of a compressed `RangeFile`."""

        def open_stream() -> Any:
            file.seek(0)
            if (
                codec == "gzip"
            ):  # as every gzip reads it: several members, zeros behind the last one
                return gzip.GzipFile(fileobj=cast("Any", _Chunks(file)))
            raw = pa.BufferedInputStream(pa.PythonFile(file, "r"), _CHUNK_BYTES)
            return pa.CompressedInputStream(raw, codec)

        return cls(open_stream, name)

    def read_at(self, position: int, length: int) -> bytes:
        """Return the bytes of a range, fewer at the end. Raises InvalidRequestError for a broken stream."""
        if position < self._begin:
            self._stream, self._begin = self._open_stream(), 0
            self._window.clear()
        while self._begin + len(self._window) < position + length:
            self._forget_before(position)
            missing = position + length - self._begin - len(self._window)
            data = self._read(min(missing, max(length, _CHUNK_BYTES)))
            if not data:
                break
            self._window += data
        self._forget_before(position)
        return bytes(self._window[:length]) if position == self._begin else b""

    def _forget_before(self, position: int) -> None:
        passed = min(position - self._begin, len(self._window))
        del self._window[:passed]
        self._begin += passed

    def _read(self, length: int) -> bytes:
        try:
            data: bytes = self._stream.read(length)
        except (OSError, EOFError, zlib.error) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise InvalidRequestError(
                f"cannot be decompressed: {error}", field=self._name
            ) from error
        return data


class _Chunks:
    """A file that is read in large chunks, from where it stands."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._chunk, self._at = b"", 0

    def read(self, size: int) -> bytes:
        if self._at >= len(self._chunk):
            self._chunk, self._at = self._file.read(_CHUNK_BYTES), 0
        data: bytes = self._chunk[self._at : self._at + size]
        self._at += len(data)
        return data
