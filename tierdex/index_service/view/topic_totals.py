"""The number of items and the times of each topic, from the statistics of a view's files.

A compacted file lists its topics' items and times in its sidecar; a file of one topic is that topic's.
Of any other file only its own count and times are known::

    items a topic has:   item_count  <=  ...  <=  item_count + uncounted
    its times:           within [min_time, max_time]

A published file keeps what it listed once; a call sends requests to few files, the newest first.

Depends on file_info, readers, indexfile and topic_names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tierdex.index_service.file_info import TopicInfo
from tierdex.index_service.readers.published_file import PublishedFile
from tierdex.indexfile.compacted.file import CompactedFile
from tierdex.indexfile.compacted.sidecar import TopicRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.index_service.view.topic_names import TopicNames
    from tierdex.lifecycle.table.file_handle import FileHandle

READS_AT_ONCE: Final = 32  # files, two small requests each


def topic_totals(handles: Sequence[FileHandle], names: TopicNames) -> list[TopicInfo]:
    """Return the topics of these files (newest first), sorted. Raises what the store raises."""
    found = {name: TopicInfo(name) for name in names.of(handles)}
    reads = READS_AT_ONCE
    for handle in handles:
        if not handle.item_count:
            continue
        held = list((handle.reader.topics if handle.row is None else names.known(handle)) or ())
        times = handle.min_time, handle.max_time
        rows = [TopicRow(held[0], handle.item_count, *times)] if len(held) == 1 else _kept(handle)
        if rows is None and isinstance(handle.reader, PublishedFile) and reads:
            rows, reads = handle.reader.listed_topics, reads - 1
        if rows is None:
            whole = {"uncounted": handle.item_count}
            rows = [TopicRow(topic, 0, *times) for topic in held]
        else:
            whole = {}
        for topic, *counted in rows:
            found[topic] = found.get(topic, TopicInfo(topic)).with_file(*counted, **whole)
    return [found[topic] for topic in sorted(found)]


def _kept(handle: FileHandle) -> list[TopicRow] | None:
    """Return what a file lists when that is here, None for a chained file: it lists nothing."""
    reader = handle.reader
    if isinstance(reader, CompactedFile):
        return reader.listed_topics
    return reader.kept_topics() if isinstance(reader, PublishedFile) else None
