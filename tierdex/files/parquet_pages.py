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

Depends on errors, page_values, thrift_compact, object_file, parquet_file and pyarrow.
"""

from __future__ import annotations

import threading
from base64 import b64encode
from bisect import bisect_right
from collections import OrderedDict
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from tierdex.errors import InvalidRequestError
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
    from collections.abc import Iterable

    from tierdex.files.object_file import RangeFile
    from tierdex.files.parquet_file import Unit

_MAGIC: Final = b"PAR1"
_END_BYTES: Final = 8  # behind the footer: its length, and the magic
_GAP_BYTES: Final = 64 << 10  # what is fetched too, rather than asking twice
_FEW_REQUESTS: Final = 4
_SPARE_BYTES: Final = 3 << 20  # what is fetched besides, rather than asking more often than that
# Numbers of fields in parquet.thrift.
_SCHEMA, _ROW_COUNT, _GROUPS, _NOTES, _ORDERS, _ENCRYPTION = 2, 3, 4, 5, 7, 8
_REPETITION, _CHILDREN = 3, 5  # of a SchemaElement
_OPTIONAL, _REPEATED = 1, 2
_INT96: Final = 3  # a physical type
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
_HEADER_PACKED: Final = 3  # of a PageHeader
_PAGE, _DICTIONARY_PAGE, _PAGE_2 = (
    5,
    7,
    8,
)  # of it: a data page of version 1 or 2; both count values in 1
_ENCODING: Final = {_PAGE: 2, _PAGE_2: 4}  # of such a page: where its encoding stands
_DICTIONARY_ENCODINGS: Final = (2, 8)  # PLAIN_DICTIONARY, RLE_DICTIONARY


class Pages(NamedTuple):
    """The pages of a column chunk: (offset, bytes) of each, its first row, and where the dictionary is."""

    places: list[tuple[int, int]]
    firsts: list[int]
    dictionary: tuple[int, int]


class DictionaryMemory:
    """Dictionaries of many files, decoded, up to so many bytes; those used last stay. Thread-safe."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[object, pa.Array] = OrderedDict()
        self._bytes = 0

    def get(self, name: object) -> pa.Array | None:
        with self._lock:
            if name in self._kept:
                self._kept.move_to_end(name)
            return self._kept.get(name)

    def put(self, name: object, values: pa.Array) -> None:
        with self._lock:
            if name not in self._kept:
                self._kept[name] = values
                self._bytes += values.nbytes
            while self._bytes > self._most:
                self._bytes -= self._kept.popitem(last=False)[1].nbytes


class KnownPages:
    """What a file told of its pages. Safe to share between threads: what two read at once is the same."""

    def __init__(self, footer: Struct, dictionaries: DictionaryMemory | None = None) -> None:
        self.footer = footer
        self.pages: dict[tuple[int, str], Pages] = {}
        self._dictionaries = dictionaries
        self._name = object()  # of this file's dictionaries: no two objects that live are equal

    def dictionary(self, place: tuple[int, int]) -> pa.Array | None:
        return None if self._dictionaries is None else self._dictionaries.get((self._name, place))

    def keep(self, place: tuple[int, int], values: pa.Array) -> None:
        if self._dictionaries is not None:
            self._dictionaries.put((self._name, place), values)


class _Chunk(NamedTuple):
    """A column chunk of one leaf: where its dictionary and the page with the row are.

    `first` is the page's first row, `rows` how many it has.
    """

    meta: Struct
    dictionary: tuple[int, int]
    page: tuple[int, int]
    first: int
    rows: int


class _Fetched:
    """Parts of a file that were read."""

    def __init__(self, file: RangeFile) -> None:
        self._file = file
        self._parts: list[tuple[int, bytes]] = []

    def fetch(self, places: Iterable[tuple[int, int]]) -> None:
        """Read what is not there yet; near places come with one read."""
        runs: list[tuple[int, int]] = []
        for begin, length in sorted(set(places)):
            if self._held(begin, length) is not None:
                continue
            if runs and begin <= runs[-1][1] + _GAP_BYTES:
                runs[-1] = runs[-1][0], max(runs[-1][1], begin + length)
            else:
                runs.append((begin, begin + length))
        for begin, end in _few(runs):
            self._parts.append((begin, self._file.read_at(begin, end - begin)))

    def __getitem__(self, place: tuple[int, int]) -> bytes:
        held = self._held(*place)
        if held is None:
            raise NotCompactError("the file ends within a page")
        return held

    def _held(self, begin: int, length: int) -> bytes | None:
        for at, data in self._parts:
            if at <= begin and begin + length <= at + len(data):
                return data[begin - at : begin - at + length]
        return None


