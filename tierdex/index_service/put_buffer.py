"""Single puts, gathered until one batch is worth writing.

A bare `put` only appends a tuple: `received` means that it is in this process's memory. The
gathered entries become one batch when there are many, after a few milliseconds, and before any
query, flush, roll or close that must see them.

Safe without a lock under the GIL: a list's append, slice and slice deletion are one C call each,
so an entry appended between `peek` and `drop` stays behind what was taken. Only the writer, under
its lock, calls `peek` and `drop`; an entry leaves the buffer only after its batch was written.

Depends on nothing.
"""

from __future__ import annotations

from typing import Any

# One checked entry, flat, since making a tuple is a large part of what a put costs: topic, its one key
# (a string) or its keys (a tuple of strings), message ID or None, timestamp, then the location in the
# schema's order.
BufferedPut = tuple[Any, ...]


class PutBuffer:
    """A queue of entries that are received and not yet written."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: list[BufferedPut] = []  # the same list for ever: `put` appends to it directly

    def __len__(self) -> int:
        return len(self.entries)

    def peek(self, limit: int) -> list[BufferedPut]:
        """Return the oldest `limit` entries; they stay until `drop`."""
        return self.entries[:limit]

    def drop(self, count: int) -> None:
        """Forget the oldest `count` entries: they are written."""
        del self.entries[:count]
