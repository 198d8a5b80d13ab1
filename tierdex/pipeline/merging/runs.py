"""Runs: the old files of all nodes, cut at hash boundaries into pieces of bounded size.

::

    files of a day, all nodes    | a1 | b1 | a2 | c1 | b2 | ...      every lookup asks each of them
    run, in hash order           | 0 ..... 3f | 40 ..... 7f | ...     every lookup asks one piece

Files whose places follow each other become one run, so that no entry changes sides with another file's: the
order of answers stays what it was. A file that may not be merged ends a run; so does one with which a merge
would keep more than 64 MiB of its sources' small parts in memory. The pieces' numbers are that of
the newest source and those behind it, below the number of the next file.

Pure. Depends on compactor and lifecycle; on snapshot for its types only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tierdex.compactor.merged_file import kept_bytes
from tierdex.lifecycle.manifests.file_row import HashRange
from tierdex.lifecycle.retention import is_of_an_age

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.lifecycle.manifests.manifest import Retention
    from tierdex.pipeline.jobs.snapshot import ListedFile

DAY_MS: Final = 86_400_000
PIECE_ITEMS: Final = 20_000_000
_FILES_MAX: Final = 4096  # of one run
_KEPT_BYTES_MAX: Final = 64 << 20  # of the sources of one run
_LAST_HASH: Final = (1 << 64) - 1


class RunPlan(NamedTuple):
    """One run to make: its sources, oldest first, and how many pieces its numbers leave room for."""

    group: list[tuple[str, FileRow]]  # node and row
    piece_items: int

    @property
    def piece_count(self) -> int:
        items = sum(row.item_count for _, row in self.group)
        return max(1, -(-items // self.piece_items))


def plan_runs(
    files: Sequence[ListedFile],
    mergeable: Collection[bytes],
    rules: Retention,
    *,
    sealed_before_ms: int,
    piece_items: int = PIECE_ITEMS,
    min_files: int = 2,
) -> list[RunPlan]:
    """Return the runs to make of `files`, all that a store lists; only `mergeable` uuids are taken.

    A run takes the files that were sealed on one day (UTC), all before `sealed_before_ms`.
    """
    plans: list[RunPlan] = []
    run: list[ListedFile] = []
    kept = 0
    in_order = sorted(files, key=lambda file: (file.row.number, file.node))

    def end(following: ListedFile | None) -> None:
        if len(run) >= min_files:
            plan = _plan_of(run, following, piece_items)
            if plan is not None:
                plans.append(plan)
        run.clear()

    for file in in_order:
        row = file.row
        fits = (
            row.uuid in mergeable and row.hash_range is None and row.sealed_at_ms < sealed_before_ms
        )
        goes_on = (
            fits
            and bool(run)
            and len(run) < _FILES_MAX
            and kept + kept_bytes(row) <= _KEPT_BYTES_MAX
            and row.schema == run[0].row.schema
            and row.sealed_at_ms // DAY_MS == run[0].row.sealed_at_ms // DAY_MS
            and is_of_an_age(rules, [one.row for one in (run[0], run[-1], file)])
        )
        if not goes_on:
            end(file)
            kept = 0
        if fits:
            run.append(file)
            kept += kept_bytes(row)
    end(None)
    return plans


def _plan_of(
    run: Sequence[ListedFile], following: ListedFile | None, piece_items: int
) -> RunPlan | None:
    """Return the plan of a run, its pieces larger where the next file leaves few numbers."""
    group = [(file.node, file.row) for file in run]
    room = _LAST_HASH if following is None else following.row.number - run[-1].row.number
    if room < 1:
        return None  # the next file has the same number: no piece fits between
    items = sum(row.item_count for _, row in group)
    return RunPlan(group, max(piece_items, -(-items // room)))


class RunCutter:
    """Cuts a stream of rows in hash order into pieces, each of whole hashes."""

    def __init__(self, chunks: Iterator[np.ndarray], piece_items: int) -> None:
        self._chunks = chunks
        self._piece_items = piece_items
        self._waiting: np.ndarray | None = None  # rows of the next piece
        self._first = 0
        self.hash_range = HashRange(0, _LAST_HASH)  # of the piece that was read to its end

    def __iter__(self) -> Iterator[Iterator[np.ndarray]]:
        """Yield pieces, each to be read to its end before the next; their ranges cover all hashes."""
        self._waiting = next(self._chunks, None)
        while self._waiting is not None:
            yield self._piece()

    def _piece(self) -> Iterator[np.ndarray]:
        taken = 0
        while (rows := self._waiting) is not None:
            cut = self._cut(rows, taken)
            if cut < len(rows):
                if cut:
                    yield rows[:cut]
                self._end_before(int(rows["key_hash"][cut]))
                self._waiting = rows[cut:]
                return
            yield rows
            taken += len(rows)
            last = int(rows["key_hash"][-1])
            self._waiting = next(self._chunks, None)
            if self._waiting is not None and taken >= self._piece_items:
                following = int(self._waiting["key_hash"][0])
                if following != last:
                    self._end_before(following)
                    return
        self.hash_range = HashRange(self._first, _LAST_HASH)

    def _end_before(self, following: int) -> None:
        self.hash_range = HashRange(self._first, following - 1)
        self._first = following

    def _cut(self, rows: np.ndarray, taken: int) -> int:
        """Return where the piece ends in `rows`: at the first new hash behind its size, else their end."""
        hashes = rows["key_hash"]
        last = max(0, self._piece_items - taken - 1)  # 0: entries of the last hash go on here
        if last >= len(hashes):
            return len(hashes)
        return int(np.searchsorted(hashes, hashes[last], side="right"))
