"""The keys and columns that every contestant gets: made in blocks, the same for all.

A key is 16 to 36 bytes: a letter, six digits that jump about, four digits of its block, filler. The
jumping digits come first, so that ordered stores get their keys in random order, as they would from
orders of several systems. A block differs from the next in four digits only, so that 200 M keys cost
little to make.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import pyarrow as pa

BLOCK = 1_000_000
START_MS = 1_700_000_000_000
TOPIC = "orders"
# A location as a store of bytes would keep it.
VALUE = np.dtype([("offset", "<i8"), ("time", "<i8"), ("size", "<u4"), ("queue", "<i4")])


@cache
def _template(block: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (offsets i4, bytes u1) of `block` keys whose block digits are not filled in."""
    rng = np.random.default_rng(7)
    jumping = rng.permutation(block)
    lengths = 16 + jumping * 31 % 21
    offsets = np.zeros(block + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    data = np.full(int(offsets[-1]), ord("x"), np.uint8)
    begin = offsets[:-1]
    data[begin] = ord("K")
    for place in range(6):
        data[begin + 1 + place] = ord("0") + jumping // 10 ** (5 - place) % 10
    return offsets, data


@dataclass(frozen=True)
class Block:
    """`count` entries, numbered `number * count` on: the keys in Arrow, the columns in numpy."""

    number: int
    count: int
    letter: str = "K"  # another letter: keys that nobody put

    @cached_property
    def keys(self) -> Any:
        offsets, data = _template(self.count)
        data = data.copy()
        begin = offsets[:-1]
        data[begin] = ord(self.letter)
        for place in range(4):
            data[begin + 7 + place] = ord("0") + self.number // 10 ** (3 - place) % 10
        return pa.StringArray.from_buffers(self.count, pa.py_buffer(offsets), pa.py_buffer(data))

    @cached_property
    def columns(self) -> dict[str, np.ndarray]:
        """Return queue_id, offset, size and timestamp, in the schema's dtypes."""
        first = self.number * self.count
        rows = np.arange(first, first + self.count)
        return {
            "queue_id": (rows % 8).astype(np.int32),
            "offset": rows // 8 * 700,
            "size": (400 + rows * 2654435761 % 300).astype(np.uint32),
            "timestamp": START_MS + rows // 10,
        }

    @property
    def entries(self) -> dict[str, Any]:
        """Return the keyword arguments of put_batch."""
        return {"topic": TOPIC, "keys": self.keys, **self.columns}

    @cached_property
    def texts(self) -> list[str]:
        texts: list[str] = self.keys.to_pylist()
        return texts

    @cached_property
    def raw_keys(self) -> list[bytes]:
        return [text.encode() for text in self.texts]

    @cached_property
    def raw_values(self) -> list[bytes]:
        """Return each entry's location as 24 bytes, what a store of bytes would keep."""
        rows = np.empty(self.count, VALUE)
        rows["offset"], rows["time"] = self.columns["offset"], self.columns["timestamp"]
        rows["size"], rows["queue"] = self.columns["size"], self.columns["queue_id"]
        whole = rows.tobytes()
        return [whole[i : i + 24] for i in range(0, len(whole), 24)]

    @cached_property
    def tuples(self) -> list[tuple[int, ...]]:
        columns = self.columns
        return list(zip(*(columns[name].tolist() for name in columns), strict=True))

    def some(self, rows: np.ndarray) -> Any:
        """Return the keys of some rows as one compact Arrow array."""
        return self.keys.take(pa.array(rows))
