"""Many lookups in one local file, within what the batch may still cost.

Keys that somebody chose to collide make long chains. When all lookups together would cost too much,
each may cost its share: those that need more are left to the single query, which spends what is left,
and the others are answered as if those had not been asked.

Depends on reader and indexfile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierdex.indexfile.chained.reader import ChainedReader
from tierdex.indexfile.chained.view import Matches
from tierdex.indexfile.work_limit import BudgetExceededError, WorkLimit

if TYPE_CHECKING:
    import numpy as np

    from tierdex.index_service.readers.file_reader import FileMeter
    from tierdex.indexfile.compacted.file import CompactedFile

_NONE = slice(0, 0)


def ask_local(
    file: ChainedReader | CompactedFile,
    hashes: np.ndarray,
    tags: np.ndarray,
    begin: np.ndarray,
    end: np.ndarray,
    limit: int,
    meter: FileMeter,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (offsets i8[n + 1], rows, deferred i8[...]) for `hashes` u8[n].

    Raises CorruptFileError, and BudgetExceededError when nothing is left.
    """
    left = meter.budget.work_limit()
    if not left.items:
        raise left.refuse()
    columns = hashes, tags
    try:
        # Half of it: what is spent on an attempt that fails must leave enough for the next.
        most = WorkLimit(max(1, left.items // 2), left.rows)
        found = file.find_many(*columns, begin=begin, end=end, limit=limit, most=most)
        deferred = found.offsets[_NONE]
    except BudgetExceededError:
        share = left.share_of(len(hashes), limit)
        found, deferred = file.find_within_share(
            *columns, begin=begin, end=end, limit=limit, share=share
        )
    if isinstance(file, ChainedReader) and isinstance(found, Matches):
        meter.charge_items(int(found.walked))
        return found.offsets, file.rows(found.rows), deferred
    return found.offsets, found.rows, deferred
