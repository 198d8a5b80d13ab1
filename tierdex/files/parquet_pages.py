"""One row of a Parquet file, of which only the pages that have it are fetched.

pyarrow reads whole column chunks. So a small file is made in memory for each column, and pyarrow reads that::

    file      | .. | dictionary | page | page | PAGE | page | .. | offset index | .. | footer |
                         |                       |
    small file   PAR1 | dictionary ------------ PAGE | footer: this column alone, as many rows as the page |

Where its pages are, the file's offset index says: a page begins with a row, and is whole in itself but for
its dictionary. A file without one gets a *page map* of ours: the first row of a row group fetches the chunks
whole, and their page headers say where the pages are, for every row after it. What a file told is kept in
`KnownPages`, dictionaries in a `DictionaryMemory`, since files of a table never change.

Columns of several leaves (structs, maps), whose pages end at different rows, and lists without an offset
index are left to the caller.

A row of a file with row groups of 23 MB costs 2.4 MB so, and 11.5 by column chunks. Other readers of page
indexes (DuckDB, polars, datafusion) are engines of 30 to 60 MB.

Depends on errors, page_map, page_values, thrift_compact, object_file, parquet_file and pyarrow.
"""

from __future__ import annotations

from base64 import b64encode
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from tierdex.errors import InvalidRequestError
from tierdex.files.page_map import (
    CHILDREN,
    DATA_OFFSET,
    DICTIONARY_OFFSET,
    DICTIONARY_PAGE,
    PACKED,
    PAGE,
    PAGE_2,
    REPETITION,
    Fetched,
    KnownPages,
    Pages,
    behind,
    element_of,
    is_flat,
    page_map,
    pages_of_index,
    whole_chunk,
)
from tierdex.files.page_values import number_of_row
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
    decode_at,
    encode,
)

if TYPE_CHECKING:
    from tierdex.files.object_file import RangeFile
    from tierdex.files.parquet_file import Unit

_MAGIC: Final = b"PAR1"
_END_BYTES: Final = 8  # behind the footer: its length, and the magic
# Numbers of fields in parquet.thrift.
_SCHEMA, _ROW_COUNT, _GROUPS, _NOTES, _ORDERS, _ENCRYPTION = 2, 3, 4, 5, 7, 8
_OPTIONAL: Final = 1  # a repetition
_INT96: Final = 3  # a physical type
_COLUMNS, _GROUP_BYTES, _GROUP_ROWS = 1, 2, 3  # of a RowGroup
_META, _INDEX_OFFSET, _INDEX_LENGTH = 3, 4, 5  # of a ColumnChunk
_TYPE, _ENCODINGS, _PATH, _CODEC, _VALUES, _UNPACKED = 1, 2, 3, 4, 5, 6  # of its metadata
_ENCODING: Final = {PAGE: 2, PAGE_2: 4}  # of such a page: where its encoding stands
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
    file: RangeFile, known: KnownPages, schema: pa.Schema, row_group: int, row: int, unit: Unit
) -> dict[str, Any]:
    """Return one row's columns by name: those that pages alone can give.

    `schema` is the file's, as pyarrow tells it with INT96 read in `unit`. The row must be one of the group's.
    A dictionary is fetched behind its page, where that has values of it.
    """
    try:
        fetched = Fetched(file)
        chunks = _chunks(fetched, known, row_group, row)
        fetched.fetch(chunk.page for chunk in chunks.values())
        needed = {
            chunk.dictionary
            for chunk in chunks.values()
            if chunk.dictionary[1] and _has_dictionary(fetched[chunk.page])
        }
        kept = {place: known.dictionary(place) for place in needed}
        fetched.fetch(place for place, data in kept.items() if data is None)
        found = {}
        for name, chunk in chunks.items():
            field, page, at = schema.field(name), fetched[chunk.page], row - chunk.first
            values = kept.get(chunk.dictionary)
            dictionary = (
                fetched[chunk.dictionary] if chunk.dictionary in needed and values is None else b""
            )
            if dictionary and _is_told_by_number(known.footer, field, chunk):
                values = _values_of(known.footer, field, chunk, dictionary, unit)
                known.keep(chunk.dictionary, values)
            if values is not None:
                found[name] = _by_number(known.footer, field, chunk, page, at, values)
                continue
            table = _table(_small_file(known.footer, field, chunk, dictionary, page), unit)
            found[name] = table.column(0).slice(at, 1)
            if len(found[name]) != 1 or found[name].type != field.type:
                raise NotCompactError("the page is not as it was told")
    except (
        NotCompactError, LookupError, TypeError, OSError, pa.ArrowException, InvalidRequestError,
    ):  # fmt: skip
        return {}
    return found


