"""One value of a data page that has numbers of dictionary values: found without decoding the page.

pyarrow decodes a page whole, and its dictionary each time. Here the dictionary is an Arrow array that was
decoded once, and of the page its levels are counted up to the row, and one number is read.

Source: the Parquet format ("Data Pages", "Run Length Encoding / Bit-Packing Hybrid"). For columns with one
value a row, whose dictionary pyarrow decodes to the column's own type.

Depends on thrift_compact, numpy and pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from tierdex.files.thrift_compact import NotCompactError, decode_at

if TYPE_CHECKING:
    from tierdex.files.thrift_compact import Struct

_CODECS: Final = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
_UNPACKED, _PAGE, _PAGE_2 = 2, 5, 8  # of a PageHeader
_VALUES, _DEFINITION_BYTES, _REPETITION_BYTES, _IS_COMPRESSED = 1, 5, 6, 7  # of a data page header


def number_of_row(page: bytes, codec: int, row: int, *, has_nulls: bool) -> int | None:
    """Return the number in the dictionary that a row of a page has; None: the row is null.

    `codec` is Parquet's number. Raises NotCompactError for a page that is not as it must be.
    """
    try:
        levels, values, count = _parts(page, codec, has_nulls=has_nulls)
        if not 0 <= row < count:
            raise NotCompactError(f"the page has {count} values")
        place = row
        if levels is not None:
            is_there, place = _rank(levels, row)
            if not is_there:
                return None
        return _number(values[1:], values[0], place)
    except (IndexError, KeyError, TypeError, pa.ArrowException, ValueError) as error:
        raise NotCompactError(f"the page cannot be read: {error}") from error


def _parts(page: bytes, codec: int, *, has_nulls: bool) -> tuple[bytes | None, bytes, int]:
    """Return the levels of definition (None: every row has a value), the numbers, and how many rows."""
    header, at = decode_at(page, 0)
    size = header[_UNPACKED][1]
    if _PAGE in header:
        body = _unpacked(page[at:], codec, size)
        count: int = header[_PAGE][1][_VALUES][1]
        if not has_nulls:
            return None, body, count
        length = int.from_bytes(body[:4], "little")
        return body[4 : 4 + length], body[4 + length :], count
    said: Struct = header[_PAGE_2][1]
    levels, repeats = said[_DEFINITION_BYTES][1], said[_REPETITION_BYTES][1]
    begin = at + repeats + levels
    is_packed = said.get(_IS_COMPRESSED, (1, True))[1]
    packed = page[begin:]
    values = _unpacked(packed, codec, size - repeats - levels) if is_packed else packed
    return (page[at + repeats : begin] if has_nulls else None), values, said[_VALUES][1]


def _unpacked(data: bytes, codec: int, size: int) -> bytes:
    if codec == 0:
        return data[:size]
    unpacked: Any = pa.Codec(_CODECS[codec]).decompress(data, decompressed_size=size)
    return bytes(unpacked)


def _rank(levels: bytes, row: int) -> tuple[bool, int]:
    """Return whether a row has a value, and how many before it have."""
    at = before = rows = 0
    while True:
        head, at = _varint(levels, at)
        if head & 1:
            count, size = (head >> 1) * 8, head >> 1
            bits = np.unpackbits(np.frombuffer(levels, np.uint8, size, at), bitorder="little")
            at += size
            if row < rows + count:
                return bool(bits[row - rows]), before + int(bits[: row - rows].sum())
            before += int(bits.sum())
        else:
            count, level = head >> 1, levels[at]
            at += 1
            if row < rows + count:
                return level == 1, before + (row - rows) * level
            before += count * level
        rows += count


def _number(data: bytes, width: int, place: int) -> int:
    """Return the number at a place of numbers of `width` bits."""
    if width == 0:
        return 0
    at = numbers = 0
    size_of_run = (width + 7) // 8
    while True:
        head, at = _varint(data, at)
        if head & 1:
            count = (head >> 1) * 8
            if place < numbers + count:
                bit = (place - numbers) * width
                begin, shift = at + bit // 8, bit % 8
                raw = data[begin : begin + (shift + width + 7) // 8]
                if len(raw) * 8 < shift + width:
                    raise IndexError("the numbers end within one")
                return int.from_bytes(raw, "little") >> shift & ((1 << width) - 1)
            at += (head >> 1) * width
        else:
            count = head >> 1
            if place < numbers + count:
                return int.from_bytes(data[at : at + size_of_run], "little")
            at += size_of_run
        numbers += count


def _varint(data: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    while True:
        byte = data[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found, at
        shift += 7
        if shift > 35:
            raise NotCompactError("a run has no length")
