"""The record of messages that are gone: a small file `DATA/log/GONE` (`record_file`).

Its table is where the queues of gone files end (`logfile.queue_ends`).

Offsets never begin again: a queue whose files are all gone goes on where it ended, and begins there. The
record is durable before a file leaves the folder, and names it, so that an expiry that a crash cut off is
finished by the next opening. It also holds the rules of retention: all readers of the folder decide alike.

The owner writes it, one thread at a time; any number reads. What was forgotten goes with it, and is read as
often (`forgotten_messages`). Depends on clock, lifecycle, logfile and the rest of log_service.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tierdex.lifecycle.manifests.manifest import Retention
from tierdex.lifecycle.paths import GONE_NOTE
from tierdex.lifecycle.retention import KEEP_FOR_EVER, is_hidden
from tierdex.log_service.notes.forgotten_messages import ForgottenRecord
from tierdex.log_service.notes.record_file import Record, RecordFile
from tierdex.logfile.layout import TIMER_TOPIC
from tierdex.logfile.queue_ends import NO_QUEUES, QueueEnds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tierdex.clock import Clock
    from tierdex.filesystem import FileSystem
    from tierdex.lifecycle.table.file_handle import FileHandle

_MAGIC: Final = b"TDXGONE1"
_FILES_NOTED: Final = 4096  # of which the index may still ask whether the log had them


@dataclass(frozen=True, slots=True)
class TrimmedMessages:
    """What is gone. Immutable."""

    ends: QueueEnds = NO_QUEUES
    files: tuple[bytes, ...] = ()  # uuids of the files that went last, oldest first
    generation: int = 0  # the greatest of any gone file, and of what may be lost without one
    through: int = 0  # the greatest number of any gone file
    rules: Retention = KEEP_FOR_EVER

    @property
    def has_any(self) -> bool:
        return bool(self.through)

    def joined(self, ends: QueueEnds, files: Sequence[FileHandle]) -> TrimmedMessages:
        """Return the same with queues that end where `ends` says, and with `files` gone altogether."""
        return replace(
            self,
            ends=self.ends.joined(ends),
            files=(*self.files, *_uuids_of(files))[-_FILES_NOTED:],
            generation=max([self.generation, *(h.reader.generation for h in files)]),
            through=max([self.through, *(handle.number for handle in files)]),
        )

    def ruled(self, rules: Retention) -> TrimmedMessages:
        """Return the same under other rules."""
        return replace(self, rules=rules)


def _uuids_of(files: Sequence[FileHandle]) -> Iterator[bytes]:
    """Yield the files' own uuids, and those of the journals that they hold."""
    for handle in files:
        listed = (
            () if handle.row is None else handle.row.parts
        )  # a published one's reader has the last
        parts = (*(ref.uuid for ref in listed), *(end.uuid for end in handle.reader.parts))
        yield from dict.fromkeys((*parts, handle.uuid))


class Part(NamedTuple):
    """The offsets [first, end) of a queue in one file that was sealed then (None: it still grows)."""

    first: int
    end: int
    sealed_at_ms: int | None


class TrimRecord:
    """The record of one log. `current` is a value; `keep` replaces it, durably first."""

    def __init__(self, filesystem: FileSystem, root: Path, clock: Clock) -> None:
        """Read it. Raises CorruptFileError, OSError."""
        self._file = RecordFile(
            filesystem, root / GONE_NOTE, _MAGIC,
            "the record of what is gone is damaged: bring it back from a copy of the folder; without it "
            "queues that were emptied would give their offsets again",
        )  # fmt: skip
        self._clock = clock
        self.current = TrimmedMessages()
        self.forgotten = ForgottenRecord(filesystem, root)
        self.refresh()

    def refresh(self) -> None:
        """Read both records anew if they were replaced. Raises CorruptFileError, OSError."""
        found = self._file.read_changed()
        if found is not None:
            self.current = _decode(found, self._file.path)
        self.forgotten.refresh()

    def take(self, gone: bytes | None, forgotten: bytes | None) -> None:
        """Know what the two files of another folder hold (None: it has none). Raises CorruptFileError."""
        record = None if gone is None else self._file.decode(gone)
        self.current = TrimmedMessages() if record is None else _decode(record, self._file.path)
        self.forgotten.take(forgotten)

    def keep(self, gone: TrimmedMessages) -> None:
        """Make `gone` what is known. Durable first, then visible. Raises OSError."""
        self._file.replace(_encode(gone))
        self.current = gone

    def raise_generation(self, generation: int) -> None:
        """Prevent that another opening gives offsets under `generation`. Durable. Raises OSError.

        Before the first one is given under it: the journal that says it may be lost with power.
        """
        if generation > self.current.generation:
            self.keep(replace(self.current, generation=generation))

    def begin_in(self, topic: bytes, queue_id: int, parts: Sequence[Part]) -> int:
        """Return the offset at which a queue begins whose parts, oldest first, are these.

        Below it are what went with its file and what retention hides although its file is kept. A part
        counts as no older than those before it: a clock that was set back hides nothing too soon.
        """
        gone = self.current
        begin = gone.ends.next_offset(topic, queue_id)
        if topic == TIMER_TOPIC:
            return begin  # what waits is hidden by no rule
        if gone.rules != KEEP_FOR_EVER and gone.rules.of(name := topic.decode()) is not None:
            now_ms, sealed_at = self._clock.now_ms(), 0
            for part in parts:
                if part.sealed_at_ms is None:
                    break
                sealed_at = max(sealed_at, part.sealed_at_ms)
                if is_hidden(gone.rules, name, sealed_at, now_ms):
                    begin = max(begin, part.end)
        return begin

    @property
    def is_silent(self) -> bool:
        """Return whether nothing is gone and nothing is hidden: all that the files hold counts."""
        gone = self.current
        return not gone.through and not len(gone.ends) and gone.rules == KEEP_FOR_EVER


def _encode(gone: TrimmedMessages) -> Record:
    notes: dict[str, Any] = {
        "files": [uuid.hex() for uuid in gone.files],
        "generation": gone.generation,
        "through": gone.through,
        "rules": {"default": gone.rules.default_ms, "topics": dict(gone.rules.topics_ms)},
    }
    return Record(notes, gone.ends.encode())


def _decode(record: Record, path: Path) -> TrimmedMessages:
    notes, rules = record.notes, record.notes["rules"]
    return TrimmedMessages(
        ends=QueueEnds.decode(record.table, path),
        files=tuple(bytes.fromhex(uuid) for uuid in notes["files"]),
        generation=notes["generation"],
        through=notes["through"],
        rules=Retention(rules["default"], rules["topics"]),
    )
