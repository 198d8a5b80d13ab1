"""One read of a queue as its files see it: who reads on, and which files come next.

Depends on read_ahead.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.log_service.log_file import LogFile
    from tierdex.log_service.read_ahead import ReadAhead, Reader, Window


class Reading:
    """What the files of one read share. For one thread."""

    def __init__(self, ahead: ReadAhead, reader: Reader) -> None:
        self._ahead = ahead
        self._reader = reader
        self.following: Sequence[LogFile] = ()  # that hold what comes after the file being read

    @cached_property
    def window(self) -> Window:
        """The reader's window."""
        return self._ahead.take(self._reader)

    def bytes_ahead(self) -> int:
        """Return how many bytes a request that is needed now should bring."""
        return self.window.next_bytes(self._ahead.share())

    def end(self, next_offset: int) -> None:
        """Note where this reader reads on in published files, if it read of them."""
        if "window" in vars(self):
            self._ahead.keep(self._reader._replace(offset=next_offset), self.window)
