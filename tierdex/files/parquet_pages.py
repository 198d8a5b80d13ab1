"""One row of a Parquet file, of which only the pages that have it are fetched, by the file's page index.

pyarrow reads whole column chunks. So a small file is made in memory for each column, and pyarrow reads that::

    file      | .. | dictionary | page | page | PAGE | page | .. | offset index | .. | footer |
                         |                       |
    small file   PAR1 | dictionary ------------ PAGE | footer: this column alone, as many rows as the page |

Where there is an offset index, a page begins with a row, and is whole in itself but for its dictionary.
Columns of several leaves (structs, maps), whose pages end at different rows, and columns without an offset
index are left to the caller.

A row of a file with row groups of 23 MB costs 2.4 MB so, and 11.5 by column chunks. Other readers of page
indexes (DuckDB, polars, datafusion) are engines of 30 to 60 MB.

Depends on errors, thrift_compact, object_file, parquet_file and pyarrow.
"""

from __future__ import annotations

from base64 import b64encode
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from tierdex.errors import InvalidRequestError
from tierdex.files.parquet_file import open_parquet
from tierdex.files.thrift_compact import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    NotCompactError,
    Struct,
    decode,
    encode,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tierdex.files.object_file import RangeFile
    from tierdex.files.parquet_file import Unit

_MAGIC: Final = b"PAR1"
_END_BYTES: Final = 8  # behind the footer: its length, and the magic
_GAP_BYTES: Final = 64 << 10  # what is fetched too, rather than asking twice
# Numbers of fields in parquet.thrift.
_SCHEMA, _ROW_COUNT, _GROUPS, _NOTES, _ORDERS, _ENCRYPTION = 2, 3, 4, 5, 7, 8
_CHILDREN: Final = 5  # of a SchemaElement
_COLUMNS, _GROUP_BYTES, _GROUP_ROWS = 1, 2, 3  # of a RowGroup
_META, _INDEX_OFFSET, _INDEX_LENGTH = 3, 4, 5  # of a ColumnChunk
_TYPE, _ENCODINGS, _PATH, _CODEC, _VALUES, _UNPACKED, _PACKED = (
    1,
    2,
    3,
    4,
    5,
    6,
    7,
)  # of its metadata
_DATA_OFFSET, _DICTIONARY_OFFSET = 9, 11
_PAGE_OFFSET, _PAGE_BYTES, _PAGE_ROW = 1, 2, 3  # of a PageLocation
_PAGE, _PAGE_2 = 5, 8  # of a PageHeader: a data page of version 1 or 2; both count values in 1
_ENCODING: Final = {_PAGE: 2, _PAGE_2: 4}  # of such a page: where its encoding stands
_DICTIONARY_ENCODINGS: Final = (2, 8)  # PLAIN_DICTIONARY, RLE_DICTIONARY


class _Chunk(NamedTuple):
    """A column chunk of one leaf: where its dictionary and the page with the row are.

    `first` is the page's first row, `rows` how many it has.
    """

    meta: Struct
    dictionary: tuple[int, int]
    page: tuple[int, int]
    first: int
    rows: int


def read_footer(file: RangeFile, length: int) -> Struct | None:
    """Return the file's footer of so many bytes; None where it is not to be read by us."""
    try:
        footer = decode(file.read_at(file.length - _END_BYTES - length, length))
    except NotCompactError:
        return None
    return None if _ENCRYPTION in footer else footer


def read_columns(
    file: RangeFile,
    footer: Struct,
    schema: pa.Schema,
    row_group: int,
    row: int,
    unit: Unit,
    indexes: dict[tuple[int, int], bytes] | None = None,
) -> dict[str, Any]:
    """Return one row's columns by name: those that pages alone can give.

    `schema` is the file's, as pyarrow tells it with INT96 read in `unit`. The row must be one of the group's.
    A dictionary is fetched behind its page, where that has values of it. `indexes` are offset indexes that
    were read before, by their places in the file; those that are read now are added.
    """
    try:
        chunks = _chunks(file, footer, row_group, row, {} if indexes is None else indexes)
        fetched = _fetch(file, [chunk.page for chunk in chunks.values()])
        needed = [
            chunk.dictionary
            for chunk in chunks.values()
            if chunk.dictionary[1] and _has_dictionary(fetched[chunk.page])
        ]
        fetched |= _fetch(file, needed)
        found = {}
        for name, chunk in chunks.items():
            parts = fetched.get(chunk.dictionary, b""), fetched[chunk.page]
            table = _table(_small_file(footer, schema.field(name), chunk, *parts), unit)
            found[name] = table.column(0).slice(row - chunk.first, 1)
            if len(found[name]) != 1 or found[name].type != schema.field(name).type:
                raise NotCompactError("the page is not as it was told")
    except (
        NotCompactError, LookupError, TypeError, OSError, pa.ArrowException, InvalidRequestError,
    ):  # fmt: skip
        return {}
    return found


def _has_dictionary(page: bytes) -> bool:
    """Say whether a data page has values of its chunk's dictionary."""
    header = decode(page)
    for kind, place in _ENCODING.items():
        if kind in header:
            return header[kind][1][place][1] in _DICTIONARY_ENCODINGS
    return True


