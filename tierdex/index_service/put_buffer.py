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

from typing import NamedTuple


class BufferedPut(NamedTuple):
    """One checked entry as the caller gave it; `location` is in schema order."""

    topic: str
    keys: tuple[str, ...]
    message_id: str | None
    timestamp: int
    location: tuple[int | str, ...]


class PutBuffer:
    """A queue of entries that are received and not yet written."""

    __slots__ = ("_entries", "append")

    def __init__(self) -> None:
        self._entries: list[BufferedPut] = []
        self.append = self._entries.append  # bound once: this is the hot path of `put`

    def __len__(self) -> int:
        return len(self._entries)

    def peek(self, limit: int) -> list[BufferedPut]:
        """Return the oldest `limit` entries; they stay until `drop`."""
        return self._entries[:limit]

    def drop(self, count: int) -> None:
        """Forget the oldest `count` entries: they are written."""
        del self._entries[:count]
