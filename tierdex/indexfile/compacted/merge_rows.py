"""Several files' rows as one stream in hash order: the compactor's merge and Spark's.

Newest file first among equal hashes, so that the order of answers stays what it was. Every file has
its own dictionaries; the merged rows have new ones. Memory holds a chunk of rows a file, whatever
the length of a run, and sorts about as many rows at a time as its caller takes: the hash at which some
file's share of them ends is streamed file by file.

::

    file A  [.. 3 5 | 5 5 9 ..]     all rows below 5 are sorted together,
    file B  [.. 4 8 ..]             then the rows of 5: A's chunk by chunk, then B's

Repeated entries are dropped by the writer. Depends on dictionary, row_bounds, layout and schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from tierdex.errors import InvalidRequestError
from tierdex.fileparts.dictionary import Dictionaries
from tierdex.indexfile import layout
from tierdex.indexfile.row_bounds import RowBounds
from tierdex.indexfile.schema import TOPIC_DICTIONARY, join_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tierdex.indexfile.schema import Schema

_CHUNK_ITEMS_MIN = 256
_HELD_ITEMS = 1 << 18  # rows that all files together hold in memory, about


class RowSource(Protocol):
    """A file that gives all its rows: `ChainedFile` (sealed) or `CompactedFile`."""

    @property
    def schema(self) -> Schema: ...
    @property
    def item_count(self) -> int: ...
    @property
    def dictionaries(self) -> Dictionaries: ...
    def row_bounds(self) -> RowBounds: ...
    def rows_in_hash_order(self, chunk_items: int) -> Iterator[np.ndarray]: ...


class RowMerge:
    """The rows of several files, and what a writer must know of them before the first.

    `dictionaries` and `bounds` hold for the merged rows; `item_count` counts repeated ones too.
    """

    def __init__(self, sources: Sequence[RowSource]) -> None:
        """Merge `sources`, newest file first. Raises InvalidRequestError when schemas differ."""
        assert sources
        self._sources = sources
        self.schema = sources[0].schema
        if any(source.schema != self.schema for source in sources):
            raise InvalidRequestError("files with different schemas cannot be merged")
        self.item_count = sum(source.item_count for source in sources)
        self.dictionaries = Dictionaries(self.schema.dictionary_names)
        self._remaps = [self._remap(source.dictionaries) for source in sources]
        self.dictionaries.keep()
        self.bounds = RowBounds.join([source.row_bounds() for source in sources], self._remaps)

    def _remap(self, old: Dictionaries) -> dict[str, np.ndarray]:
        """Return the new index (i8) of every string of `old`, by dictionary."""
        return {name: self.dictionaries.stage(name, old.strings(name)) for name in old.names}

    def rows(self, chunk_items: int) -> Iterator[np.ndarray]:
        """Yield all rows, sorted by hash, newest file first among equals, in arrays of any length.

        Raises what reading the files raises.
        """
        each = max(_CHUNK_ITEMS_MIN, min(chunk_items, _HELD_ITEMS // len(self._sources)))
        streams = [
            _Stream(source, remap, each)
            for source, remap in zip(self._sources, self._remaps, strict=True)
        ]
        waiting: list[np.ndarray] = []
        held = 0
        share = max(1, chunk_items // len(streams))
        for rows in _merge([stream for stream in streams if stream.fill()], share):
            waiting.append(rows)
            held += len(rows)
            if held >= chunk_items:
                yield join_rows(waiting)
                waiting, held = [], 0
        if held:
            yield join_rows(waiting)


class _Stream:
    """One file's rows, with the merged file's dictionary indexes; `rows` is what is at hand."""

    def __init__(self, source: RowSource, remap: dict[str, np.ndarray], chunk_items: int) -> None:
        self._chunks = iter(source.rows_in_hash_order(chunk_items))
        identity = {name: np.array_equal(new, np.arange(len(new))) for name, new in remap.items()}
        self._remap = {name: new for name, new in remap.items() if not identity[name]}
        self.rows = np.zeros(0, source.schema.dtype)

    def fill(self) -> bool:
        """Take the next chunk when none is at hand; return whether there are rows."""
        while not len(self.rows):
            chunk = next(self._chunks, None)
            if chunk is None:
                return False
            self.rows = self._renamed(chunk)
        return True

    def take(self, count: int) -> np.ndarray:
        """Return the first `count` rows at hand, which are gone then."""
        taken, self.rows = self.rows[:count], self.rows[count:]
        return taken

    def take_below(self, edge: np.uint64) -> np.ndarray:
        """Return the rows at hand whose hash is below `edge`, which are gone then."""
        return self.take(int(np.searchsorted(self.rows["key_hash"], edge, side="left")))

    def _renamed(self, rows: np.ndarray) -> np.ndarray:
        if not self._remap:
            return rows
        rows = rows.copy()
        for name, new in self._remap.items():
            if name == TOPIC_DICTIONARY:
                topics = new[rows["tag"] & np.uint32(layout.TOPIC_MASK)].astype(np.uint32)
                rows["tag"] = (rows["tag"] & np.uint32(layout.KIND_BIT)) | topics
            else:
                rows[name] = new[rows[name]]
        return rows


def _merge(streams: list[_Stream], share: int) -> Iterator[np.ndarray]:
    """Yield rows in order, of each stream up to `share` at a time; every stream has rows at hand."""
    while streams:
        edge = min(stream.rows["key_hash"][:share][-1] for stream in streams)
        # No view of a chunk outlives this line: the next one is read in its place.
        joined = join_rows([stream.take_below(edge) for stream in streams])
        # Stable: among equal hashes the order of the streams stays, newest file first.
        yield joined[np.argsort(joined["key_hash"], kind="stable")]
        for stream in streams:
            while stream.fill() and stream.rows["key_hash"][0] == edge:
                count = int(np.searchsorted(stream.rows["key_hash"], edge, side="right"))
                yield stream.take(count)
        streams = [stream for stream in streams if stream.fill()]
