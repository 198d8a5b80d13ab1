"""One page of a grouped file, verified and opened: its messages by queue, or all as rows.

Depends on messages, layout, page_read and fileparts; pyarrow has the codecs.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tierdex.errors import CorruptFileError
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

    def runs(self) -> list[tuple[int, int]]:
        """Return (queue above the page's first, messages) of each run."""
        found = [k.run_of(self.words, run) for run in range(int(self.words[k.P_RUNS]))]
        return [(int(queue), int(count)) for queue, count in found]

    def totals(self, first: int, count: int) -> tuple[int, int, int]:
        """Return (bytes of bodies, least time, greatest time) of `count` messages from `first` on."""
        bodies, least, greatest = (int(v) for v in k.totals(self.words, first, count))
        return bodies, least, greatest


class OpenPages:
    """Pages that were fetched together, opened in a few calls for all.

    `words` has a row a page (k.P_*), of zeros for one that is damaged. Owns the payloads.
    """

    def __init__(self, places: np.ndarray, *, data: np.ndarray, seed: Any) -> None:
        """Open pages that lie in `data` (u1); `places` has a row (k.Z_*) a page."""
        count = len(places)
        self.words = np.zeros((count, k.PAGE_WORDS), np.int64)
        payloads = np.zeros((count, k.PAYLOAD_WORDS), np.int64)
        k.look_at_pages(places, seed, payloads)
        self._numbers = places[:, k.Z_NUMBER]
        self._unpacked: dict[int, Any] = {}  # payload by row
        packed = payloads[:, k.Y_CODEC].nonzero()[0]
        for page, (codec, raw_bytes, stored, length) in zip(
            packed.tolist(), payloads[packed, : k.Y_ADDRESS].tolist(), strict=True
        ):
            payloads[page, k.Y_ADDRESS] = self._unpack(page, codec, raw_bytes, stored, length)
        k.open_pages(self.words, places, payloads)
        # Of pages that are all unpacked nothing points into what was fetched, which may be much more.
        self._data = data if len(packed) < count else None

    def pages(self) -> list[OpenPage]:
        """Return those that were packed, each for itself: the others are a part of what was brought."""
        return [
            OpenPage.of(int(self._numbers[row]), self.words[row].copy(), payload)
            for row, payload in self._unpacked.items()
            if self.words[row].any()
        ]

    def _unpack(self, row: int, codec: int, raw_bytes: int, stored: int, length: int) -> int:
        """Return where a payload lies that was decompressed, 0 for one that does not let itself be."""
        import pyarrow as pa

        if codec not in _CODEC_NAMES or raw_bytes > layout.PAYLOAD_BYTES_MAX:
            return 0
        data = pa.foreign_buffer(stored, length)
        try:
            plain = make_codec(codec).decompress(data, decompressed_size=raw_bytes)
        except (OSError, ValueError):
            return 0
        self._unpacked[row] = plain
        return int(plain.address) if plain.size == raw_bytes else 0


def _unpacked(
    data: np.ndarray, codec: int, raw_bytes: int, number: int, path: object
) -> np.ndarray:
    """Return a decompressed payload. Raises CorruptFileError."""
    if codec not in _CODEC_NAMES or raw_bytes > layout.PAYLOAD_BYTES_MAX:
        raise CorruptFileError(path, f"page {number} has codec {codec}, {raw_bytes} bytes")
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