def _few(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return fewer runs, [begin, end), as long as what is read between them is little."""
    spare = _SPARE_BYTES
    while len(runs) > _FEW_REQUESTS:
        gaps = [after[0] - before[1] for before, after in pairwise(runs)]
        least = min(gaps)
        if least > spare:
            break
        spare -= least
        at = gaps.index(least)
        runs = [*runs[:at], (runs[at][0], runs[at + 1][1]), *runs[at + 2 :]]
    return runs


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
        fetched = _Fetched(file)
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
    return is_plain and _is_flat(footer, field.name.encode())


def _values_of(
    footer: Struct, field: pa.Field, chunk: _Chunk, dictionary: bytes, unit: Unit
) -> pa.Array:
    """Return the values of a dictionary page: as a page of a column that has a value in each row."""
    header, at = decode_at(dictionary, 0)
    count = header[_DICTIONARY_PAGE][1][1][1]
    said: Struct = {1: (I32, count), 2: (I32, 0), 3: (I32, 3), 4: (I32, 3)}  # PLAIN; levels RLE
    whole: Struct = {1: (I32, 0), 2: header[2], 3: header[3], _PAGE: (STRUCT, said)}
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
    element = _element(footer, field.name.encode())
    has_nulls = element.get(_REPETITION, (I32, 0))[1] == _OPTIONAL
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


def _chunks(fetched: _Fetched, known: KnownPages, row_group: int, row: int) -> dict[str, _Chunk]:
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
        pages = _pages_of_index(chunk[_META][1], decode(fetched[places[name]]))
        known.pages[row_group, name] = pages
    unknown = [
        name for name in new.keys() - indexed.keys() if _is_flat(known.footer, name.encode())
    ]
    fetched.fetch(_whole(single[name][_META][1]) for name in unknown)
    rows: int = group[_GROUP_ROWS][1]
    for name in unknown:
        known.pages[row_group, name] = _page_map(single[name][_META][1], fetched, rows)
    return {
        name: _chunk(chunk[_META][1], known.pages[row_group, name], row, rows)
        for name, chunk in single.items()
        if (row_group, name) in known.pages
    }


def _whole(meta: Struct) -> tuple[int, int]:
    """Return where a column chunk lies: its first byte, and how many there are."""
    begin = meta[_DATA_OFFSET][1]
    if meta.get(_DICTIONARY_OFFSET, (I64, 0))[1] > 0:
        begin = min(begin, meta[_DICTIONARY_OFFSET][1])
    return begin, meta[_PACKED][1]


def _pages_of_index(meta: Struct, index: Struct) -> Pages:
    locations: list[Struct] = index[1][1][1]
    places = [(each[_PAGE_OFFSET][1], each[_PAGE_BYTES][1]) for each in locations]
    begin, _ = _whole(meta)
    dictionary = begin, max(0, places[0][0] - begin)
    return Pages(places, [each[_PAGE_ROW][1] for each in locations], dictionary)


def _page_map(meta: Struct, fetched: _Fetched, rows: int) -> Pages:
    """Return the pages of a chunk that was fetched, of a column that has one value a row."""
    begin, size = _whole(meta)
    data = fetched[begin, size]
    places, firsts, dictionary = [], [], (begin, 0)
    at = row = 0
    while at < size:
        header, body = decode_at(data, at)
        end = body + header[_HEADER_PACKED][1]
        if not at < end <= size:
            raise NotCompactError("a page ends beyond its column chunk")
        kind = header.get(_PAGE) or header.get(_PAGE_2)
        if kind is not None:
            places.append((begin + at, end - at))
            firsts.append(row)
            row += kind[1][1][1]
        elif not places and _DICTIONARY_PAGE in header:
            dictionary = begin + at, end - at
        at = end
    if row != rows:
        raise NotCompactError(f"the pages have {row} rows of {rows}")
    return Pages(places, firsts, dictionary)


def _is_flat(footer: Struct, name: bytes) -> bool:
    """Say whether a column is one value a row."""
    element = _element(footer, name)
    return _CHILDREN not in element and element.get(_REPETITION, (I32, 0))[1] != _REPEATED


def _element(footer: Struct, name: bytes) -> Struct:
    """Return the schema's element of a column."""
    elements: list[Struct] = footer[_SCHEMA][1][1]
    at = 1
    while elements[at][4][1] != name:
        at = _behind(elements, at)
    return elements[at]


def _chunk(meta: Struct, pages: Pages, row: int, rows: int) -> _Chunk:
    number = bisect_right(pages.firsts, row) - 1
    if number < 0:
        raise NotCompactError("the offset index lacks the row")
    end = pages.firsts[number + 1] if number + 1 < len(pages.firsts) else rows
    place, (begin, size) = pages.places[number], _whole(meta)
    if not begin <= place[0] < sum(place) <= begin + size or sum(pages.dictionary) > place[0]:
        raise NotCompactError("the offset index points beyond its column chunk")
    return _Chunk(meta, pages.dictionary, place, pages.firsts[number], end - pages.firsts[number])


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
        end = _behind(elements, at)
        if elements[at][4][1] == name:
            own = elements[at] if field.nullable else {**elements[at], _REPETITION: (I32, 0)}
            return [{**elements[0], _CHILDREN: (I32, 1)}, own, *elements[at + 1 : end]]
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
