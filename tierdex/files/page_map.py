"""Where the pages of a Parquet file's column chunks are, as far as it is known, and what was read of it.

An offset index of the file says it; else a *page map* is made of the page headers of a whole chunk.

Depends on thrift_compact, object_file and pyarrow.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from tierdex.files.thrift_compact import I32, I64, NotCompactError, Struct, decode_at

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from tierdex.files.object_file import RangeFile

_GAP_BYTES: Final = 64 << 10  # what is fetched too, rather than asking twice
_FEW_REQUESTS: Final = 4
# What is fetched besides, rather than asking more often than that: of 10 M rows of six columns, where an
# engine reads 190 MB, a row then takes four requests and 2.3 to 3.6 MB.
_SPARE_BYTES: Final = 5 << 20
# Numbers of fields in parquet.thrift.
_SCHEMA: Final = 2
REPETITION, CHILDREN = 3, 5  # of a SchemaElement
_REPEATED: Final = 2
PACKED, DATA_OFFSET, DICTIONARY_OFFSET = 7, 9, 11  # of a column chunk's metadata
_PAGE_OFFSET, _PAGE_BYTES, _PAGE_ROW = 1, 2, 3  # of a PageLocation
_HEADER_PACKED: Final = 3  # of a PageHeader
PAGE, DICTIONARY_PAGE, PAGE_2 = (
    5,
    7,
    8,
)  # of it: a data page of version 1 or 2; both count values in 1


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


class Fetched:
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
        wanted = [(begin, end - begin) for begin, end in _few(runs)]
        read = self._file.read_many(wanted)
        self._parts += [(begin, data) for (begin, _), data in zip(wanted, read, strict=True)]

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


def whole_chunk(meta: Struct) -> tuple[int, int]:
    """Return where a column chunk lies: its first byte, and how many there are."""
    begin = meta[DATA_OFFSET][1]
    if meta.get(DICTIONARY_OFFSET, (I64, 0))[1] > 0:
        begin = min(begin, meta[DICTIONARY_OFFSET][1])
    return begin, meta[PACKED][1]


def pages_of_index(meta: Struct, index: Struct) -> Pages:
    locations: list[Struct] = index[1][1][1]
    places = [(each[_PAGE_OFFSET][1], each[_PAGE_BYTES][1]) for each in locations]
    begin, _ = whole_chunk(meta)
    dictionary = begin, max(0, places[0][0] - begin)
    return Pages(places, [each[_PAGE_ROW][1] for each in locations], dictionary)


def page_map(meta: Struct, fetched: Fetched, rows: int) -> Pages:
    """Return the pages of a chunk that was fetched, of a column that has one value a row."""
    begin, size = whole_chunk(meta)
    data = fetched[begin, size]
    places, firsts, dictionary = [], [], (begin, 0)
    at = row = 0
    while at < size:
        header, body = decode_at(data, at)
        end = body + header[_HEADER_PACKED][1]
        if not at < end <= size:
            raise NotCompactError("a page ends beyond its column chunk")
        kind = header.get(PAGE) or header.get(PAGE_2)
        if kind is not None:
            places.append((begin + at, end - at))
            firsts.append(row)
            row += kind[1][1][1]
        elif not places and DICTIONARY_PAGE in header:
            dictionary = begin + at, end - at
        at = end
    if row != rows:
        raise NotCompactError(f"the pages have {row} rows of {rows}")
    return Pages(places, firsts, dictionary)


def is_flat(footer: Struct, name: bytes) -> bool:
    """Say whether a column is one value a row."""
    element = element_of(footer, name)
    return CHILDREN not in element and element.get(REPETITION, (I32, 0))[1] != _REPEATED


def element_of(footer: Struct, name: bytes) -> Struct:
    """Return the schema's element of a column."""
    elements: list[Struct] = footer[_SCHEMA][1][1]
    at = 1
    while elements[at][4][1] != name:
        at = behind(elements, at)
    return elements[at]


def behind(elements: list[Struct], at: int) -> int:
    """Return where the element behind this one and all below it stands."""
    left = 1
    while left:
        left += elements[at].get(CHILDREN, (I32, 0))[1] - 1
        at += 1
    return at
