r"""The rule of CSV text: where a record ends, and which fields it has.

::

    a,"b ""x"", y",5" pipe \r\n     a | b "x", y | 5" pipe      quotes count at the begin of a field only

A quoted text goes to its closing quote, over line breaks; a doubled quote in it is one. What stands behind
the closing quote is text. A record ends at LF outside of quotes, carriage returns before it left out. Other
carriage returns outside of quotes are refused: many programs take one for a line break.

Depends on fileparts, kernels and numpy.
"""

from __future__ import annotations

import numpy as np

from tierdex.fileparts.memory import address

LONE_RETURN = (
    "a carriage return stands alone, outside of quotes: quote the field, or end lines by line feeds"
)


def record_breaks(data: bytes, begin: int, newlines: np.ndarray, delimiter: str) -> np.ndarray:
    """Return those of the line feeds `newlines` that end a record: int64; the first record is at `begin`."""
    if data.find(b'"', begin) < 0:
        return newlines
    from tierdex.app.load.kernels.csv_scan import find_breaks

    breaks = np.empty(len(newlines), np.int64)
    text = np.frombuffer(data, np.uint8)
    return breaks[: find_breaks(address(text), begin, len(data), ord(delimiter), breaks)]


def split_record(record: bytes, delimiter: str) -> list[bytes]:
    """Return the fields of one record without its line break. Raises ValueError, saying what is wrong."""
    parted_by, fields, at = delimiter.encode(), [], 0
    while True:
        quoted = b""
        if record[at : at + 1] == b'"':
            quoted, at = _quoted(record, at + 1)
        end = record.find(parted_by, at)
        text = record[at:] if end < 0 else record[at:end]
        if b"\r" in text:
            raise ValueError(LONE_RETURN)
        fields.append(quoted + text)
        if end < 0:
            return fields
        at = end + 1


def _quoted(record: bytes, at: int) -> tuple[bytes, int]:
    """Return a quoted text from behind its opening quote on, and where it is left behind."""
    parts = []
    while True:
        end = record.find(b'"', at)
        if end < 0:
            raise ValueError("a quoted field does not end")
        parts.append(record[at:end])
        if record[end + 1 : end + 2] != b'"':
            return b'"'.join(parts), end + 1
        at = end + 2
