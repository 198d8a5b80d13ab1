r"""`ValueBlock`: the values of many records, one behind the other in one block of bytes.

It is a sequence of bytes; kernels read the block without an object a value::

    data    {"id":"a"}\n{"id":"b"}\r\n          behind each value there is a line feed or a carriage return
            |         |  |         |
            starts[0] |  starts[1] |
                      ends[0]      ends[1]

Depends on numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, overload

import numpy as np

if TYPE_CHECKING:
    from typing import Self

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"  # of UTF-8: before a text it is none of it


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
