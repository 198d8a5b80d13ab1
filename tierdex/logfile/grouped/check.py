"""Every rule of the grouped form, in words: what `check` of a grouped file finds broken.

Reads the whole file once, page by page, and compares it with directory, queues, topics, filter and
statistics. Depends on fileparts and layout; sees the file through its own methods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.check import part_faults
from tierdex.fileparts.layout import HEADER_BYTES

if TYPE_CHECKING:
    from tierdex.logfile.grouped.file import GroupedFile
    from tierdex.logfile.grouped.pages import OpenPage
    from tierdex.logfile.grouped.queue_groups import QueueRows

_FAULTS_MAX = 100  # a file that is broken everywhere needs no longer list


def find_damage(file: GroupedFile) -> list[str]:
    """Return every broken rule; empty means the file is sound. Raises what reading pages raises."""
    faults = _part_faults(file)
    faults += [f"checksum of block {block} differs" for block in file.blocks.damaged()]
    faults += [
        f"checksum of filter partition {partition} differs"
        for partition in file.filter.damaged_partitions()
    ]
    if not file.topics.is_sorted():
        faults.append("the topics are not sorted by name")
    if not faults:
        faults = _queue_faults(file, file.queues()) or _page_faults(file, file.queues())
    return faults[:_FAULTS_MAX]


def _part_faults(file: GroupedFile) -> list[str]:
    """Check every part, and that zeros follow the last one up to the part table."""
    tail, position, footer = file.sidecar_bytes(), file.sidecar_position, file.footer
    faults = part_faults(tail, position, footer, file.uuid)
    last = max(footer.parts.values(), key=lambda entry: entry.position)
    if tail[last.position + last.length - position : footer.table_position - position].any():
        faults.append("the last part is followed by other bytes than zeros")
    return faults


def _queue_faults(file: GroupedFile, queues: QueueRows) -> list[str]:
    faults = []
    if not (np.diff(queues.keys) > 0).all():
        faults.append("the queues are not sorted")
    if (queues.counts <= 0).any() or (queues.first_offsets < 0).any():
        faults.append("a queue has no messages, or offsets below zero")
    if int(queues.counts.sum()) != file.message_count:
        faults.append(
            f"the queues count {int(queues.counts.sum())} messages, not {file.message_count}"
        )
    for index, (topic, queue_id) in enumerate(
        zip(queues.topics.tolist(), queues.queue_ids.tolist(), strict=True)
    ):
        if not file.may_contain(file.topics.name(topic), queue_id):
            faults.append(f"the filter excludes queue {index}")
            break
    return faults


def _page_faults(file: GroupedFile, queues: QueueRows) -> list[str]:
    """Go through all pages: each begins where the one before ended, and its queues are as they say."""
    faults: list[str] = []
    directory = file.directory()
    if int(directory["position"][0]) != HEADER_BYTES:
        faults.append("the pages do not begin behind the header")
    if int(directory["position"][-1]) != file.sidecar_position:
        faults.append("the pages do not end where the parts begin")
    topics = np.zeros((len(file.topics), 4), np.int64)
    topics[:, 2], topics[:, 3] = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    queue, ordinal = 0, 0
    for number in range(file.page_count):
        try:
            page = file.page(number)
        except CorruptFileError as error:
            return [*faults, error.reason]
        row = directory[number]
        _, least, greatest = page.totals(0, page.message_count)
        if (int(row["first_queue"]), int(row["first_ordinal"])) != (queue, ordinal):
            return [*faults, f"page {number} does not begin where the one before ended"]
        if (int(row["min_time"]), int(row["max_time"])) != (least, greatest):
            faults.append(f"page {number} has other times than the directory says")
        first, done = queue, 0
        for above, count in page.runs():
            if first + above != queue or ordinal + count > int(queues.counts[queue]):
                return [*faults, f"page {number} has other queues than the file says"]
            topic = int(queues.topics[queue])
            _count(topics[topic], page, done, count)
            done, ordinal = done + count, ordinal + count
            if ordinal == int(queues.counts[queue]):
                queue, ordinal = queue + 1, 0
    if queue != len(queues):
        faults.append("the pages end before the last queue")
    return faults + _total_faults(file, topics)


def _count(row: np.ndarray, page: OpenPage, first: int, count: int) -> None:
    """Count a run's messages for its topic."""
    bodies, least, greatest = page.totals(first, count)
    row[0] += count
    row[1] += bodies
    row[2], row[3] = min(int(row[2]), least), max(int(row[3]), greatest)


def _total_faults(file: GroupedFile, topics: np.ndarray) -> list[str]:
    names = ("message_count", "body_bytes", "min_time", "max_time")
    said = file.topics.rows
    if any((topics[:, i] != said[name].astype(np.int64)).any() for i, name in enumerate(names)):
        return ["messages, bytes or times of a topic differ from what the topics say"]
    times = (int(topics[:, 2].min()), int(topics[:, 3].max())) if len(topics) else (0, -1)
    if (int(topics[:, 1].sum()), *times) != (file.body_bytes, file.min_time, file.max_time):
        return ["bytes or times of the file differ from the statistics"]
    return []