def _is_told_by_number(footer: Struct, field: pa.Field, chunk: _Chunk) -> bool:
    """Say whether a value is known by its number in the dictionary: one a row, of the column's own type."""
    is_plain = not pa.types.is_dictionary(field.type) and chunk.meta[_TYPE][1] != _INT96
    return is_plain and is_flat(footer, field.name.encode())


def _values_of(
    footer: Struct, field: pa.Field, chunk: _Chunk, dictionary: bytes, unit: Unit
) -> pa.Array:
    """Return the values of a dictionary page: as a page of a column that has a value in each row."""
    header, at = decode_at(dictionary, 0)
    count = header[DICTIONARY_PAGE][1][1][1]
    said: Struct = {1: (I32, count), 2: (I32, 0), 3: (I32, 3), 4: (I32, 3)}  # PLAIN; levels RLE
    whole: Struct = {1: (I32, 0), 2: header[2], 3: header[3], PAGE: (STRUCT, said)}
    page = encode(whole) + dictionary[at:]
    place = chunk._replace(rows=count)
    required = field.with_nullable(False)
    values = _table(_small_file(footer, required, place, b"", page), unit).column(0)
    made = pa.concat_arrays(values.chunks) if values.num_chunks else pa.nulls(0, field.type)
    if len(made) != count or made.type != field.type:
        raise NotCompactError("the dictionary is not as it was told")
    return made


def _by_number(
    footer: Struct, field: pa.Field, chunk: _Chunk, page: bytes, row: int, values: pa.Array
) -> pa.ChunkedArray:
    element = element_of(footer, field.name.encode())
    has_nulls = element.get(REPETITION, (I32, 0))[1] == _OPTIONAL
    number = number_of_row(page, chunk.meta[_CODEC][1], row, has_nulls=has_nulls)
    if number is None:
        return pa.chunked_array([pa.nulls(1, field.type)])
    if number >= len(values):
        raise NotCompactError(f"the dictionary has {len(values)} values")
    return pa.chunked_array([values.slice(number, 1)])


def _has_dictionary(page: bytes) -> bool:
    """Say whether a data page has values of its chunk's dictionary."""
    header = decode(page)
    for kind, place in _ENCODING.items():
        if kind in header:
            return header[kind][1][place][1] in _DICTIONARY_ENCODINGS
    return True


def _chunks(fetched: Fetched, known: KnownPages, row_group: int, row: int) -> dict[str, _Chunk]:
    """Return the chunks of single-leaf columns of which the pages are known, by the column's name."""
    group: Struct = known.footer[_GROUPS][1][1][row_group]
    of_name: dict[str, list[Struct]] = {}
    for chunk in group[_COLUMNS][1][1]:
        name = chunk[_META][1][_PATH][1][1][0].decode()
        of_name.setdefault(name, []).append(chunk)
    single = {name: chunks[0] for name, chunks in of_name.items() if len(chunks) == 1}
    new = {name: chunk for name, chunk in single.items() if (row_group, name) not in known.pages}
    indexed = {name: c for name, c in new.items() if _INDEX_OFFSET in c}
    places = {n: (c[_INDEX_OFFSET][1], c[_INDEX_LENGTH][1]) for n, c in indexed.items()}
    fetched.fetch(places.values())
    for name, chunk in indexed.items():
        pages = pages_of_index(chunk[_META][1], decode(fetched[places[name]]))
        known.pages[row_group, name] = pages
    unknown = [name for name in new.keys() - indexed.keys() if is_flat(known.footer, name.encode())]
    fetched.fetch(whole_chunk(single[name][_META][1]) for name in unknown)
    rows: int = group[_GROUP_ROWS][1]
    for name in unknown:
        known.pages[row_group, name] = page_map(single[name][_META][1], fetched, rows)
    return {
        name: _chunk(chunk[_META][1], known.pages[row_group, name], row, rows)
        for name, chunk in single.items()
        if (row_group, name) in known.pages
    }


