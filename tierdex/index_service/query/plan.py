"""Which files lookups must search, newest first, and why the others can be skipped.

Pure, and lazy: the list of files is walked as far as the query goes, past whole runs of files whose times
lie elsewhere. A file is asked when its **[min, max] entry time
overlaps** the query's range (not when it began inside it: late messages and backfills are normal)
and its topics, where the manifest lists them, include the one asked for. Filters are not looked at
here, since a published file's filter may have to be fetched.

Depends on lookups and lifecycle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tierdex.index_service.requests.lookups import NO_TOPIC
from tierdex.lifecycle.paths import parse_file_id
from tierdex.lifecycle.topic_set import topic_hash

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from tierdex.index_service.requests.lookups import Lookups
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.lifecycle.table.file_table import FileList


class Rest(NamedTuple):
    """The files that a query did not ask, newest first, by the reason: for explain."""

    skipped: list[FileHandle]
    pruned_by_time: list[FileHandle]
    pruned_by_topic: list[FileHandle]


class Plan:
    """What some lookups of a batch need of the files of one snapshot. One thread."""

    def __init__(self, files: FileList, lookups: Lookups, number: int | None = None) -> None:
        """Plan one lookup; None: all of them, at least one."""
        self._files = files
        if number is not None:
            self._begin, self._end = int(lookups.begin[number]), int(lookups.end[number])
            topics = [int(lookups.topic_index[number])]
        else:
            self._begin, self._end = int(lookups.begin.min()), int(lookups.end.max())
            one = lookups.is_of_one_topic
            topics = [0] if one else np.unique(lookups.topic_index).tolist()
        self._topics = None  # hashes; None: any
        if NO_TOPIC not in topics:
            self._topics = [topic_hash(lookups.topics[index]) for index in topics]

    def candidates(self, newest: tuple[int, str] | None = None) -> Iterator[FileHandle]:
        """Yield the files to ask, newest first, as far as the caller goes; from `newest` on."""
        for handle in self._files.overlap(self._begin, self._end, newest):
            if self._may_hold_topic(handle):
                yield handle

    def rest(self, asked: Container[str]) -> Rest:
        """Return all files but those whose ID was asked: O(files)."""
        rest = Rest([], [], [])
        for handle in self._files:
            if handle.file_id in asked:
                continue
            if not handle.overlaps(self._begin, self._end):
                rest.pruned_by_time.append(handle)
            elif self._may_hold_topic(handle):
                rest.skipped.append(handle)
            else:
                rest.pruned_by_topic.append(handle)
        return rest

    def _may_hold_topic(self, handle: FileHandle) -> bool:
        if self._topics is None or handle.topics is None:
            return True
        return any(topic in handle.topics for topic in self._topics)


def find_covering(files: FileList, file_id: str, key_hash: int) -> FileHandle | None:
    """Return the file that holds the entries of `file_id` with this hash: itself, or what it went into."""
    number, node = parse_file_id(file_id)
    handle = files.get(number, node)
    if handle is not None and handle.may_hold_hash(key_hash):
        return handle
    for handle in files.across(number, node):
        parts = () if handle.row is None or not handle.may_hold_hash(key_hash) else handle.row.parts
        if any((part.number, part.node) == (number, node) for part in parts):
            return handle
    return None
