"""`Follower`: reads a source from where the index ends, and puts its entries. It knows no kind of source.

::

    look   which partitions are there, what do they hold       every few seconds, and after trouble
     |       new: begin behind what the index has of it        less than we had: count what was lost
     v
    read --> entries --> put (survives kill -9) --> position   then again
                                                    save       every few seconds: sync, then following.json

A position in memory moves only after the put, so whatever stops us, the index has everything below it.
After a crash we go on from the index's watermark: one record a partition is read twice, which lookups
return once.

A source that does not answer is asked again, for ever, with growing pauses; so is an index whose disk is
full.

Depends on errors, seams and the other modules of this folder.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from tierdex.clock import Bell
from tierdex.errors import InvalidRequestError
from tierdex.following.patience import Patience
from tierdex.following.positions import Gap, PartitionPosition, PositionFile, behind_of
from tierdex.following.source import RememberingSource
from tierdex.following.status import FollowStatus

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tierdex.following.extraction import Extracted, Extraction
    from tierdex.following.positions import FollowedSource
    from tierdex.following.records import Bounds, RecordBatch
    from tierdex.following.source import Source
    from tierdex.following.target import Target
    from tierdex.seams import Seams

logger = logging.getLogger(__name__)

OnMissing = Literal["skip", "fail"]
_READ_S = 0.5  # after which a stop is noticed
_SKIPPED_TOLD = 100


@dataclass(frozen=True)
class FollowPlan:
    """What is followed and how: `partitions` (None: all), of which with `ordinal` (i, n) every n-th.

    With `once` it ends at the end that the log had when it began. `on_missing` "fail" stops at a record
    without a wanted key. `accept_other_log` begins anew where the source is another log than before.
    `followed` is kept for showing the messages.
    """

    topic: str
    partitions: Collection[int] | None = None
    ordinal: tuple[int, int] = (0, 1)
    once: bool = False
    on_missing: OnMissing = "skip"
    accept_other_log: bool = False
    followed: FollowedSource | None = None
    max_records: int = 20_000
    look_interval_s: float = 5.0
    save_interval_s: float = 5.0

    def __post_init__(self) -> None:
        number, count = self.ordinal
        if not 0 <= number < count:
            raise InvalidRequestError(
                "is i/n, with i from 0 to n - 1: 0/3, 1/3, 2/3", field="ordinal"
            )
        if self.on_missing not in ("skip", "fail"):
            raise InvalidRequestError("must be skip or fail", field="on_missing")

    def takes(self, partition: int) -> bool:
        number, count = self.ordinal
        is_listed = self.partitions is None or partition in self.partitions
        return is_listed and partition % count == number


class Follower:
    """Follows one source into one topic. `run` in one thread; `status` and `stop` from any."""

    def __init__(
        self,
        source: Source,
        target: Target,
        extraction: Extraction,
        plan: FollowPlan,
        seams: Seams,
    ) -> None:
        self.status = FollowStatus(source.name, plan.topic)
        self._source = source
        self._target = target
        self._extraction = extraction
        self._plan = plan
        self._clock = seams.clock
        self._file = PositionFile(seams.filesystem, target.folder)
        self._stopping = Bell()
        self._tried = Patience(self.status, self._stopping, seams).tried
        self._saved = self._file.load(plan.topic)
        self._remembering = source if isinstance(source, RememberingSource) else None
        if self._remembering is not None:
            self._remembering.recall(self._saved.memory)
        self._positions: dict[int, int] = {}
        self._goals: dict[int, int] | None = None
        self._identity = ""
        self._begins_anew = False
        self._replaced = 0
        self._must_open = True  # what the source has read, and we have not put, is read again

    def stop(self) -> None:
        """Make `run` save and return soon. Safe in a signal handler."""
        self._stopping.set()

    def run(self) -> FollowStatus:
        """Follow until `stop`, or with `once` to the end; return the status.

        Raises NotFoundError, PermissionDeniedError, InvalidRequestError for what no retry changes.
        """
        now = self._clock.monotonic
        looked = saved = float("-inf")
        try:
            while not self._stopping.is_set() and not self._is_done():
                if now() - looked >= self._plan.look_interval_s:
                    if self._tried(self._look):
                        looked = now()
                    else:
                        self._must_open = True
                    continue  # with `once` there may be nothing to read
                if not self._tried(self._read):
                    looked = float("-inf")  # what was lost meanwhile, and where to go on
                    self._must_open = True
                if now() - saved >= self._plan.save_interval_s:
                    self._tried(self._save)
                    saved = now()
            while not self._tried(self._save) and not self._stopping.is_set():
                pass
        finally:
            self._source.close()
        return self.status

    # -- steps ---------------------------------------------------------------------------------------

    def _look(self) -> None:
        """See what partitions there are and what they hold; open the source where that changes anything."""
        self._check_identity()
        partitions = [each for each in self._source.partitions() if self._plan.takes(each)]
        self._check_listed(partitions)
        known = {p: self._positions.get(p, self._resumed(p)) for p in partitions}
        bounds = self._source.bounds(known)
        before = dict(self._positions)
        restarts = self.status.restarts
        self._note_replaced()
        for partition, held in bounds.items():
            at = known[partition]
            self._positions[partition] = held.first if at is None else at
            self._keep_within(partition, held)
        self._begins_anew = False
        for partition in set(self._positions) - set(bounds):
            logger.info("partition is gone", extra={"partition": self._source.name_of(partition)})
            if self.status.ends.get(partition, 0) > self._positions[partition]:
                self._skip_lost(partition, self.status.ends[partition])
            del self._positions[partition]
        self.status.ends = {partition: held.end for partition, held in bounds.items()}
        self.status.positions = dict(self._positions)
        if self._goals is None:
            self._goals = dict(self.status.ends)
        if restarts != self.status.restarts:
            self._save()  # before an end passes the old position, which would hide that
        if self._must_open or before != self._positions:
            self._source.open(dict(self._positions), self._target.wanted(self._extraction.wanted()))
            self._must_open = False

    def _read(self) -> None:
        batch = self._source.read(self._plan.max_records, _READ_S)
        if batch is None:
            return
        self._check_gaps(batch)
        extracted = self._extraction.entries_of(batch)
        without_value = _without_value(batch)
        missing = self._missing(batch, extracted, without_value)
        passed_over = self._target.put(extracted) if len(batch) else 0
        self._positions.update(
            {each: at for each, at in batch.positions.items() if each in self._positions}
        )
        self._count(batch, extracted, missing)
        self.status.without_value += len(without_value)
        self.status.passed_over += passed_over

    def _save(self) -> None:
        """Make what was put durable, then the positions behind it."""
        self._target.sync()
        saved = self._saved
        if self._remembering is not None:
            saved.memory = self._remembering.memory(self._positions)
        saved.source, saved.identity = self._source.name, self._identity
        saved.followed = self._plan.followed
        for partition, position in self._positions.items():
            row = saved.partitions.setdefault(partition, PartitionPosition(position))
            row.next, row.watermark = position, self._target.watermark(partition)
        self._file.save(self._plan.topic, saved)

    # -- where to begin, and what was lost --------------------------------------------------------------

    def _check_identity(self) -> None:
        identity = self._source.identity()
        if self._identity == identity and identity:
            return
        known = self._identity or self._saved.identity
        if known and identity and known != identity:
            if not self._plan.accept_other_log:
                raise InvalidRequestError(
                    f"topic {self._plan.topic!r} was made from {self._saved.source or 'another log'} "
                    f"({known}), and {self._source.name} is another log ({identity}): give another "
                    "topic, or accept the other log, which is then indexed from its beginning",
                    field="source",
                )
            self._begins_anew = True
        self._identity = identity or known

    def _check_listed(self, partitions: Collection[int]) -> None:
        absent = set(self._plan.partitions or ()) - set(self._source.partitions())
        if absent and not self._positions:
            raise InvalidRequestError(
                f"{self._source.name} has no partition {min(absent)}", field="partitions"
            )
        if not partitions and self._goals is None:
            logger.info("no partition yet", extra={"source": self._source.name})

    def _resumed(self, partition: int) -> int | None:
        """Return where the index says to go on in a partition; None: it has nothing of it."""
        watermark = self._target.watermark(partition)
        saved = self._saved.partitions.get(partition)
        repeats_last = self._target.repeats_last
        if saved is None:
            remembering = self._remembering
            if remembering is not None and repeats_last and not remembering.remembers(partition):
                return None  # all of it again does no harm, a place in another file would lose some
            return behind_of(watermark, repeats_last=repeats_last)
        return saved.resume(watermark, repeats_last=repeats_last)

    def _keep_within(self, partition: int, held: Bounds) -> None:
        """Move a position into the range of the log; count what it lost, or begin it anew."""
        at = self._positions[partition]
        if at > held.end or self._begins_anew:
            self._restart(partition, held)
        elif at < held.first:
            self._skip_lost(partition, held.first)
            self._positions[partition] = held.first

    def _note_replaced(self) -> None:
        """Count what the source saw at this look: logs that began anew, names that are no log."""
        if self._remembering is None:
            return
        fresh = self._remembering.replaced - self._replaced
        if fresh:
            logger.warning(
                "files were replaced: reading all of the new ones", extra={"files": fresh}
            )
        self._replaced += fresh
        self.status.restarts += fresh
        for name, why in self._remembering.skipped.items():
            if name not in self.status.skipped and len(self.status.skipped) < _SKIPPED_TOLD:
                logger.warning("skipped: not a file", extra={"name_there": name, "kind": why})
                self.status.skipped[name] = why

    def _restart(self, partition: int, held: Bounds) -> None:
        """Begin at the first record again: the log ends before where we were, so it is another one."""
        at = self._positions[partition]
        logger.warning(
            "log was cut or begun anew: reading all of it",
            extra={"partition": self._source.name_of(partition), "position": at, "end": held.end},
        )
        self._positions[partition] = held.first
        self.status.restarts += 1
        row = self._saved.partitions.setdefault(partition, PartitionPosition(held.first))
        row.restarts += 1

    def _skip_lost(self, partition: int, first: int) -> None:
        """Count the offsets from where the index ends to `first`."""
        begin = max(self._positions[partition], self._target.watermark(partition) or 0)
        saved = self._saved.partitions.setdefault(partition, PartitionPosition(begin))
        if saved.watermark is not None and saved.next < saved.watermark:
            begin = self._positions[partition]  # of a log that was begun anew
        if begin >= first:
            return
        lost = first - begin if self._source.is_dense else 1
        saved.note_gap(Gap(begin, first, self._clock.now_ms()), lost)
        self.status.lost += lost
        logger.warning(
            "messages were gone before they were read",
            extra={"partition": self._source.name_of(partition), "begin": begin, "end": first},
        )

    def _check_gaps(self, batch: RecordBatch) -> None:
        """Where a batch begins behind our position, see whether the log lost what is between."""
        jumps = {
            partition: offset
            for partition, offset in batch.first_offsets().items()
            if offset > self._positions.get(partition, offset)
        }
        if not jumps:
            return
        jumped = {partition: self._positions[partition] for partition in jumps}
        for partition, held in self._source.bounds(jumped).items():
            first = min(held.first, jumps[partition])
            if first > self._positions[partition]:
                self._skip_lost(partition, first)
                self._positions[partition] = first

    # -- counts --------------------------------------------------------------------------------------

    def _missing(
        self, batch: RecordBatch, extracted: Extracted, without_value: np.ndarray
    ) -> Counter[str]:
        """Count, by selector, the readable messages with a value that lack its text.

        Raises InvalidRequestError for the first of them where the plan says so.
        """
        excused = ~extracted.readable
        excused[without_value] = True
        missing: Counter[str] = Counter()
        for selector, rows in extracted.without.items():
            unexcused = rows[~excused[rows]]
            missing[selector] = len(unexcused)
            if len(unexcused) and self._plan.on_missing == "fail":
                row = int(unexcused[0])
                place = self._source.name_of(int(batch.partitions[row]))
                raise InvalidRequestError(
                    f"{place}, offset {batch.offsets[row]}: the message has no {selector} "
                    "(on_missing skip goes on without it)",
                    field="on_missing",
                )
        return missing

    def _count(self, batch: RecordBatch, extracted: Extracted, missing: Counter[str]) -> None:
        status = self.status
        if extracted.first_untimed is not None and not status.untimed:
            row = extracted.first_untimed
            place = self._source.place_of(int(batch.partitions[row]), int(batch.offsets[row]))
            logger.warning(
                "a message has no time that is understood; others are counted as untimed",
                extra={"place": place},
            )
        status.messages += len(batch)
        status.entries += extracted.count
        status.bytes += int(batch.sizes.sum(dtype=np.int64))
        status.passed_over += batch.passed_over
        status.missing += missing
        status.unreadable += extracted.unreadable
        status.too_long += extracted.too_long
        status.untimed += extracted.untimed
        status.positions = dict(self._positions)

    def _is_done(self) -> bool:
        if not self._plan.once or self._goals is None:
            return False
        return self._are_reached(self._goals)

    def _are_reached(self, goals: Mapping[int, int]) -> bool:
        return all(self._positions.get(each, end) >= end for each, end in goals.items())


def _without_value(batch: RecordBatch) -> np.ndarray:
    """Return the rows without a value: int64, rising; none, where values were not asked for."""
    empty = np.flatnonzero(batch.sizes == 0)
    if batch.values is None or not len(empty):
        return empty[:0]
    values = batch.values
    return np.array([row for row in empty.tolist() if values[row] is None], np.int64)
