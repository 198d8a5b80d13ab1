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

_WORD = 8  # bytes of a time or an offset


@dataclass(frozen=True, slots=True)
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


class RowsOfPlaces(NamedTuple):
    """Rows of places that are read together: addresses (i8), one place after the other.

    Their times are relative to `base_time`; `memory` is where they lie, None where that is the file itself.
    """

    addresses: np.ndarray
    base_time: int
    memory: list[np.ndarray] | None


class MessageBatch:
    """Consecutive messages of one queue: message i has the offset `first_offset + i`.

    Columns: `times` i8[n], `flags` u1[n], body i = `bodies[body_offsets[i] : body_offsets[i + 1]]`
    (u1, i8[n + 1]), extras likewise, empty where there is none. All lie in one run of bytes that the batch
    owns, and are made arrays when they are asked for: a read of ten messages pays for one allocation.
    """

    __slots__ = ("_body_bytes", "_count", "_extra_bytes", "_memory", "first_offset")

    def __init__(
        self, first_offset: int, count: int, body_bytes: int, extra_bytes: int,
        memory: np.ndarray | bytearray | memoryview | None = None,
    ) -> None:  # fmt: skip
        """Make room for `count` messages, which a kernel fills, or take over the memory that one filled."""
        self.first_offset = first_offset
        self._count = count
        self._body_bytes = body_bytes
        self._extra_bytes = extra_bytes
        self._memory = self._make_room() if memory is None else memory

    def _make_room(self) -> np.ndarray:
        make = np.empty if self._count else np.zeros
        return make(self._begins[-1] + self._extra_bytes, np.uint8)

    @property
    def _begins(self) -> tuple[int, ...]:
        """Where times, body offsets, extra offsets, flags, bodies and extras begin."""
        count = self._count
        body_offsets = _WORD * count
        extra_offsets = body_offsets + _WORD * (count + 1)
        flags = extra_offsets + _WORD * (count + 1)
        bodies = flags + count
        return 0, body_offsets, extra_offsets, flags, bodies, bodies + self._body_bytes

    def _column(self, which: int, dtype: type, count: int) -> np.ndarray:
        return np.frombuffer(self._memory, dtype, count, self._begins[which])

    @property
    def times(self) -> np.ndarray:
        return self._column(0, np.int64, self._count)

    @property
    def body_offsets(self) -> np.ndarray:
        return self._column(1, np.int64, self._count + 1)

    @property
    def extra_offsets(self) -> np.ndarray:
        return self._column(2, np.int64, self._count + 1)

    @property
    def flags(self) -> np.ndarray:
        return self._column(3, np.uint8, self._count)

    @property
    def bodies(self) -> np.ndarray:
        return self._column(4, np.uint8, self._body_bytes)

    @property
    def extras(self) -> np.ndarray:
        return self._column(5, np.uint8, self._extra_bytes)

    @property
    def content_bytes(self) -> int:
        """Bytes of all bodies and extras: what a read's budget counts."""
        return self._body_bytes + self._extra_bytes

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Message]:
        if not self._count:
            return
        data = np.frombuffer(self._memory, np.uint8).data
        _, body_at, extra_at, flag_at, bodies_at, extras_at = self._begins
        times = data[:body_at].cast("q")
        body_ends, extra_ends = data[body_at:extra_at].cast("q"), data[extra_at:flag_at].cast("q")
        flags = data[flag_at:bodies_at]
        bodies = data[bodies_at:extras_at].tobytes()
        extras = data[extras_at : extras_at + self._extra_bytes].tobytes()
        for i in range(self._count):
            extra = extras[extra_ends[i] : extra_ends[i + 1]]
            yield Message(
                self.first_offset + i,
                times[i],
                bodies[body_ends[i] : body_ends[i + 1]],
                decode_extra(extra) if extra else NO_EXTRA,
                is_forgotten=bool(flags[i] & layout.MESSAGE_FORGOTTEN),
                is_held=bool(flags[i] & layout.MESSAGE_HELD),
            )

    @property
    def next_offset(self) -> int:
        return self.first_offset + self._count

    def addresses(self) -> tuple[int, ...]:
        """Return where the columns lie, in the order of `kernels.rows.column_places`."""
        place = address(np.frombuffer(self._memory, np.uint8))
        return tuple(place + begin for begin in self._begins)

    def body(self, i: int) -> bytes:
        begin, end = self.body_offsets[i : i + 2].tolist()
        return self.bodies[begin:end].tobytes()

    def without(self, offsets: np.ndarray) -> MessageBatch:
        """Return the batch with empty messages, flagged as forgotten, at these offsets of it (i8)."""
        if not len(offsets):
            return self
        is_kept = np.ones(self._count, np.bool_)
        is_kept[offsets - self.first_offset] = False
        lengths = [np.diff(ends) for ends in (self.body_offsets, self.extra_offsets)]
        left = [np.where(is_kept, each, 0) for each in lengths]
        blank = MessageBatch(self.first_offset, self._count, int(left[0].sum()), int(left[1].sum()))
        blank.times[:], blank.flags[:] = self.times, self.flags
        blank.flags[~is_kept] |= layout.MESSAGE_FORGOTTEN
        blank.bodies[:] = self.bodies[np.repeat(is_kept, lengths[0])]
        blank.extras[:] = self.extras[np.repeat(is_kept, lengths[1])]
        for ends, each in zip((blank.body_offsets, blank.extra_offsets), left, strict=True):
            ends[0] = 0
            np.cumsum(each, out=ends[1:])
        return blank

    @classmethod
    def join(cls, batches: Sequence[MessageBatch], first_offset: int) -> MessageBatch:
        """Return batches that follow each other as one; an empty one at `first_offset` without any."""
        if len(batches) == 1:
            return batches[0]
        bodies = sum(len(batch.bodies) for batch in batches)
        extras = sum(len(batch.extras) for batch in batches)
        joined = cls(first_offset, sum(map(len, batches)), bodies, extras)
        if not len(joined):
            return joined
        for name in ("times", "flags", "bodies", "extras"):
            np.concatenate([getattr(batch, name) for batch in batches], out=getattr(joined, name))
        for name in ("body_offsets", "extra_offsets"):
            lengths = np.concatenate([np.diff(getattr(batch, name)) for batch in batches])
            offsets = getattr(joined, name)
            offsets[0] = 0
            np.cumsum(lengths, out=offsets[1:])
        return joined
