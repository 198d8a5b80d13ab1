"""Every rule of the grouped form, in words: what `check` of a grouped file finds broken.

Reads the whole file once, a megabyte of pages at a time, and compares it with directory, queues, topics,
filter and statistics. Depends on errors, fileparts, kernels, pages, queue_groups and sidecar.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.check import part_faults
from tierdex.fileparts.layout import HEADER_BYTES
from tierdex.logfile.grouped.kernels import page_columns as k
from tierdex.logfile.grouped.kernels.page_read import P_COUNT, P_RUNS
from tierdex.logfile.grouped.pages import Scratch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tierdex.logfile.grouped.pages import OpenPage, OpenPages
    from tierdex.logfile.grouped.queue_groups import QueueRows
    from tierdex.logfile.grouped.sidecar import GroupedSidecar, PageSpan

_FAULTS_MAX = 100  # a file that is broken everywhere needs no longer list
_SPAN_BYTES = 1 << 20
_OTHER_QUEUES = "has other queues than the file says"


def find_damage(
    file: GroupedSidecar,
    fetch: Callable[[PageSpan, Scratch], OpenPages],
    open_page: Callable[[int], OpenPage],
) -> list[str]:
    """Return every broken rule; empty means the file is sound. Raises what reading pages raises.

    `fetch` reads and opens the pages of a range; `open_page` opens one by its number, or says what is wrong.
    """
    faults = _part_faults(file)
    faults += [f"checksum of block {block} differs" for block in file.blocks.damaged()]
    faults += [
        f"checksum of filter partition {partition} differs"
        for partition in file.filter.damaged_partitions()
    ]
    if not file.topics.is_sorted():
        faults.append("the topics are not sorted by name")
    if not faults:
        faults = _queue_faults(file, file.queues()) or _page_faults(file, fetch, open_page)
    return faults[:_FAULTS_MAX]


def _part_faults(file: GroupedSidecar) -> list[str]:
    """Check every part, and that zeros follow the last one up to the part table."""
    tail, position, footer = file.sidecar_bytes(), file.sidecar_position, file.footer
    faults = part_faults(tail, position, footer, file.uuid)
    last = max(footer.parts.values(), key=lambda entry: entry.position)
    if tail[last.position + last.length - position : footer.table_position - position].any():
        faults.append("the last part is followed by other bytes than zeros")
    return faults


def _queue_faults(file: GroupedSidecar, queues: QueueRows) -> list[str]:
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


def _page_faults(
    file: GroupedSidecar,
    fetch: Callable[[PageSpan, Scratch], OpenPages],
    open_page: Callable[[int], OpenPage],
) -> list[str]:
    """Check all pages: each begins where the one before ended, and its queues are as they say."""
    faults: list[str] = []
    directory, queues = file.directory(), file.queues()
    if int(directory["position"][0]) != HEADER_BYTES:
        faults.append("the pages do not begin behind the header")
    if int(directory["position"][-1]) != file.sidecar_position:
        faults.append("the pages do not end where the parts begin")
    walk, scratch = _Walk(file, queues), Scratch()
    try:
        for span in _spans(file):
            pages = fetch(span, scratch)
            damaged = (pages.words[:, P_COUNT] == 0).nonzero()[0]
            sound = pages.words[: damaged[0]] if len(damaged) else pages.words
            found, is_end = walk.faults_of(sound, span.first_page)
            faults += found
            if is_end:
                return faults
            if len(damaged):
                number = span.first_page + int(damaged[0])
                open_page(number)  # it says what is wrong
                return [*faults, f"page {number} was damaged when it was first read"]
    except CorruptFileError as error:
        return [*faults, error.reason]
    if walk.message_count != int(queues.counts.sum()):
        faults.append("the pages end before the last queue")
    return faults + _total_faults(file, walk.topics)


def _spans(file: GroupedSidecar) -> Iterator[PageSpan]:
    """Yield ranges of neighbouring pages, about a megabyte each. Raises CorruptFileError."""
    positions = file.directory()["position"].astype(np.int64).tolist()
    first = 0
    while first < file.page_count:
        end = first + 1
        while end < file.page_count and 0 < positions[end + 1] - positions[first] <= _SPAN_BYTES:
            end += 1
        yield file.span(first, end - first)
        first = end


class _Walk:
    """Pages in order, compared with directory and queues; `topics` counts what was met. One thread."""

    def __init__(self, file: GroupedSidecar, queues: QueueRows) -> None:
        """`queues` are sorted, and each has messages."""
        self._directory = file.directory()
        self._queues = queues
        self._starts = np.cumsum(queues.counts) - queues.counts
        self.message_count = 0  # met so far
        self.topics = np.zeros((len(file.topics), 4), np.int64)
        self.topics[:, 2], self.topics[:, 3] = np.iinfo(np.int64).max, np.iinfo(np.int64).min

    def faults_of(self, pages: np.ndarray, first_page: int) -> tuple[list[str], bool]:
        """Return (the faults of open pages, whether what follows them cannot be compared)."""
        if not len(pages):
            return [], False
        runs = np.empty((int(pages[:, P_RUNS].sum()), k.RUN_WORDS), np.int64)
        k.list_runs(pages, runs)
        rows = self._directory[first_page : first_page + len(pages)]
        queue, ordinal = self._places(pages[:, P_COUNT])
        is_odd = (rows["first_queue"] != queue) | (rows["first_ordinal"] != ordinal)
        odd_begin = _first(is_odd)
        run_queue, run_ordinal = self._places(runs[:, k.R_COUNT])
        counts = np.append(self._queues.counts, 0)  # none behind the last queue
        is_odd = queue[runs[:, k.R_PAGE]] + runs[:, k.R_QUEUE] != run_queue
        is_odd |= run_ordinal + runs[:, k.R_COUNT] > counts[run_queue]
        odd_run = _first(is_odd)
        odd_queues = int(runs[odd_run, k.R_PAGE]) if odd_run < len(runs) else len(pages)
        begins = np.searchsorted(runs[:, k.R_PAGE], np.arange(len(pages)))
        is_late = rows["min_time"] != np.minimum.reduceat(runs[:, k.R_LEAST], begins)
        is_late |= rows["max_time"] != np.maximum.reduceat(runs[:, k.R_GREATEST], begins)
        faults = [
            f"page {first_page + page} has other times than the directory says"
            for page in is_late.nonzero()[0].tolist()
            if page < odd_begin and page <= odd_queues
        ]
        if min(odd_begin, odd_queues) < len(pages):
            begins_odd = odd_begin <= odd_queues
            why = "does not begin where the one before ended" if begins_odd else _OTHER_QUEUES
            return [*faults, f"page {first_page + min(odd_begin, odd_queues)} {why}"], True
        self._count(runs, run_queue)
        return faults, False

    def _places(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (queue, ordinal in it) at which so many messages begin, one group behind the other."""
        begins = self.message_count + np.cumsum(counts) - counts
        queue = np.searchsorted(self._starts, begins, side="right") - 1
        is_behind = begins >= int(self._queues.counts.sum())
        queue[is_behind] = len(self._queues)
        return queue, np.where(is_behind, 0, begins - np.append(self._starts, 0)[queue])

    def _count(self, runs: np.ndarray, queues: np.ndarray) -> None:
        """Count messages, bodies and times of the runs for their topics."""
        topic, topics = self._queues.topics[queues], self.topics
        np.add.at(topics[:, 0], topic, runs[:, k.R_COUNT])
        np.add.at(topics[:, 1], topic, runs[:, k.R_BODIES])
        np.minimum.at(topics[:, 2], topic, runs[:, k.R_LEAST])
        np.maximum.at(topics[:, 3], topic, runs[:, k.R_GREATEST])
        self.message_count += int(runs[:, k.R_COUNT].sum())


def _first(flags: np.ndarray) -> int:
    """Return where the first true one is; their count without any."""
    return int(flags.argmax()) if flags.any() else len(flags)


def _total_faults(file: GroupedSidecar, topics: np.ndarray) -> list[str]:
    names = ("message_count", "body_bytes", "min_time", "max_time")
    said = file.topics.rows
    if any((topics[:, i] != said[name].astype(np.int64)).any() for i, name in enumerate(names)):
        return ["messages, bytes or times of a topic differ from what the topics say"]
    times = (int(topics[:, 2].min()), int(topics[:, 3].max())) if len(topics) else (0, -1)
    if (int(topics[:, 1].sum()), *times) != (file.body_bytes, file.min_time, file.max_time):
        return ["bytes or times of the file differ from the statistics"]
    return []
