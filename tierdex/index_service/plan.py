"""Which files a query must ask, newest first, and why the others need not be.

Pure: a snapshot and a request in, a plan out. A file is asked when its **[min, max] entry time
overlaps** the query's range (not when it began inside it: late messages and backfills are normal)
and its topics, where the manifest lists them, include the one asked for. Filters are not looked at
here, since a published file's filter may have to be fetched.

Depends on lifecycle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tierdex.index_service.request import QueryRequest
    from tierdex.lifecycle.file_table import FileHandle, FileSnapshot


class Plan(NamedTuple):
    """`candidates` newest first; the pruned ones with the reason, for explain."""

    candidates: list[FileHandle]
    pruned_by_time: list[FileHandle]
    pruned_by_topic: list[FileHandle]


def plan_query(snapshot: FileSnapshot, request: QueryRequest) -> Plan:
    """Split the snapshot's files into those to ask and those that cannot hold an answer."""
    overlapping, outside = snapshot.split_by_time(request.begin, request.end)
    if request.topic is None:
        return Plan(overlapping, outside, [])
    candidates, other_topics = [], []
    for handle in overlapping:
        listed = handle.topics
        chosen = candidates if listed is None or request.topic in listed else other_topics
        chosen.append(handle)
    return Plan(candidates, outside, other_topics)
