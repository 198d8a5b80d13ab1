r"""The byte positions at which each record of a text file begins and ends, a block at a time.

A record is a line; in CSV a line break inside quotes does not end it::

    position                      starts[i]     ends[i]
    | ... whole records ... | record i ............ | \r\n | ... | begun record -> next block |

numpy finds the line breaks of 16 MiB at once. A byte order mark is skipped. A record's bytes
exclude its line break (LF, and carriage returns before it); empty lines are no records, nor in JSON lines of
blanks. A last line without a line break may still be written, and waits; one that is a whole object of JSON
can only grow by blanks, and does not. Half a line would become half a key.

A `Mark` is a place between two records: a later load goes on from it once it has read the text before it
again and found the same digest. It stands behind a true line break.

Depends on errors, csv_text, following, resolving, numpy and xxhash.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import xxhash

from tierdex.app.load.csv_text import record_breaks
from tierdex.errors import InvalidRequestError
from tierdex.following.json_paths import written_document

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tierdex.resolving.unfolded_text import Text

BLOCK_BYTES = 16 << 20
RECORD_BYTES_MAX = 256 << 20
_NEWLINE, _RETURN = 10, 13
_BLANKS = b" \t\r\n"
_BLANK = 0x20
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

    `mark` is where reading goes on behind the block; None for a part of a block. `waiting` is the number of
    the line behind it that is left out, since it has no line break yet.
    """

    data: bytes
    position: int
    first_line: int
    starts: np.ndarray
    ends: np.ndarray
    path: str
    mark: Mark | None = None
    waiting: int | None = None

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
    takes_last: bool = False,
) -> Iterator[Block]:
    """Yield the text's records in blocks. `delimiter` given: CSV, where quotes hide line breaks.

    A last line without a line break waits (`Block.waiting`), unless `takes_last`, or it is a whole object.

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
        newlines, breaks = _breaks(data, skipped, delimiter)
        ended = int(breaks[-1]) + 1 if len(breaks) else skipped
        waiting: int | None = None
        if is_last and data[ended:].strip(_BLANKS):
            waiting = line + int(np.searchsorted(newlines, ended))
            if position == 0 and not len(newlines):
                _refuse_returns(data, path)
            if data.endswith(b"\n"):
                raise _endless(path, waiting)
            if takes_last or (delimiter is None and _is_object(data[ended:])):
                data += b"\n"  # as if the last line had its break
                newlines, breaks = _breaks(data, skipped, delimiter)
                if not len(breaks) or breaks[-1] != len(data) - 1:
                    raise _endless(path, waiting)
                waiting = None
        elif not is_last and not len(breaks):
            if wanted >= RECORD_BYTES_MAX:
                raise _endless(path, line)
            wanted = min(wanted * 4, RECORD_BYTES_MAX)
            continue
        data = data[: int(breaks[-1]) + 1] if len(breaks) else b""
        starts = ends = np.empty(0, np.int64)
        if len(breaks):
            starts, ends = _record_spans(data, breaks, skipped, is_csv=delimiter is not None)
        digest.update(data[:ended])
        following = line + int(np.searchsorted(newlines, ended))
        mark = Mark(position + ended if data else position, following, digest.hexdigest())
        yield Block(data, position, line, starts, ends, path, mark, waiting)
        if is_last:
            return
        position += len(data)
        line = following
        wanted = block_bytes


def _breaks(data: bytes, begin: int, delimiter: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the line feeds, and those of them that end a record."""
    newlines = np.flatnonzero(np.frombuffer(data, np.uint8) == _NEWLINE)
    if delimiter is None:
        return newlines, newlines
    return newlines, record_breaks(data, begin, newlines, delimiter)


def _is_object(line: bytes) -> bool:
    """Return whether a line is an object of JSON: with a further byte that is no blank it would be none."""
    try:
        return isinstance(written_document(line), dict)
    except ValueError:
        return False


def _refuse_returns(data: bytes, path: str) -> None:
    if b"\r" in data.rstrip(_BLANKS):
        raise InvalidRequestError(
            f"{path} has no line feed: carriage returns alone break its lines. Make them line feeds: "
            "tr '\\r' '\\n' < FILE > NEW",
            field="file",
        )


def _endless(path: str, line: int) -> InvalidRequestError:
    return InvalidRequestError(
        "a quoted field or a line begins here and does not end", field=f"{path}:{line}"
    )


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


def _record_spans(
    data: bytes, breaks: np.ndarray, begin: int, *, is_csv: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return begins and ends of the records of whole lines, the first at `begin`."""
    starts = np.concatenate((np.full(1, begin, np.int64), breaks[:-1] + 1))
    ends = breaks.astype(np.int64)
    text = np.frombuffer(data, np.uint8)
    while True:
        is_return = (text[np.maximum(ends - 1, 0)] == _RETURN) & (ends > starts)
        if not is_return.any():
            break
        ends = ends - is_return
    is_record = ends > starts
    if not is_csv:  # a line of blanks is no row of JSON
        blank = is_record & (text[np.minimum(starts, len(text) - 1)] <= _BLANK)
        for row in np.flatnonzero(blank).tolist():
            is_record[row] = bool(data[starts[row] : ends[row]].strip(_BLANKS))
    return (starts, ends) if is_record.all() else (starts[is_record], ends[is_record])
