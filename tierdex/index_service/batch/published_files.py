"""Many lookups in one published file: near pages fetched together, each page once.

Depends on published.py and indexfile.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.indexfile.compacted.pages import join_rows
from tierdex.indexfile.layout import KIND_BIT, TAG_ANY_MESSAGE_ID

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tierdex.index_service.readers.file_reader import FileMeter
    from tierdex.index_service.readers.published_file import PublishedFile
    from tierdex.indexfile.compacted.file import CompactedFile, PageSpan

_LONG_RUN_PAGES = 8  # a lookup over more pages than this is left to the single query
_NEAR_PAGES = 4  # pages between two wanted ones that are cheaper to read than to ask again


def ask_published(
    file: PublishedFile,
    hashes: np.ndarray,
    tags: np.ndarray,
    begin: np.ndarray,
    end: np.ndarray,
    limit: int,
    meter: FileMeter,
    executor: Executor,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (offsets i8[n + 1], rows, deferred i8[...]) for `hashes` u8[n], which are sorted.

    Raises what the store raises, CorruptFileError, BudgetExceededError.
    """
    earliest, latest = int(begin.min()), int(end.max())
    most = meter.budget.work_limit()
    share, rows_left = most.share_of(len(hashes), limit), most.rows

    def pages_in(sidecar: CompactedFile) -> tuple[CompactedFile, np.ndarray]:
        return sidecar, sidecar.plan_pages(hashes, begin=earliest, end=latest)

    compacted, pages = file.with_sidecar(meter, pages_in)
    sizes = pages[:, 1] - pages[:, 0] + 1
    is_deferred = sizes > _LONG_RUN_PAGES
    asked = np.flatnonzero((sizes > 0) & ~is_deferred)
    counts = np.zeros(len(hashes), np.int64)
    found: list[np.ndarray] = []
    groups = _group(pages[asked])
    spans = [compacted.span(first, last - first + 1) for first, last, _, _ in groups]
    buffers = file.read_many([(span.position, span.length) for span in spans], meter, executor)
    for (_, _, low, high), span, data in zip(groups, spans, buffers, strict=True):
        members = asked[low:high]
        rows = _decode(file, compacted, span, data, meter)
        meter.charge_items(len(rows))
        run = _runs(rows, hashes[members])
        if (run.sizes < 0).any():
            raise CorruptFileError(file.row.object_key, "the hashes of a page are not in order")
        if int(run.sizes.sum()) > rows_left:  # a hot key asked over and over is no plain lookup
            is_deferred[members[run.sizes > share.rows]] = True
            members = asked[low:high][run.sizes <= share.rows]
            run = run.taken(run.sizes <= share.rows)
        taken, per_lookup = _match(rows, run, tags[members], begin[members], end[members], limit)
        counts[members] = per_lookup
        rows_left -= len(taken)
        found.append(rows[taken])
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    rows = join_rows(found) if found else np.empty(0, compacted.schema.dtype)
    return offsets, rows, np.flatnonzero(is_deferred)


class _Runs(NamedTuple):
    """Where the rows of each lookup's hash begin, and how many they are (i8 each)."""

    begins: np.ndarray
    sizes: np.ndarray

    def taken(self, which: np.ndarray) -> _Runs:
        return _Runs(self.begins[which], self.sizes[which])


def _runs(rows: np.ndarray, hashes: np.ndarray) -> _Runs:
    """Return the run of each hash in rows that are sorted by it."""
    begins = np.searchsorted(rows["key_hash"], hashes, side="left")
    return _Runs(begins, np.searchsorted(rows["key_hash"], hashes, side="right") - begins)


def _group(pages: np.ndarray) -> list[tuple[int, int, int, int]]:
    """Return (first page, last page, first lookup, end lookup) of each run of near pages.

    `pages` i8[n, 2] holds first and last page a lookup, rising, since the hashes are sorted.
    """
    if not len(pages):
        return []
    reach = np.maximum.accumulate(pages[:, 1])
    starts = np.flatnonzero(pages[1:, 0] > reach[:-1] + _NEAR_PAGES) + 1
    bounds = [0, *starts.tolist(), len(pages)]
    return [(int(pages[low, 0]), int(reach[high - 1]), low, high) for low, high in pairwise(bounds)]


def _decode(
    file: PublishedFile, compacted: CompactedFile, span: PageSpan, data: bytes, meter: FileMeter
) -> np.ndarray:
    """Return the rows of `span`; pages that arrive damaged are fetched once more."""
    try:
        return compacted.decode_span(span, data)
    except CorruptFileError:
        file.discard(span.position, span.length)
        return compacted.decode_span(span, file.read(span.position, span.length, meter))


def _match(
    rows: np.ndarray,
    run: _Runs,
    tags: np.ndarray,
    begin: np.ndarray,
    end: np.ndarray,
    limit: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Return (row numbers taken, i8; how many each lookup took, i8)."""
    sizes = run.sizes
    lookup = np.repeat(np.arange(len(sizes)), sizes)
    ends = np.cumsum(sizes)
    number = np.arange(len(lookup)) - np.repeat(ends - sizes, sizes) + np.repeat(run.begins, sizes)
    tag, time = rows["tag"][number], rows["timestamp"][number]
    wanted = tags[lookup]
    matches = (tag == wanted) | ((wanted == TAG_ANY_MESSAGE_ID) & (tag >= KIND_BIT))
    matches &= (time >= begin[lookup]) & (time <= end[lookup])
    lookup, number = lookup[matches], number[matches]
    counts = np.bincount(lookup, minlength=len(sizes)).astype(np.int64)
    rank = np.arange(len(lookup)) - np.repeat(np.cumsum(counts) - counts, counts)
    return number[rank < limit], np.minimum(counts, limit)
