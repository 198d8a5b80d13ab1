"""Which of the log's grouped files are worth merging. Pure.

::

    small     less than half a journal, or queues whose mean extent is below a page
    run       small neighbours of one generation and one age, as many as `merge_max_bytes` holds
    worth it  enough of them, and none larger than all others together: a message is rewritten a logarithmic
              number of times
    alone     a file half of which retention hides: its storage is given back without waiting for the longest

Depends on logfile and settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tierdex.logfile.layout import PAGE_BYTES_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tierdex.settings import Settings

_MOST_FILES = 64
_MOST_QUEUES = 4_000_000  # rows of all files together, which a merge has in memory: 48 bytes each
_FILES_OF_MANY_QUEUES = 4  # are enough where their queues are half as many
_SPAN_SHARE = 10  # files that are merged were sealed within this part of their retention


class MergeCandidate(NamedTuple):
    """One grouped file as the plan sees it; times int64 ms."""

    bytes: int
    payload_bytes: int  # before they were compressed
    queue_count: int
    generation: int
    begin_ms: int
    sealed_at_ms: int
    retention_ms: int | None  # the shortest of the topics that are not hidden; None: for ever
    body_bytes: int
    hidden_bytes: int  # of the bodies, of topics that retention hides
    is_behind_gap: bool = (
        False  # what lay before it is gone: nothing older goes into one file with it
    )

    def is_small(self, settings: Settings) -> bool:
        has_short_extents = self.payload_bytes < self.queue_count * PAGE_BYTES_DEFAULT
        return self.payload_bytes < settings.journal_bytes // 2 or has_short_extents

    @property
    def is_half_hidden(self) -> bool:
        return self.hidden_bytes > 0 and 2 * self.hidden_bytes >= self.body_bytes


def plan_merge(files: Sequence[MergeCandidate | None], settings: Settings) -> range:
    """Return the places of the oldest run worth merging, empty when there is none.

    `files` are neighbours, oldest first; None stands for one that cannot be merged now, and ends a run.
    """
    begin = 0
    for end in range(len(files) + 1):
        file = files[end] if end < len(files) else None
        if file is not None and _fits(files[begin:end], file, settings):
            continue
        if found := _worth_it(files, range(begin, end), settings):
            return found
        begin = end if file is not None and file.is_small(settings) else end + 1
    for place, file in enumerate(files):
        if file is not None and file.is_half_hidden:
            return range(place, place + 1)
    return range(0)


def _fits(run: Sequence[MergeCandidate | None], file: MergeCandidate, settings: Settings) -> bool:
    together = [*_sound(run), file]
    return (
        file.is_small(settings)
        and not (run and file.is_behind_gap)
        and len(together) <= _MOST_FILES
        and len({each.generation for each in together}) == 1
        and sum(each.bytes for each in together) <= settings.merge_max_bytes
        and sum(each.queue_count for each in together) <= _MOST_QUEUES
        and _is_of_an_age(together)
    )


def _sound(run: Iterable[MergeCandidate | None]) -> list[MergeCandidate]:
    return [each for each in run if each is not None]


def _is_of_an_age(files: Sequence[MergeCandidate]) -> bool:
    """Return whether a merge would make no message much younger than it is."""
    limits = [each.retention_ms for each in files if each.retention_ms is not None]
    if not limits:
        return True
    span = max(each.sealed_at_ms for each in files) - min(each.begin_ms for each in files)
    return span <= min(limits) // _SPAN_SHARE


def _worth_it(files: Sequence[MergeCandidate | None], run: range, settings: Settings) -> range:
    """Return the run, or what of it is worth it on either side of its largest file; else an empty one."""
    together = _sound(files[run.start : run.stop])
    has_many = 2 * sum(each.queue_count for each in together) >= _MOST_QUEUES
    if len(together) < (_FILES_OF_MANY_QUEUES if has_many else settings.merge_min_files):
        return range(0)
    sizes = [each.payload_bytes for each in together]
    if 2 * max(sizes) <= sum(sizes):
        return run
    largest = run.start + sizes.index(max(sizes))
    before = _worth_it(files, range(run.start, largest), settings)
    return before or _worth_it(files, range(largest + 1, run.stop), settings)
