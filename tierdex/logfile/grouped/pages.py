"""One page of a grouped file, verified and opened: its messages by queue, or all as rows.

Depends on messages, layout, page_read and fileparts; pyarrow has the codecs, but for unpacking LZ4.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.kernels.lz4 import SLACK_BYTES, unpack_lz4
from tierdex.fileparts.memory import address
from tierdex.logfile import layout
from tierdex.logfile.grouped.kernels import page_read as k
from tierdex.logfile.layout import Codec
from tierdex.logfile.messages import MessageBatch

_CODEC_NAMES = {Codec.LZ4: "lz4_raw", Codec.ZSTD: "zstd"}


class OpenPage:
    """A page whose checksum and structure were found sound. Owns or borrows its payload. Immutable."""

    __slots__ = ("_payload", "number", "words")
    _OBJECT_BYTES = 700  # what Python takes for one

    def __init__(self, data: np.ndarray, *, number: int, seed: Any, path: object) -> None:
        """Open the page in `data` (u1), of the checksum's `seed`. Raises CorruptFileError."""
        if not k.page_is_sound(address(data), len(data), seed, number):
            raise CorruptFileError(path, f"checksum of page {number} differs")
        head = data[: layout.PAGE_HEADER_BYTES].view(layout.PAGE_HEADER)[0]
        raw_bytes, codec = int(head["raw_bytes"]), int(head["codec"])
        self.number = number
        self._payload = data[layout.PAGE_HEADER_BYTES :]
        if codec != Codec.PLAIN:
            self._payload = _unpacked(self._payload, codec, raw_bytes, number, path)
        self.words = np.empty(k.PAGE_WORDS, np.int64)
        raw = address(self._payload)
        if len(self._payload) != raw_bytes or not k.open_page(
            self.words, address(data), raw, raw_bytes
        ):
            raise CorruptFileError(path, f"head and payload of page {number} do not fit")

    @classmethod
    def of(cls, number: int, words: np.ndarray, payload: Any) -> OpenPage:
        """Return a page that was opened with others: its `words`, and the payload that they point into."""
        page = cls.__new__(cls)
        page.number, page.words, page._payload = number, words, payload
        return page

    @property
    def bytes(self) -> int:
        """Bytes of memory, if nothing else holds the payload."""
        return len(self._payload) + self._OBJECT_BYTES

    @property
    def message_count(self) -> int:
        return int(self.words[k.P_COUNT])

    def messages(
        self,
        queue: int,
        skip: int,
        *,
        max_count: int,
        max_bytes: int,
        first_offset: int,
        is_first: bool,
    ) -> MessageBatch:
        """Return messages of the queue `queue` above the page's first, without the first `skip`.

        At most `max_count` and `max_bytes`; with `is_first` one at least, when there is one.
        """
        first, count = (int(value) for value in k.find_run(self.words, queue))
        count = min(count - skip, max_count)
        if count <= 0:
            return MessageBatch(first_offset, 0, 0, 0)
        measured = k.measure_page(self.words, first + skip, count, max_bytes, is_first)
        count, bodies, extras, body_at, extra_at = (int(value) for value in measured)
        batch = MessageBatch(first_offset, count, bodies, extras)
        if count:
            k.copy_page(self.words, first + skip, count, body_at, extra_at, batch.addresses())
        return batch

    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Return (addresses i8, memory) of all messages as a journal's rows, whose times need no base."""
        memory = np.empty(int(k.expanded_bytes(self.words)), np.uint8)
        addresses = np.empty(self.message_count, np.int64)
        k.expand_page(self.words, address(memory), address(addresses))
        return addresses, memory


class Scratch:
    """Memory that pages are unpacked into, and then others in their place. For one thread."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)

    def take(self, length: int) -> np.ndarray:
        """Return at least `length` bytes (u1); what was taken before is over."""
        if len(self._memory) < length:
            self._memory = np.empty(length, np.uint8)
        return self._memory


class OpenPages:
    """Pages that were fetched together, opened in a few calls for all.

    `words` has a row a page (k.P_*), of zeros for one that is damaged. Owns the payloads, or borrows the
    scratch that they were unpacked into: then it is good until that is taken again.
    """

    def __init__(
        self, places: np.ndarray, *, data: np.ndarray, seed: Any, scratch: Scratch | None = None
    ) -> None:
        """Open pages that lie in `data` (u1); `places` has a row (k.Z_*) a page."""
        count = len(places)
        self.words = np.zeros((count, k.PAGE_WORDS), np.int64)
        payloads = self._payloads = np.zeros((count, k.PAYLOAD_WORDS), np.int64)
        k.look_at_pages(places, seed, payloads)
        self._numbers = places[:, k.Z_NUMBER]
        self._memory = (scratch or Scratch()).take(int(k.unpacked_bytes(payloads)))
        k.unpack_pages(payloads, address(self._memory))
        self._others = [
            self._unpack(row) for row in (payloads[:, k.Y_CODEC] == Codec.ZSTD).nonzero()[0]
        ]
        k.open_pages(self.words, places, payloads)
        # Of pages that are all unpacked nothing points into what was fetched, which may be much more.
        self._data = data if (payloads[:, k.Y_CODEC] == Codec.PLAIN).any() else None

    def pages(self) -> list[OpenPage]:
        """Return each page for itself, in memory of its own."""
        sound = self.words[:, k.P_COUNT].nonzero()[0].tolist()
        return [self._page(row) for row in sound]

    def _page(self, row: int) -> OpenPage:
        begin, size = self._payloads[row, [k.Y_ADDRESS, k.Y_RAW_BYTES]].tolist()
        payload = np.empty(size, np.uint8)
        words = self.words[row].copy()
        k.move_page(words, begin, address(payload), size)
        return OpenPage.of(int(self._numbers[row]), words, payload)

    def _unpack(self, row: int) -> Any:
        """Decompress a payload, write where it lies, and return what holds it; None where it cannot be."""
        codec, raw_bytes, stored, length, _ = self._payloads[row].tolist()
        if raw_bytes > layout.PAYLOAD_BYTES_MAX:
            return None
        import pyarrow as pa

        data = pa.foreign_buffer(stored, length)
        try:
            plain = make_codec(codec).decompress(data, decompressed_size=raw_bytes)
        except (OSError, ValueError):
            return None
        if plain.size == raw_bytes:
            self._payloads[row, k.Y_ADDRESS] = plain.address
        return plain


def _unpacked(
    data: np.ndarray, codec: int, raw_bytes: int, number: int, path: object
) -> np.ndarray:
    """Return a decompressed payload. Raises CorruptFileError."""
    if codec not in (Codec.LZ4, Codec.ZSTD) or raw_bytes > layout.PAYLOAD_BYTES_MAX:
        raise CorruptFileError(path, f"page {number} has codec {codec}, {raw_bytes} bytes")
    if codec == Codec.LZ4:
        memory = np.empty(raw_bytes + SLACK_BYTES, np.uint8)
        if not unpack_lz4(address(data), len(data), address(memory), raw_bytes):
            raise CorruptFileError(path, f"page {number} does not decompress")
        return memory[:raw_bytes]
    try:
        plain = make_codec(codec).decompress(data, decompressed_size=raw_bytes)
    except (OSError, ValueError) as error:
        raise CorruptFileError(path, f"page {number} does not decompress: {error}") from error
    return np.frombuffer(plain, np.uint8)


@cache
def make_codec(codec: int) -> Any:
    """Return what compresses and decompresses payloads."""
    import pyarrow as pa

    return pa.Codec(_CODEC_NAMES[Codec(codec)])