def _chunks(
    file: RangeFile,
    footer: Struct,
    row_group: int,
    row: int,
    known: dict[tuple[int, int], bytes],
) -> dict[str, _Chunk]:
    """Return the chunks of single-leaf columns that have an offset index, by the column's name."""
    group: Struct = footer[_GROUPS][1][1][row_group]
    rows: int = group[_GROUP_ROWS][1]
    of_name: dict[str, list[Struct]] = {}
    for chunk in group[_COLUMNS][1][1]:
        name = chunk[_META][1][_PATH][1][1][0].decode()
        of_name.setdefault(name, []).append(chunk)
    single = {name: chunks[0] for name, chunks in of_name.items() if len(chunks) == 1}
    indexed = {name: chunk for name, chunk in single.items() if _INDEX_OFFSET in chunk}
    places = {n: (c[_INDEX_OFFSET][1], c[_INDEX_LENGTH][1]) for n, c in indexed.items()}
    known |= _fetch(file, [place for place in places.values() if place not in known])
    return {
        name: _chunk(chunk[_META][1], decode(known[places[name]]), row, rows)
        for name, chunk in indexed.items()
    }


def _chunk(meta: Struct, index: Struct, row: int, rows: int) -> _Chunk:
    locations: list[Struct] = index[1][1][1]
    firsts = [location[_PAGE_ROW][1] for location in locations]
    number = bisect_right(firsts, row) - 1
    if number < 0:
        raise NotCompactError("the offset index lacks the row")
    page = locations[number]
    end = firsts[number + 1] if number + 1 < len(firsts) else rows
    begin = meta[_DATA_OFFSET][1]
    if _DICTIONARY_OFFSET in meta:
        begin = min(begin, meta[_DICTIONARY_OFFSET][1])
    dictionary = begin, max(0, locations[0][_PAGE_OFFSET][1] - begin)
    place = page[_PAGE_OFFSET][1], page[_PAGE_BYTES][1]
    if not begin <= place[0] < sum(place) <= begin + meta[_PACKED][1] or dictionary[1] > place[0]:
        raise NotCompactError("the offset index points beyond its column chunk")
    return _Chunk(meta, dictionary, place, firsts[number], end - firsts[number])


def _fetch(file: RangeFile, ranges: Iterable[tuple[int, int]]) -> dict[tuple[int, int], bytes]:
    """Return the bytes of each (offset, length); near ones come with one read."""
    wanted = sorted(set(ranges))
    found: dict[tuple[int, int], bytes] = {}
    while wanted:
        begin, end, count = wanted[0][0], sum(wanted[0]), 1
        while count < len(wanted) and wanted[count][0] <= end + _GAP_BYTES:
            end = max(end, sum(wanted[count]))
            count += 1
        block = file.read_at(begin, end - begin)
        for offset, length in wanted[:count]:
            found[offset, length] = block[offset - begin : offset - begin + length]
        wanted = wanted[count:]
    return found


def _small_file(
    footer: Struct, field: pa.Field, chunk: _Chunk, dictionary: bytes, page: bytes
) -> bytes:
    header = decode(page)
    of_page: Struct = (header.get(_PAGE) or header[_PAGE_2])[1]
    values = of_page[1][1]
    meta = {each: chunk.meta[each] for each in (_TYPE, _ENCODINGS, _PATH, _CODEC, _UNPACKED)}
    size = len(dictionary) + len(page)
    meta |= {_VALUES: (I64, values), _PACKED: (I64, size)}
    meta[_DATA_OFFSET] = (I64, len(_MAGIC) + len(dictionary))
    if dictionary:
        meta[_DICTIONARY_OFFSET] = (I64, len(_MAGIC))
    group: Struct = {
        _COLUMNS: (LIST, (STRUCT, [{2: (I64, 0), _META: (STRUCT, meta)}])),
        _GROUP_BYTES: (I64, size),
        _GROUP_ROWS: (I64, chunk.rows),
    }
    told = b64encode(pa.schema([field]).serialize().to_pybytes())
    notes = [{1: (BINARY, b"ARROW:schema"), 2: (BINARY, told)}]
    small = {number: each for number, each in footer.items() if number != _ORDERS}
    small |= {
        _SCHEMA: (LIST, (STRUCT, _schema_of(footer, field.name.encode()))),
        _ROW_COUNT: (I64, chunk.rows),
        _GROUPS: (LIST, (STRUCT, [group])),
        _NOTES: (LIST, (STRUCT, notes)),
    }
    end = encode(small)
    return b"".join((_MAGIC, dictionary, page, end, len(end).to_bytes(4, "little"), _MAGIC))


def _schema_of(footer: Struct, name: bytes) -> list[Struct]:
    """Return the elements of a schema with one column alone: the root, the column, what is below it."""
    elements: list[Struct] = footer[_SCHEMA][1][1]
    at = 1
    while True:
        end = _behind(elements, at)
        if elements[at][4][1] == name:
            return [{**elements[0], _CHILDREN: (I32, 1)}, *elements[at:end]]
        at = end


def _behind(elements: list[Struct], at: int) -> int:
    """Return where the element behind this one and all below it stands."""
    left = 1
    while left:
        left += elements[at].get(_CHILDREN, (I32, 0))[1] - 1
        at += 1
    return at


def _table(small: bytes, unit: Unit) -> pa.Table:
    with open_parquet(small, "a page", unit) as parquet:
        table: pa.Table = parquet.read()
        return table
