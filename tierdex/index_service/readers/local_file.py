"""Local files as a query sees them: the chained form (unsealed, sealed) and the compacted one.

Thin: the form does the work, this charges the meter and decodes. `query_reader` is the one place
that knows which reader a handle may have. Depends on indexfile.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from tierdex.index_service.readers.entries import RowDecoder
from tierdex.index_service.readers.file_reader import Chunk
from tierdex.indexfile.chained.file import ChainedFile
from tierdex.indexfile.compacted.file import CompactedFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tierdex.index_service.readers.file_reader import Candidate, FileMeter, QueryReader
    from tierdex.index_service.requests.query import QueryRequest


class _LocalReader:
    """What both forms share: decoding with the file's own dictionaries."""

    is_local = True
    hash_function: str | None = None

    __slots__ = ("_decoder", "_file")

    def __init__(self, file: Any) -> None:
        self._file = file
        self._decoder = RowDecoder(file.schema, file.dictionaries)

    def location_names(self) -> tuple[str, ...]:
        return self._decoder.names

    def candidates(self, rows: np.ndarray) -> list[Candidate]:
        return self._decoder.decode(rows)

    def fingerprints(self, rows: np.ndarray) -> np.ndarray:
        return self._decoder.fingerprints(rows)


class ChainedReader(_LocalReader):
    """Asks a chained file, up to the item count that was published when the query came to it."""

    __slots__ = ()

    def chunks(
        self, request: QueryRequest, meter: FileMeter, place: int | None = None
    ) -> Iterator[Chunk]:
        """Places are row numbers."""
        file: ChainedFile = self._file
        found = file.find_from(
            place,
            request.lookup(),
            begin=request.begin,
            end=request.end,
            on_walked=meter.charge_items,
        )
        return itertools.starmap(Chunk, found)


class CompactedReader(_LocalReader):
    """Asks a compacted file that lies here whole."""

    __slots__ = ()

    def chunks(
        self, request: QueryRequest, meter: FileMeter, place: int | None = None
    ) -> Iterator[Chunk]:
        """Places are pages, of which a chunk has more than one: that in which it begins."""
        file: CompactedFile = self._file
        if not file.may_contain(request.key_hash):
            meter.filtered = True
            return
        found = file.find_from(place, request.lookup(), begin=request.begin, end=request.end)
        for rows, page in found:
            meter.charge_items(len(rows))
            yield Chunk(rows, np.full(len(rows), page))


def query_reader(reader: Any) -> QueryReader:
    """Return `reader` as queries ask it."""
    if isinstance(reader, ChainedFile):
        return ChainedReader(reader)
    if isinstance(reader, CompactedFile):
        return CompactedReader(reader)
    asked: QueryReader = reader
    return asked
