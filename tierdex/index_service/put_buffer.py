"""Single puts, gathered until one batch is worth writing.

A bare `put` only appends to a list: `received` means that it is in this process's memory. The
gathered entries become one batch when there are many, after a few milliseconds, and before any
query, flush, roll or close that must see them.

Safe without a lock under the GIL: extending a list by a tuple, a slice and a slice's deletion are one C
call each, so an entry put between `peek` and `drop` stays behind what was taken. Only the writer, under
its lock, calls `peek` and `drop`; an entry leaves the buffer only after its batch was written.

Depends on nothing.
"""

from __future__ import annotations

from typing import Any, Final

# One checked entry: topic, its name, timestamp, then the location in the schema's order. The name is
# its one key (a string), or the pair (tuple of keys, message ID or None).
BufferedPut = tuple[Any, ...]
ENTRY_VALUES: Final = 6


class PutBuffer:
    """A queue of entries that are received and not yet written."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        # The values of all entries one after the other: columns are slices of it, and nobody keeps a
        # tuple an entry alive. The same list for ever: `Index.put` appends to it directly.
        self.values: list[Any] = []

    def __len__(self) -> int:
        return len(self.values) // ENTRY_VALUES

    def add(self, entry: BufferedPut) -> None:
        """Put one entry behind the others."""
        self.values += entry

    def peek(self, limit: int) -> list[Any]:
        """Return the values of the oldest `limit` entries; they stay until `drop`."""
        return self.values[: limit * ENTRY_VALUES]

    def drop(self, count: int) -> None:
        """Forget the oldest `count` entries: they are written."""
        del self.values[: count * ENTRY_VALUES]
