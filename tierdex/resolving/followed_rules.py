"""What `tierdex follow` recorded in the data folder: the log of each topic, its rule, lost offsets.

Another process may write the file; it is read again when it has changed, looked at once a second.

Depends on errors, filesystem, clock, following and index_service.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from tierdex.errors import CorruptFileError
from tierdex.following.positions import FILE_NAME, PositionFile
from tierdex.index_service.answer import LostOffsets

if TYPE_CHECKING:
    from pathlib import Path

    from tierdex.clock import Clock
    from tierdex.filesystem import FileSystem
    from tierdex.following.positions import FollowedSource, TopicPositions

logger = logging.getLogger(__name__)
_LOOK_S = 1.0
_NOTHING: Final[dict[str, Any]] = {}


class FollowedRules:
    """The followed topics of a data folder; none of a service without one. Safe between threads."""

    def __init__(self, filesystem: FileSystem, folder: Path | None, clock: Clock) -> None:
        self._filesystem = filesystem
        self._folder = folder
        self._clock = clock
        self._looked = float("-inf")
        self._stamp: tuple[int, int] | None = None
        self._topics: dict[str, TopicPositions] = {}

    def source_of(self, topic: str) -> FollowedSource | None:
        """Return where a topic's log is, None when it was not followed, or from an object of one's own."""
        self._look()
        known = self._topics.get(topic)
        return None if known is None else known.followed

    def memory(self, topic: str) -> dict[str, Any]:
        """Return what the source of a topic remembers: the same object until the file changes."""
        self._look()
        known = self._topics.get(topic)
        return _NOTHING if known is None else known.memory

    def lost(self, topic: str | None) -> tuple[LostOffsets, ...]:
        """Return what the log of a topic lost unread, of every topic for None."""
        self._look()
        return tuple(
            LostOffsets(name, partition, gap.begin, gap.end, gap.noticed)
            for name, known in self._topics.items()
            if topic in (None, name)
            for partition, row in known.partitions.items()
            for gap in row.gaps
        )

    def _look(self) -> None:
        now = self._clock.monotonic()
        if self._folder is None or now - self._looked < _LOOK_S:
            return
        self._looked = now
        path = self._folder / FILE_NAME
        if not self._filesystem.exists(path):
            return
        stamp = (self._filesystem.modified_ms(path), self._filesystem.file_size(path))
        if stamp == self._stamp:
            return
        try:
            self._topics = PositionFile(self._filesystem, self._folder).topics()
        except CorruptFileError as error:  # the entries are sound all the same
            logger.error("followed topics cannot be read", extra={"error": str(error)})
        self._stamp = stamp
