"""Which files a query must ask, newest first, and why the others need not be.

Pure: a snapshot and a request in, a plan out. A file is asked when its **[min, max] entry time
overlaps** the query's range (not when it began inside it: late messages and backfills are normal)
and its topics, where the manifest lists them, include the one asked for. Filters are not looked at
here, since a published file's filter may have to be fetched.

Depends on lifecycle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tierdex.lifecycle.paths import parse_file_id
from tierdex.lifecycle.topic_set import topic_hash

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.index_service.request import QueryRequest
    from tierdex.lifecycle.file_handle import FileHandle
    from tierdex.lifecycle.file_table import FileSnapshot


class Plan(NamedTuple):
    """`candidates` newest first; the pruned ones with the reason, for explain."""

    candidates: list[FileHandle]
    pruned_by_time: list[FileHandle]
    pruned_by_topic: list[FileHandle]


def plan_query(snapshot: FileSnapshot, request: QueryRequest) -> Plan:
    """Split the snapshot's files into those to ask and those that cannot hold an answer."""
    overlapping = snapshot.overlap(request.begin, request.end)
    asked = set(map(id, overlapping))
    outside = [handle for handle in snapshot.files if id(handle) not in asked]
    if request.topic is None:
        return Plan(overlapping, outside, [])
    candidates: list[FileHandle] = []
    other_topics: list[FileHandle] = []
    asked_topic = topic_hash(request.topic)
    for handle in overlapping:
        listed = handle.topics
        chosen = candidates if listed is None or asked_topic in listed else other_topics
        chosen.append(handle)
    return Plan(candidates, outside, other_topics)


def find_covering(files: Sequence[FileHandle], file_id: str) -> FileHandle | None:
    """Return the file that holds the entries of `file_id`: itself, or what it was merged into."""
    number, node = parse_file_id(file_id)
    for handle in files:
        if handle.key == (number, node):
            return handle
    for handle in files:
        parts = () if handle.row is None else handle.row.parts
        if any((part.number, part.node) == (number, node) for part in parts):
            return handle
    return None
