"""Reads as a caller asks for them: arguments checked, the folder followed, more messages waited for.

Depends on clock, errors, value_rules and the rest of log_service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tierdex.clock import Bell
from tierdex.errors import CorruptFileError, InvalidRequestError, UnavailableError
from tierdex.log_service.files.queue_table import QueueTable, queues_of_ends
from tierdex.log_service.levels import Level
from tierdex.log_service.read.reads import place_of
from tierdex.log_service.read_policy import ReadLimits, policy_of
from tierdex.log_service.recovery.repair import note_ends
from tierdex.value_rules import INT32_MAX, check_integer, check_seconds, check_topic

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tierdex.lifecycle.table.file_table import FileList
    from tierdex.log_service.answer import ReadAnswer
    from tierdex.log_service.log_components import LogComponents
    from tierdex.log_service.notes.trim_record import TrimmedMessages
    from tierdex.log_service.read.many_reads import Place
    from tierdex.log_service.read.reads import QueuePosition

WAIT_MOST_S: Final = 86_400.0
_COUNT_MOST: Final = 1_000_000
_BYTES_MOST: Final = 1 << 30
_WAIT_STEP_S: Final = 0.1


class _Collected(NamedTuple):
    """The queues of files as they were: of these, without what was gone, with so many messages each."""

    of: FileList
    gone: TrimmedMessages
    counts: list[int]
    queues: QueueTable


class CheckedReads:
    """The reading half of a `MessageLog`. Any thread may call it."""

    def __init__(self, components: LogComponents) -> None:
        self._components = components
        self._clock = components.seams.clock
        self._policy = components.options.settings.read_policy
        self._refreshed_at = self._clock.monotonic()
        self._collected: _Collected | None = None
        self._limits_of_one: dict[tuple[str, str | None], ReadLimits] = {}  # that are legal

    def check(
        self, topic: str, queue_id: int, offset: int, max_count: int, max_bytes: int, visible: str,
        group: str | None = None, policy: str | None = None,
    ) -> tuple[QueuePosition, ReadLimits]:  # fmt: skip
        """Return what is asked for. Raises InvalidRequestError, ClosedError, ForkedError."""
        self._components.check_open()
        at = place_of(topic, queue_id, offset)
        return at, self.check_limits(max_count, max_bytes, visible, group, policy)

    def check_limits(
        self, max_count: int, max_bytes: int, visible: str, group: str | None = None,
        policy: str | None = None,
    ) -> ReadLimits:  # fmt: skip
        """Return how much to read. Raises InvalidRequestError."""
        return ReadLimits(
            check_integer(max_count, "max_count", 1, _COUNT_MOST),
            check_integer(max_bytes, "max_bytes", 1, _BYTES_MOST),
            self._components.level(visible, "visible"),
            None if group is None else check_topic(group, "group"),
            policy_of(self._policy if policy is None else policy, "policy"),
        )

    @staticmethod
    def check_places(places: Iterable[Place]) -> list[Place]:
        """Return the places of many reads; what each one is made of is looked at where it is read."""
        try:
            return list(places)
        except TypeError:
            raise InvalidRequestError(
                "must be (topic, queue_id, offset) each", field="places"
            ) from None

    def limits_of_one(self, visible: str, policy: str | None) -> ReadLimits:
        """Return the limits of a read of one message, however large. Raises InvalidRequestError."""
        known = None
        if isinstance(visible, str) and (policy is None or isinstance(policy, str)):
            known = self._limits_of_one.get((visible, policy))
        if known is None:
            known = self.check_limits(1, _BYTES_MOST, visible, policy=policy)
            self._limits_of_one[visible, policy] = known
        return known

    def begin(self, topic: str, queue_id: int) -> int:
        """Return where a queue begins. Raises InvalidRequestError, and as `LogReads.begin`."""
        self._check_queue(topic, queue_id)
        return self._components.reads.begin(topic, queue_id, Level.RECEIVED)

    def end(self, topic: str, queue_id: int, level: Level) -> int:
        """Return where a queue ends at a level. Raises as `begin`.

        Its owner knows it though a file cannot say: all but what lies in a journal that grows is durable.
        """
        self._check_queue(topic, queue_id)
        try:
            return self._components.reads.end(topic, queue_id, level)
        except (UnavailableError, CorruptFileError):
            writing = self._components.writing
            if writing is None or level is Level.REMOTE:
                raise
            first = self._components.reads.growing_from(topic, queue_id)  # below the level
            return writing.queues.next_offset(topic.encode(), queue_id) if first is None else first

    def _check_queue(self, topic: str, queue_id: int) -> None:
        self._components.check_open()
        check_topic(topic, "topic")
        check_integer(queue_id, "queue_id", 0, INT32_MAX)
        self.refresh_when_due()

    def wait_for(self, at: QueuePosition, limits: ReadLimits, wait: float) -> ReadAnswer:
        """Read, and again when more has come, until there is something to tell or `wait` seconds are over.

        Raises InvalidRequestError.
        """
        deadline = self._clock.monotonic() + check_seconds(wait, "wait", WAIT_MOST_S)
        writing = self._components.writing
        while True:
            bell = None if writing is None else writing.committer.arrival(limits.level)
            self.refresh_when_due(at_once=wait > 0)
            answer = self._components.reads.read(at, limits)
            left = deadline - self._clock.monotonic()
            if len(answer) or left <= 0:
                return answer
            if bell is not None:
                self._clock.wait(bell, left)
            else:
                self._clock.wait(Bell(), min(left, _WAIT_STEP_S))
            self._components.check_open()

    def queues(self) -> QueueTable:
        """Return the queues of the log; a reader collects them from the files when these have changed."""
        self._components.check_open()
        if self._components.writing is not None:
            return self._components.writing.queues
        self.refresh_when_due()
        gone = self._components.gone.current
        with self._components.table.snapshot() as snapshot:
            node = self._components.options.settings.node
            files = [
                each for each in snapshot.file_list.iterate() if each.node == node
            ]  # oldest first
            counts = [file.item_count for file in files]
            kept = self._collected
            is_of_these = kept is not None and kept.of is snapshot.file_list and kept.gone is gone
            if kept is not None and is_of_these and kept.counts == counts:
                return kept.queues
            queues = QueueTable()
            for handle in files:
                note_ends(queues, handle.reader)
        queues.raise_ends(*queues_of_ends(gone.ends))
        self._collected = _Collected(snapshot.file_list, gone, counts, queues)
        return queues

    def refresh(self) -> None:
        """Read the folder again, in a log that was opened for reading."""
        self._components.check_open()
        if self._components.follower is not None:
            self._components.follower.refresh()
            self._refreshed_at = self._clock.monotonic()

    def refresh_when_due(self, *, at_once: bool = False) -> None:
        """Follow the folder, in a log that was opened for reading, if that was not done just now."""
        self._components.check_open()
        follower = self._components.follower
        if follower is None:
            return
        elapsed = self._clock.monotonic() - self._refreshed_at
        if (at_once and follower.is_quick) or elapsed >= follower.every_s:
            self.refresh()
