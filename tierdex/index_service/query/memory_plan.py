"""How lookups of one topic, or of message IDs, are answered in one version of the file table.

Depends on memory_search and indexfile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tierdex.indexfile.chained.message_finder import MessageFinder
from tierdex.indexfile.hashing import seeded_hash, signed_bits

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.index_service.query.memory_search import MemoryFile, MemoryFiles

_FILES_FOUND_IN: Final = 32  # by one finder: fewer than memory is asked for at all
OTHERWISE: Final = (-1, 0, 0, 0, 0, 0, 0)


class MemoryPlan:
    """The newest files, while they are chained and know the topic, by one finder; then the others.

    `topic` is None for message IDs. Never changed: what one thread asks is of one version.
    """

    __slots__ = (
        "_max_key_bytes",
        "_newcomer",
        "_numbers",
        "ask",
        "asks_others",
        "files",
        "finder",
        "others",
        "seed",
        "sources",
        "topic",
    )

    def __init__(
        self, topic: str | None, seed: int, files: MemoryFiles, max_key_bytes: int
    ) -> None:
        self.topic = topic
        self.seed = seed
        self.files = files
        self._max_key_bytes = max_key_bytes
        self._newcomer: MemoryFile | None = None  # to the topic: a file that may learn it
        found: list[MemoryFile] = []
        for source in files.sources[:_FILES_FOUND_IN]:
            if not source.may_learn or not source.knows(topic):
                self._newcomer = source if source.may_learn else None
                break
            found.append(source)
        self.sources = tuple(found)
        self._numbers = {source.place[0]: number for number, source in enumerate(found)}
        self.finder: MessageFinder | None = None
        self.ask: Callable[[Any], tuple[int, int, int, int, int, int, int]] = _ask_otherwise
        if found:
            readers = [source.file for source in found]
            self.finder = MessageFinder(readers, topic, signed_bits(seed), max_key_bytes)
            self.ask = self.finder.ask
        self.others = files.sources[len(found) :]
        # Their search checks the name; one check is needed.
        self.asks_others = bool(self.others) or not found

    def number_of(self, file_id: str) -> int | None:
        """Return the number of a file among those of the finder, None when it is not there."""
        return self._numbers.get(file_id)

    def is_behind(self) -> bool:
        """Return whether more files could be asked by the finder than when this was made."""
        return self._newcomer is not None and self._newcomer.knows(self.topic)

    def known_hash(self, name: str) -> int:
        """Return the hash of a name that the finder took."""
        return seeded_hash(name, self.seed)

    def hash_of(self, name: Any) -> int | None:
        """Return the hash of a name, None when it is not a plain one."""
        if type(name) is not str:
            return None
        try:
            size = len(name) if name.isascii() else len(name.encode())
        except UnicodeEncodeError:
            return None
        return seeded_hash(name, self.seed) if 0 < size <= self._max_key_bytes else None


def _ask_otherwise(_name: object) -> tuple[int, int, int, int, int, int, int]:
    return OTHERWISE
