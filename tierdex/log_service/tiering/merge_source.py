"""A grouped file as a source of a merge, and as the merge plan sees it: unopened where possible.

::

    hidden   topics whose retention is over: left out, and their share of the bytes
    sizes    of a published file its row says them, and its topics whether any may be hidden

Depends on lifecycle, logfile, value_rules and the rest of log_service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.retention import is_hidden, shortest_retention
from tierdex.log_service.files.log_file import left_out_before
from tierdex.log_service.files.whole_object import WINDOW_BYTES
from tierdex.log_service.tiering.merge_plan import MergeCandidate
from tierdex.logfile.grouped.sources import GroupedSource
from tierdex.logfile.layout import TIMER_TOPIC
from tierdex.logfile.queue_ends import NO_QUEUES, QueueEnds
from tierdex.value_rules import INT64_MAX

if TYPE_CHECKING:
    from tierdex.lifecycle.manifests.manifest import Retention
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.log_service.files.log_file import GroupedLogFile
    from tierdex.logfile.grouped.file import GroupedFile
    from tierdex.logfile.topics import Topics

_WINDOWS_BYTES = 64 << 20  # of all published sources of a merge together
_WINDOW_LEAST = 256 << 10


class Hidden(NamedTuple):
    """What retention hides of a file: until `until_ms` nothing more."""

    topics: frozenset[bytes]
    body_bytes: int
    retention_ms: int | None  # the shortest of the other topics; None: they are kept for ever
    until_ms: int


def find_hidden(topics: Topics, sealed_at_ms: int, rules: Retention, now_ms: int) -> Hidden:
    """Return what retention hides of a file with these topics. What waits to be delivered never is."""
    hidden: list[int] = []
    limits: list[int] = []
    for index in range(len(topics)):
        name = topics.name(index)
        if name == TIMER_TOPIC:
            continue
        if is_hidden(rules, name.decode(), sealed_at_ms, now_ms):
            hidden.append(index)
        elif (limit := rules.of(name.decode())) is not None:
            limits.append(limit)
    shortest = min(limits, default=None)
    return Hidden(
        frozenset(map(topics.name, hidden)),
        int(topics.rows["body_bytes"][hidden].sum()),
        shortest,
        INT64_MAX if shortest is None else sealed_at_ms + shortest,
    )


class HiddenShares:
    """What is hidden of each file that was asked for, looked up again once more may be."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, int], Hidden] = {}
        self._rules: Retention | None = None

    def keep(self, rules: Retention, wanted: set[tuple[bytes, int]]) -> None:
        """Forget all but these files, (uuid, sealed at), and everything when the rules changed."""
        is_same = rules == self._rules
        self._known = {k: v for k, v in self._known.items() if is_same and k in wanted}
        self._rules = rules

    def of(self, handle: FileHandle, sealed_at_ms: int, rules: Retention, now_ms: int) -> Hidden:
        """Return what is hidden of a file; its topics are asked when any may be. Raises as `reader.file`."""
        shortest = shortest_retention(rules, handle.topics)
        if shortest is None or now_ms - sealed_at_ms < shortest:
            return Hidden(frozenset(), 0, shortest, INT64_MAX)
        key = handle.uuid, sealed_at_ms
        known = self._known.get(key)
        if known is None or now_ms >= known.until_ms:
            known = find_hidden(handle.reader.file.topics, sealed_at_ms, rules, now_ms)
            known = self._known[key] = known._replace(topics=frozenset())  # there may be many
        return known


def candidate(handle: FileHandle, sealed_at_ms: int, hidden: Hidden) -> MergeCandidate:
    """Return a file as the plan sees it."""
    reader: GroupedLogFile = handle.reader
    sizes = reader.sizes
    return MergeCandidate(
        handle.bytes, sizes.payload_bytes, sizes.queue_count, reader.generation,
        handle.begin_ms, sealed_at_ms, hidden.retention_ms, sizes.body_bytes, hidden.body_bytes,
    )  # fmt: skip


class MergeSource:
    """A grouped file that is merged, without what its merge leaves out."""

    def __init__(self, handle: FileHandle, file: GroupedFile, left_out: frozenset[bytes]) -> None:
        self.handle = handle
        self.file = file
        self.left_out = left_out
        self.rows = GroupedSource(file, left_out)

    def ends_left_out(self) -> QueueEnds:
        """Return where queues end that are left out now. Raises CorruptFileError."""
        if not self.left_out:
            return NO_QUEUES
        reader: GroupedLogFile = self.handle.reader
        return QueueEnds.of(*reader.ends(self.left_out), last_file=self.handle.number)

    def ends_left_out_before(self) -> QueueEnds:
        """Return where queues end that earlier merges left out. Raises CorruptFileError."""
        return left_out_before(self.file)


def open_sources(
    group: list[tuple[FileHandle, int]], rules: Retention, now_ms: int
) -> list[MergeSource]:
    """Open the files of a merge, (handle, sealed at), oldest first, to be read once and in order.

    Raises CorruptFileError, and of published ones what the store raises.
    """
    window = min(WINDOW_BYTES, max(_WINDOW_LEAST, _WINDOWS_BYTES // len(group)))
    sources = []
    for handle, sealed_at_ms in group:
        is_published = handle.state is FileState.UPLOADED
        file = handle.reader.in_order(window) if is_published else handle.reader.file
        left_out = frozenset[bytes]()
        if rules.has_limits:
            left_out = find_hidden(file.topics, sealed_at_ms, rules, now_ms).topics
        sources.append(MergeSource(handle, file, left_out))
    return sources
