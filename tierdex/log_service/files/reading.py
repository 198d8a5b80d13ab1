"""One read of a queue as its files see it: shared memory, the reader, the files that follow.

Depends on page_arena, read_ahead and read_policy.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from tierdex.log_service.read_policy import ReadExplain, ReadPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.log_service.files.page_arena import PageArena
    from tierdex.log_service.files.read_ahead import ReadAhead, Reader, Window


class Memory(NamedTuple):
    """What all reads of a log keep in memory."""

    ahead: ReadAhead
    arena: PageArena


class Reading:
    """What the files of one read share. For one thread."""

    def __init__(
        self, memory: Memory, reader: Reader, policy: ReadPolicy = ReadPolicy.NOT_IN_DISK
    ) -> None:
        self._ahead = memory.ahead
        self.arena = memory.arena
        self._reader = reader
        self.policy = policy
        self.explain = ReadExplain()
        self.following: Sequence[
            object
        ] = ()  # files that hold what comes after the file being read

    @cached_property
    def window(self) -> Window:
        """The reader's window."""
        return self._ahead.take(self._reader)

    def bytes_ahead(self, *, is_late: bool) -> int:
        """Return how many bytes from where it reads should be here; more of one that has to wait for them."""
        share = self._ahead.share()
        return self.window.next_bytes(share) if is_late else min(self.window.bytes, share)

    def end(self, next_offset: int) -> None:
        """Note where this reader reads on in published files, if it read of them."""
        if "window" in vars(self):
            self._ahead.keep(self._reader._replace(offset=next_offset), self.window)
