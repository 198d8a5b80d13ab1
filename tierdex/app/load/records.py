r"""The byte positions at which each record of a text file begins and ends, a block at a time.

A record is a line; in CSV a line break inside quotes does not end it::

    position                      starts[i]     ends[i]
    | ... whole records ... | record i ............ | \r\n | ... | begun record -> next block |

numpy finds the line breaks of 16 MiB at once. A byte order mark is skipped. A record's bytes
exclude its line break (LF or CRLF); the last line may lack one; empty lines are no records.

A `Mark` is a place between two records: a later load goes on from it once it has read the text before it
again and found the same digest. It stands behind a true line break: a last line without one may still grow.

Depends on errors, resolving, numpy and xxhash.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import xxhash

from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tierdex.resolving.unfolded_text import Text

BLOCK_BYTES = 16 << 20
RECORD_BYTES_MAX = 256 << 20
_NEWLINE, _RETURN, _QUOTE = 10, 13, 34
_MARKS = {b"\xef\xbb\xbf": 3}
_FOREIGN = {
    b"\xff\xfe": "UTF-16 text: convert it to UTF-8",
    b"\xfe\xff": "UTF-16 text: convert it to UTF-8",
    b"\x1f\x8b": "compressed by gzip: name it .gz",
    b"\x28\xb5\x2f\xfd": "compressed by zstd: name it .zst",
    b"BZh": "compressed by bzip2: decompress it, or compress it by gzip or zstd",
    b"PK\x03\x04": "an archive: unpack it",
    b"PAR1": "a Parquet file: name it .parquet",
}


class Mark(NamedTuple):
    """How far a text was read: `position` in bytes, the number of the next line, digest of what is before."""

    position: int = 0
    line: int = 1
    digest: str = ""


@dataclass(frozen=True)
class Block:
    """Whole records. `starts` and `ends` (int64) are positions in `data`, which lies at `position`.

    `mark` is where reading goes on behind the block; None for a part of a block.
    """

    data: bytes
    position: int
    first_line: int
    starts: np.ndarray
    ends: np.ndarray
    path: str
    mark: Mark | None = None

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

    def part(self, first: int, end: int) -> Block:
        """Return the records [first, end) alone."""
        begin = int(self.starts[first]) if first < end else 0
        data = self.data[begin : int(self.ends[end - 1])] + b"\n" if first < end else b""
        return Block(
            data,
            self.position + begin,
            self.line(first) if first < end else self.first_line,
            self.starts[first:end] - begin,
            self.ends[first:end] - begin,
            self.path,
        )

    def without_first(self) -> Block:
        """Return the block without its first record, the header."""
        return replace(self, starts=self.starts[1:], ends=self.ends[1:])


def read_blocks(
    text: Text,
    path: str,
    *,
    delimiter: str | None,
    block_bytes: int = BLOCK_BYTES,
    begin: Mark | None = None,
) -> Iterator[Block]:
    """Yield the text's records in blocks. `delimiter` given: CSV, where quotes hide line breaks.

    With `begin` from there on; first the text before it is read and compared. Raises ChangedTextError when
    it is another one, InvalidRequestError for a compressed or UTF-16 file and for a quote that never closes.
    """
    head = text.read_at(0, 4)
    for magic, meaning in _FOREIGN.items():
        if head.startswith(magic):
            raise InvalidRequestError(f"{path} is {meaning}", field="file")
    digest = xxhash.xxh3_128()
    position, line = 0, 1
    if begin is not None:
        _read_again(text, begin, digest, path)
        position, line = begin.position, begin.line
    wanted = block_bytes
    while True:
        skipped = _MARKS.get(head[:3], 0) if position == 0 else 0
        data = text.read_at(position, wanted + skipped)
        is_last = len(data) < wanted + skipped
        if len(data) <= skipped:
            return
        is_open = is_last and not data.endswith(b"\n")
        if is_open:
            data += b"\n"  # as if the last line had its break
        newlines = np.flatnonzero(np.frombuffer(data, np.uint8) == _NEWLINE)
        breaks = _record_breaks(data, skipped, newlines, delimiter)
        if not len(breaks) or (is_last and breaks[-1] != len(data) - 1):
            if is_last or wanted >= RECORD_BYTES_MAX:
                last = line + data.count(b"\n", 0, int(breaks[-1]) + 1 if len(breaks) else 0)
                raise InvalidRequestError(
                    "a quoted field or a line begins here and does not end", field=f"{path}:{last}"
                )
            wanted = min(wanted * 4, RECORD_BYTES_MAX)
            continue
        data = data[: int(breaks[-1]) + 1]
        starts, ends = _record_spans(data, breaks, skipped)
        ended = len(data)
        if is_open:
            ended = int(starts[-1]) if len(starts) else len(data) - 1
        digest.update(data[:ended])
        following = line + int(np.searchsorted(newlines, ended))
        mark = Mark(position + ended, following, digest.hexdigest())
        yield Block(data, position, line, starts, ends, path, mark)
        position += len(data)
        line = following
        wanted = block_bytes


class ChangedTextError(Exception):
    """The text before a mark is not the one that was read."""


def _read_again(text: Text, mark: Mark, digest: xxhash.xxh3_128, path: str) -> None:
    """Bring a fresh digest to a mark. Raises ChangedTextError."""
    at = 0
    while at < mark.position:
        data = text.read_at(at, min(BLOCK_BYTES, mark.position - at))
        if not data:
            break
        digest.update(data)
        at += len(data)
    if at < mark.position or digest.hexdigest() != mark.digest:
        raise ChangedTextError(path)


def _record_spans(data: bytes, breaks: np.ndarray, begin: int) -> tuple[np.ndarray, np.ndarray]:
    """Return begins and ends of the records of whole lines, the first at `begin`."""
    starts = np.concatenate((np.full(1, begin, np.int64), breaks[:-1] + 1))
    ends = breaks.astype(np.int64)
    bytes_before = np.frombuffer(data, np.uint8)[np.maximum(ends - 1, 0)]
    ends = ends - ((bytes_before == _RETURN) & (ends > starts))
    is_record = ends > starts
    return (starts, ends) if is_record.all() else (starts[is_record], ends[is_record])


def _record_breaks(
    text: bytes, begin: int, newlines: np.ndarray, delimiter: str | None
) -> np.ndarray:
    """Return those of the line breaks `newlines` that end a record; the first record is at `begin`."""
    if delimiter is None or b'"' not in text:
        return newlines
    data, breaks = np.frombuffer(text, np.uint8)[begin:], newlines - begin
    quotes = np.flatnonzero(data == _QUOTE)
    # A quote opens a field only at its begin; a doubled one inside closes and opens again.
    opening = quotes[::2]
    before = data[np.maximum(opening - 1, 0)]
    at_begin = (opening == 0) | np.isin(before, [ord(delimiter), _NEWLINE, _RETURN, _QUOTE])
    if not at_begin.all():
        quotes = _field_quotes(data, quotes, ord(delimiter))
    outside: np.ndarray = newlines[np.searchsorted(quotes, breaks) % 2 == 0]
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
