"""The names of the topics of a view's files. Names lie in the files; manifest rows have their hashes.

A file's dictionary is read only when it may hold an unknown name: a node of a few topics costs a
few reads, however many files it has. A name is kept while a file holds it.

Depends on answer, lifecycle.topic_set and errors.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tierdex.errors import CorruptFileError, NotFoundError, reason_of
from tierdex.index_service.answer import Missing
from tierdex.lifecycle.topic_set import topic_hash, topic_set

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tierdex.lifecycle.table.file_handle import FileHandle


class TopicNames:
    """Remembers names by hash. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: dict[int, str] = {}
        self._unlisted: dict[bytes, frozenset[int]] = {}  # files whose row lists no topics

    def of(self, handles: Iterable[FileHandle], missing: list[Missing] | None = None) -> list[str]:
        """Return the topics of these files, sorted.

        The dictionary of a published file may take a request. Raises what the store raises; where `missing`
        is given, a file that is gone or damaged is named there, and its unknown topics are left out.
        """
        with self._lock:
            found: set[int] = set()
            unlisted: dict[bytes, frozenset[int]] = {}
            for handle in handles:
                try:
                    held = self._held(handle)
                except (CorruptFileError, NotFoundError) as error:
                    if missing is None:
                        raise
                    missing.append(Missing(handle.file_id, reason_of(error)))
                    continue
                found |= held
                if handle.topics is None and handle.row is not None:
                    unlisted[handle.uuid] = held
            self._unlisted = unlisted
            if not missing:  # else a file may hold some that are kept for it
                self._names = {number: self._names[number] for number in found}
            return sorted(self._names[number] for number in found)

    def known(self, handle: FileHandle) -> list[str] | None:
        """Return a file's topics, sorted, when they are known without a request, else None."""
        with self._lock:
            held = handle.topics if handle.topics is not None else self._unlisted.get(handle.uuid)
            if held is None:
                return None
            if not held <= self._names.keys():
                reader = handle.reader
                if handle.row is None:
                    return self._learn(reader.topics)
                rows = reader.kept_topics()
                return None if rows is None else self._learn(row.topic for row in rows)
            return sorted(self._names[number] for number in held)

    def _held(self, handle: FileHandle) -> frozenset[int]:
        held = handle.topics if handle.topics is not None else self._unlisted.get(handle.uuid)
        if held is not None and held <= self._names.keys():
            return held
        return topic_set(self._learn(handle.reader.topics))

    def _learn(self, names: Iterable[str]) -> list[str]:
        learnt = sorted(names)
        self._names.update((topic_hash(name), name) for name in learnt)
        return learnt
