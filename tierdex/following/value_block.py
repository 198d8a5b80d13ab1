r"""`ValueBlock`: the values of many records, one behind the other in one block of bytes.

It is a sequence of bytes; kernels read the block without an object a value::

    data    {"id":"a"}\n{"id":"b"}\r\n          behind each value there is a line feed or a carriage return
            |         |  |         |
            starts[0] |  starts[1] |
                      ends[0]      ends[1]

Depends on fileparts, kernels, numpy and pyarrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, overload

import numpy as np
import pyarrow as pa

from tierdex.fileparts.memory import address

if TYPE_CHECKING:
    from typing import Self

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"  # of UTF-8: before a text it is none of it


_TEXT_MAX: Final = 1 << 30  # bytes of one column


class ValueBlock(Sequence[bytes]):
    """Values at ``data[starts[i]:ends[i]]``, int64, rising."""

    def __init__(self, data: bytes, starts: np.ndarray, ends: np.ndarray) -> None:
        self.data, self.starts, self.ends = data, starts, ends

    @classmethod
    def of(cls, values: Sequence[bytes | None]) -> Self:
        """Return values as a block; nothing in place of one that is None."""
        if isinstance(values, cls):
            return values
        given: Any = values
        try:
            data = b"\n".join([*given, b""])
        except TypeError:
            given = [value or b"" for value in values]
            data = b"\n".join([*given, b""])
        lengths = np.fromiter(map(len, given), np.int64, len(given))
        ends = np.cumsum(lengths + 1) - 1
        return cls(data, ends - lengths, ends)

    def without_marks(self) -> ValueBlock:
        """Return the values without the byte order marks that some begin with."""
        found = np.frombuffer(self.data, np.uint8)
        has_mark = self.ends - self.starts >= len(BYTE_ORDER_MARK)
        for place, byte in enumerate(BYTE_ORDER_MARK):
            rows = np.flatnonzero(has_mark)
            has_mark[rows] = found[self.starts[rows] + place] == byte
        if not has_mark.any():
            return self
        return ValueBlock(self.data, self.starts + len(BYTE_ORDER_MARK) * has_mark, self.ends)

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...
    def __getitem__(self, at: Any) -> Any:
        if not isinstance(at, slice):
            return self.data[self.starts[at] : self.ends[at]]
        places = zip(self.starts[at].tolist(), self.ends[at].tolist(), strict=True)
        return [self.data[begin:end] for begin, end in places]


def gathered(data: bytes, places: np.ndarray) -> Any:
    """Return the texts at places in `data`, i8[n, 2] (begin, end), as Arrow strings; null where begin is -1.

    Nothing says that they are UTF-8. Raises OverflowError where they are too many bytes for one column.
    """
    from tierdex.following.kernels.json_scan import gather

    is_text = places[:, 0] >= 0
    lengths = np.where(is_text, places[:, 1] - places[:, 0], 0)
    offsets = np.zeros(len(places) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] > _TEXT_MAX:
        raise OverflowError(f"{offsets[-1]} bytes")
    texts = np.empty(max(1, int(offsets[-1])), np.uint8)
    gather(address(np.frombuffer(data, np.uint8)), places, offsets, address(texts))
    validity = None
    if not is_text.all():
        validity = pa.py_buffer(np.packbits(is_text, bitorder="little"))
    buffers = [validity, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(texts)]
    return pa.Array.from_buffers(pa.string(), len(places), buffers)
