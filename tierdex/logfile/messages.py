"""Messages as a file gives them: columns of one queue's consecutive messages, objects when asked for.

Depends on fileparts, layout and extras.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tierdex.fileparts.memory import address
from tierdex.logfile import layout
from tierdex.logfile.extras import NO_EXTRA, Extra, decode_extra

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True)
class Message:
    """One message of a queue. `body` is empty where it was forgotten; the offset stays."""

    offset: int
    timestamp: int
    body: bytes
    extra: Extra = NO_EXTRA
    is_forgotten: bool = False
    is_held: bool = False


class Extent(NamedTuple):
    """The messages of one queue in one file: offsets [first_offset, next_offset)."""

    first_offset: int
    next_offset: int


class MessageBatch:
    """Consecutive messages of one queue: message i has the offset `first_offset + i`.

    Columns: `times` i8[n], `flags` u1[n], body i = `bodies[body_offsets[i] : body_offsets[i + 1]]`
    (u1, i8[n + 1]), extras likewise, empty where there is none. Owns its memory. Immutable.
    """

    __slots__ = (
        "bodies", "body_offsets", "extra_offsets", "extras", "first_offset", "flags", "times",
    )  # fmt: skip

    def __init__(self, first_offset: int, count: int, body_bytes: int, extra_bytes: int) -> None:
        """Make room for `count` messages, which a kernel fills."""
        self.first_offset = first_offset
        self.times = np.empty(count, np.int64)
        self.flags = np.empty(count, np.uint8)
        self.body_offsets = np.zeros(count + 1, np.int64)
        self.bodies = np.empty(body_bytes, np.uint8)
        self.extra_offsets = np.zeros(count + 1, np.int64)
        self.extras = np.empty(extra_bytes, np.uint8)

    def __len__(self) -> int:
        return len(self.times)

    def __iter__(self) -> Iterator[Message]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, i: int) -> Message:
        if not 0 <= i < len(self):
            raise IndexError(i)
        flags = int(self.flags[i])
        begin, end = self.extra_offsets[i : i + 2].tolist()
        return Message(
            self.first_offset + i,
            int(self.times[i]),
            self.body(i),
            decode_extra(self.extras[begin:end].tobytes()) if end > begin else NO_EXTRA,
            is_forgotten=bool(flags & layout.MESSAGE_FORGOTTEN),
            is_held=bool(flags & layout.MESSAGE_HELD),
        )

    @property
    def next_offset(self) -> int:
        return self.first_offset + len(self)

    def addresses(self) -> tuple[int, ...]:
        """Return where the columns lie, in the order in which kernels take them."""
        columns = (
            self.times, self.flags, self.body_offsets, self.bodies, self.extra_offsets, self.extras,
        )  # fmt: skip
        return tuple(address(column) for column in columns)

    def body(self, i: int) -> bytes:
        begin, end = self.body_offsets[i : i + 2].tolist()
        return self.bodies[begin:end].tobytes()

    @classmethod
    def join(cls, batches: Sequence[MessageBatch], first_offset: int) -> MessageBatch:
        """Return batches that follow each other as one; an empty one at `first_offset` without any."""
        if len(batches) == 1:
            return batches[0]
        joined = cls(first_offset, 0, 0, 0)
        if not batches:
            return joined
        for name in ("times", "flags", "bodies", "extras"):
            setattr(joined, name, np.concatenate([getattr(batch, name) for batch in batches]))
        for name in ("body_offsets", "extra_offsets"):
            lengths = np.concatenate([np.diff(getattr(batch, name)) for batch in batches])
            setattr(joined, name, np.concatenate([[0], np.cumsum(lengths)]))
        return joined
