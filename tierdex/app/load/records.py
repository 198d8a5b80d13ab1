r"""The byte positions at which each record of a text file begins and ends, a block at a time.

A record is a line; in CSV a line break inside quotes does not end it::

    position                      starts[i]     ends[i]
    | ... whole records ... | record i ............ | \r\n | ... | begun record -> next block |

numpy finds the line breaks of 16 MiB at once. A byte order mark is skipped. A record's bytes
exclude its line break (LF or CRLF); the last line may lack one; empty lines are no records.

Depends on numpy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tierdex.filesystem import OpenFile

BLOCK_BYTES = 16 << 20
RECORD_BYTES_MAX = 256 << 20
_NEWLINE, _RETURN, _QUOTE = 10, 13, 34
_MARKS = {b"\xef\xbb\xbf": 3}
_FOREIGN = {
    b"\xff\xfe": "UTF-16 text: convert it to UTF-8",
    b"\xfe\xff": "UTF-16 text: convert it to UTF-8",
    b"\x1f\x8b": "compressed, so its rows have no byte positions: decompress it",
    b"\x28\xb5\x2f\xfd": "compressed, so its rows have no byte positions: decompress it",
    b"BZh": "compressed, so its rows have no byte positions: decompress it",
    b"PK\x03\x04": "an archive: unpack it",
    b"PAR1": "a Parquet file: name it .parquet",
}


@dataclass(frozen=True)
class Block:
    """Whole records. `starts` and `ends` (int64) are positions in `data`, which lies at `position`."""

    data: bytes
    position: int
    first_line: int
    starts: np.ndarray
    ends: np.ndarray
    path: Path

    @property
    def offsets(self) -> np.ndarray:
        """Byte positions of the records in the file: int64."""
        return self.starts + self.position

    @property
    def sizes(self) -> np.ndarray:
        """Bytes of each record, its line break left out: int64."""
        sizes: np.ndarray = self.ends - self.starts
        return sizes

    def line(self, record: int) -> int:
        """Return the number, from 1, of the line on which a record begins."""
        return self.first_line + self.data.count(b"\n", 0, int(self.starts[record]))

    def place_of(self, record: int) -> str:
        return f"{self.path}:{self.line(record)}"

    def text(self, record: int) -> bytes:
        return self.data[int(self.starts[record]) : int(self.ends[record])]

    def without_first(self) -> Block:
        """Return the block without its first record, the header."""
        return Block(
            self.data, self.position, self.first_line, self.starts[1:], self.ends[1:], self.path
        )


def read_blocks(
    file: OpenFile, path: Path, *, delimiter: str | None, block_bytes: int = BLOCK_BYTES
) -> Iterator[Block]:
    """Yield the file's records in blocks. `delimiter` given: CSV, where quotes hide line breaks.

    Raises InvalidRequestError for a compressed or UTF-16 file and for a quote that never closes.
    """
    length = file.size()
    begin = file.read_at(0, 4)
    for magic, meaning in _FOREIGN.items():
        if begin.startswith(magic):
            raise InvalidRequestError(f"{path} is {meaning}", field="file")
    position = _MARKS.get(begin[:3], 0)
    line, wanted = 1, block_bytes
    while position < length:
        data = file.read_at(position, wanted)
        is_last = position + len(data) >= length or not data
        if is_last and not data.endswith(b"\n"):
            data += b"\n"  # as if the last line had its break
        breaks = _record_breaks(np.frombuffer(data, np.uint8), delimiter)
        if not len(breaks) or (is_last and breaks[-1] != len(data) - 1):
            if is_last or wanted >= RECORD_BYTES_MAX:
                last = line + data.count(b"\n", 0, int(breaks[-1]) + 1 if len(breaks) else 0)
                raise InvalidRequestError(
                    "a quoted field or a line begins here and does not end", field=f"{path}:{last}"
                )
            wanted = min(wanted * 4, RECORD_BYTES_MAX)
            continue
        data = data[: int(breaks[-1]) + 1]
        yield _make_block(data, position, line, breaks, path)
        position += len(data)
        line += data.count(b"\n")
        wanted = block_bytes


def _make_block(data: bytes, position: int, line: int, breaks: np.ndarray, path: Path) -> Block:
    starts = np.concatenate((np.zeros(1, np.int64), breaks[:-1] + 1))
    ends = breaks.astype(np.int64)
    bytes_before = np.frombuffer(data, np.uint8)[np.maximum(ends - 1, 0)]
    ends = ends - ((bytes_before == _RETURN) & (ends > starts))
    is_record = ends > starts
    if not is_record.all():
        starts, ends = starts[is_record], ends[is_record]
    return Block(data, position, line, starts, ends, path)


def _record_breaks(data: np.ndarray, delimiter: str | None) -> np.ndarray:
    """Return the positions of the line breaks that end a record; the data begins with a record."""
    breaks = np.flatnonzero(data == _NEWLINE)
    if delimiter is None:
        return breaks
    quotes = np.flatnonzero(data == _QUOTE)
    if not len(quotes):
        return breaks
    # A quote opens a field only at its begin; a doubled one inside closes and opens again.
    opening = quotes[::2]
    before = data[np.maximum(opening - 1, 0)]
    at_begin = (opening == 0) | np.isin(before, [ord(delimiter), _NEWLINE, _RETURN, _QUOTE])
    if not at_begin.all():
        quotes = _field_quotes(data, quotes, ord(delimiter))
    outside: np.ndarray = breaks[np.searchsorted(quotes, breaks) % 2 == 0]
    return outside


def _field_quotes(data: np.ndarray, quotes: np.ndarray, delimiter: int) -> np.ndarray:
    """Return the opening and closing quotes alone, where some are plain text inside a field."""
    begins = {delimiter, _NEWLINE, _RETURN}
    kept: list[int] = []
    places = quotes.tolist()
    length, number, is_open = len(data), 0, False
    while number < len(places):
        place = places[number]
        if is_open:
            if place + 1 < length and data[place + 1] == _QUOTE:
                number += 1  # doubled: text
            else:
                kept.append(place)
                is_open = False
        elif place == 0 or int(data[place - 1]) in begins:
            kept.append(place)
            is_open = True
        number += 1
    return np.array(kept, np.int64)
