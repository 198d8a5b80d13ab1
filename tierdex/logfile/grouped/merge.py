"""Sealed journals and grouped files -> one grouped file: compaction of a journal, merge of neighbours.

Sources come in order of time: where two have messages of a queue, the later one's offsets go on where the
earlier one's end. The work goes in chunks of some thousand messages: a chunk is some queues of all sources,
or a piece of one large queue of one source.

Depends on errors, header, queue_groups, shares and writer.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.logfile.grouped.queue_groups import QueueRows
from tierdex.logfile.grouped.shares import MergePlan, join_shares
from tierdex.logfile.grouped.writer import (
    NOTHING_BESIDE,
    BesideMessages,
    GroupedSummary,
    GroupedWriter,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from typing_extensions import Buffer

    from tierdex.logfile.grouped.sources import GroupedSource, Source
    from tierdex.logfile.header import LogHeader

_CHUNK_MESSAGES = 8_192  # whose rows stay in the cache between the passes over them


class QueueGapError(CorruptFileError):
    """What lay between two sources is gone: each may be sound."""

    def __init__(self, source: int) -> None:
        """`source` is the place of the one that begins behind the gap."""
        super().__init__("files to merge", "a queue's offsets do not go on from file to file")
        self.source = source


def write_grouped(
    sources: Sequence[Source],
    write: Callable[[Buffer], None],
    *,
    header: LogHeader,
    beside: BesideMessages = NOTHING_BESIDE,
    shared_by: Sequence[GroupedSource] = (),
    on_progress: Callable[[int], None] | None = None,
) -> GroupedSummary:
    """Write one grouped file from all sources, without the topics that each leaves out.

    `header` is the new file's; `shared_by` are the sources once more when it is to tell what it has of each
    (`shares`). `on_progress` hears how many messages were taken, and may raise. Raises
    CorruptFileError (a damaged source), QueueGapError, and what `write` raises.
    """
    plan = plan_merge(sources)
    writer = GroupedWriter(
        write, header=header, names=plan.names, queues=plan.queues, beside=beside,
        shares=join_shares(shared_by, plan).encode() if shared_by else None,
    )  # fmt: skip
    done = 0
    for addresses, bases, _memory in _chunks(sources, plan):
        writer.append(addresses, bases)
        done += len(addresses)
        if on_progress is not None:
            on_progress(done)
    return writer.finish()


def plan_merge(sources: Sequence[Source]) -> MergePlan:
    """Return which queues the new file has. Raises QueueGapError for a gap in a queue's offsets."""
    names = sorted(
        {
            source.topics.name(index)
            for source in sources
            for index in range(len(source.topics))
            if source.topics.name(index) not in source.left_out
        }
    )
    places = {name: place for place, name in enumerate(names)}
    mapped = [_mapped(source, places) for source in sources]
    keys = [
        (topics[source.queues.topics] << 32) | source.queues.queue_ids
        for topics, source in zip(mapped, sources, strict=True)
    ]
    all_keys = np.unique(np.concatenate([*keys, np.empty(0, np.int64)]))
    all_keys = all_keys[all_keys >= 0]
    firsts, counts = [], []
    ends = np.full(len(all_keys), -1, np.int64)  # next offset so far, -1 before the first message
    first_offsets = np.zeros(len(all_keys), np.int64)
    for number, (source, own) in enumerate(zip(sources, keys, strict=True)):
        kept = np.flatnonzero(own >= 0)
        at = np.searchsorted(all_keys, own[kept])
        begins = source.queues.first_offsets[kept]
        if ((ends[at] >= 0) & (ends[at] != begins)).any():
            raise QueueGapError(number)
        first_offsets[at] = np.where(ends[at] < 0, begins, first_offsets[at])
        ends[at] = begins + source.queues.counts[kept]
        starts = np.cumsum(source.queues.counts) - source.queues.counts
        firsts.append(_scattered(len(all_keys), at, starts[kept]))
        counts.append(_scattered(len(all_keys), at, source.queues.counts[kept]))
    queues = QueueRows(all_keys >> 32, all_keys & 0xFFFFFFFF, first_offsets, ends - first_offsets)
    joined = np.frombuffer(b"".join(names), np.uint8)
    name_ends = np.cumsum([len(name) for name in names], dtype=np.int64)
    return MergePlan((name_ends, joined), queues, firsts, counts)


def _mapped(source: Source, places: Mapping[bytes, int]) -> np.ndarray:
    """Return each of a source's topics in the new file, -1 where it is left out."""
    names = (source.topics.name(index) for index in range(len(source.topics)))
    return np.array([-1 if name in source.left_out else places[name] for name in names], np.int64)


def _scattered(length: int, places: np.ndarray, values: np.ndarray) -> np.ndarray:
    out = np.zeros(length, np.int64)
    out[places] = values
    return out


def _chunks(
    sources: Sequence[Source], plan: MergePlan
) -> Iterator[tuple[np.ndarray, np.ndarray, list[object]]]:
    """Yield (addresses, bases, memory) of all messages in the new file's order."""
    ends = np.cumsum(plan.queues.counts)
    queue = 0
    while queue < len(plan.queues):
        done = int(ends[queue - 1]) if queue else 0
        last = int(np.searchsorted(ends, done + _CHUNK_MESSAGES, side="right"))
        if last == queue:  # one that is larger than a chunk
            yield from _large_queue(sources, plan, queue)
            last = queue + 1
        else:
            yield _some_queues(sources, plan, queue, last)
        queue = last


def _large_queue(
    sources: Sequence[Source], plan: MergePlan, queue: int
) -> Iterator[tuple[np.ndarray, np.ndarray, list[object]]]:
    for source, firsts, counts in zip(sources, plan.firsts, plan.counts, strict=True):
        first, count = int(firsts[queue]), int(counts[queue])
        for begin in range(0, count, _CHUNK_MESSAGES):
            rows = source.rows(first + begin, min(_CHUNK_MESSAGES, count - begin))
            yield rows.addresses, rows.bases, [rows.memory]


def _some_queues(
    sources: Sequence[Source], plan: MergePlan, first: int, last: int
) -> tuple[np.ndarray, np.ndarray, list[object]]:
    """Return the messages of the queues `first` .. `last` of all sources, queue by queue."""
    addresses, bases, queues, memory = [], [], [], []
    for source, firsts, counts in zip(sources, plan.firsts, plan.counts, strict=True):
        held = counts[first:last]
        # What is left out lies between the queues that are kept: a run of those is one range.
        for run in _runs(firsts[first:last], held):
            rows = source.rows(*run)
            addresses.append(rows.addresses)
            bases.append(rows.bases)
            memory.append(rows.memory)
        queues.append(np.repeat(np.arange(last - first), held))
    order = np.argsort(
        np.concatenate(queues), kind="stable"
    )  # of one queue: the earlier source first
    return np.concatenate(addresses)[order], np.concatenate(bases)[order], memory


def _runs(firsts: np.ndarray, counts: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield (first message, messages) of queues that follow each other in a source."""
    held = np.flatnonzero(counts)
    if not len(held):
        return
    begins, ends = firsts[held], firsts[held] + counts[held]
    breaks = np.flatnonzero(begins[1:] != ends[:-1]) + 1
    edges = [0, *breaks.tolist(), len(held)]
    for a, b in pairwise(edges):
        yield int(begins[a]), int(ends[b - 1] - begins[a])