def _chunk(meta: Struct, pages: Pages, row: int, rows: int) -> _Chunk:
    number = bisect_right(pages.firsts, row) - 1
    if number < 0:
        raise NotCompactError("the offset index lacks the row")
    end = pages.firsts[number + 1] if number + 1 < len(pages.firsts) else rows
    place, (begin, size) = pages.places[number], whole_chunk(meta)
    if not begin <= place[0] < sum(place) <= begin + size or sum(pages.dictionary) > place[0]:
        raise NotCompactError("the offset index points beyond its column chunk")
    return _Chunk(meta, pages.dictionary, place, pages.firsts[number], end - pages.firsts[number])


def _small_file(
    footer: Struct, field: pa.Field, chunk: _Chunk, dictionary: bytes, page: bytes
) -> bytes:
    header = decode(page)
    of_page: Struct = (header.get(PAGE) or header[PAGE_2])[1]
    values = of_page[1][1]
    meta = {each: chunk.meta[each] for each in (_TYPE, _ENCODINGS, _PATH, _CODEC, _UNPACKED)}
    size = len(dictionary) + len(page)
    meta |= {_VALUES: (I64, values), PACKED: (I64, size)}
    meta[DATA_OFFSET] = (I64, len(_MAGIC) + len(dictionary))
    if dictionary:
        meta[DICTIONARY_OFFSET] = (I64, len(_MAGIC))
    group: Struct = {
        _COLUMNS: (LIST, (STRUCT, [{2: (I64, 0), _META: (STRUCT, meta)}])),
        _GROUP_BYTES: (I64, size),
        _GROUP_ROWS: (I64, chunk.rows),
    }
    told = b64encode(pa.schema([field]).serialize().to_pybytes())
    notes = [{1: (BINARY, b"ARROW:schema"), 2: (BINARY, told)}]
    small = {number: each for number, each in footer.items() if number != _ORDERS}
    small |= {
        _SCHEMA: (LIST, (STRUCT, _schema_of(footer, field))),
        _ROW_COUNT: (I64, chunk.rows),
        _GROUPS: (LIST, (STRUCT, [group])),
        _NOTES: (LIST, (STRUCT, notes)),
    }
    end = encode(small)
    return b"".join((_MAGIC, dictionary, page, end, len(end).to_bytes(4, "little"), _MAGIC))


def _schema_of(footer: Struct, field: pa.Field) -> list[Struct]:
    """Return the elements of a schema with one column alone: the root, the column, what is below it.

    A column that has a value in each row, whatever the file says, is no nullable field.
    """
    name = field.name.encode()
    elements: list[Struct] = footer[_SCHEMA][1][1]
    at = 1
    while True:
        end = behind(elements, at)
        if elements[at][4][1] == name:
            own = elements[at] if field.nullable else {**elements[at], REPETITION: (I32, 0)}
            return [{**elements[0], CHILDREN: (I32, 1)}, own, *elements[at + 1 : end]]
        at = end


def _table(small: bytes, unit: Unit) -> pa.Table:
    with open_parquet(small, "a page", unit) as parquet:
        table: pa.Table = parquet.read()
        return table
