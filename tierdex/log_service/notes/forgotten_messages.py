"""The record of forgotten messages: `DATA/log/FORGOTTEN` (`record_file`).

::

    request   its places (topic, queue_id, offset), and what is still to be done of it
    places    of all requests: no read shows what lies there, whichever file holds it
    file      says up to which request it left the places out (`forgets`); a journal holds them all

A request is durable before it counts, and stays until no file holds anything of it, and for the grace time
after that: a reader that still has the files of before has its places, too. An offset is forgotten only once
its message is durable, so that it is never another's. Depends on carried_notes,
forgotten_names, logfile and record_file.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tierdex.log_service.notes.carried_notes import FORGOTTEN
from tierdex.log_service.notes.forgotten_names import NamedPlaces
from tierdex.log_service.notes.record_file import Record, RecordFile
from tierdex.logfile.forgotten import NOWHERE, ForgottenPlaces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tierdex.filesystem import FileSystem
    from tierdex.log_service.notes.forgotten_names import Name, Place

_MAGIC: Final = b"TDXFORG1"


class HeldBefore(NamedTuple):
    """A file that held something; a journal never leaves an object of its own behind."""

    number: int
    uuid: bytes
    is_journal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetRequest:
    """One request, and how far it has come. Immutable; times int64 ms.

    `number` rises from request to request. Journals up to `through` may hold blocks of older ones until
    they are sealed. `unindexed` is what the index is still to be told, `told` the requests that it made of
    the rest. `held` are the files that had something of it when it began.
    """

    uuid: bytes
    number: int
    time_ms: int
    named: NamedPlaces
    rewrites: bool = False
    is_carried: bool = False  # the store has it, for the next owner of the node
    through: int = 0
    unindexed: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    held: tuple[HeldBefore, ...] = ()
    unsearched: tuple[tuple[str, str], ...] = ()  # (file, reason): more of the key may be there
    elsewhere: tuple[str, ...] = ()  # nodes whose own logs have messages of the key
    done_ms: int | None = None  # since when no file holds anything of it

    @property
    def places(self) -> ForgottenPlaces:
        return self.named.places

    def below(self, end_of: Callable[[bytes, int], int]) -> ForgetRequest:
        """Return the same without offsets that `end_of` (topic, queue_id) says are still to be given."""
        named = self.named.below(end_of)
        left = tuple(topic for topic in self.unindexed if topic in named.topics)
        return replace(self, named=named, unindexed=left, is_carried=False)


@dataclass(frozen=True, slots=True)
class ForgottenMessages:
    """All that is forgotten. Immutable."""

    requests: tuple[ForgetRequest, ...] = ()  # in order of their numbers
    number: int = 0  # of the last request, also of one that ended
    places: ForgottenPlaces = field(default=NOWHERE)

    @classmethod
    def of(cls, requests: tuple[ForgetRequest, ...], number: int) -> ForgottenMessages:
        """Return what these requests say."""
        places = reduce(ForgottenPlaces.joined, (each.places for each in requests), NOWHERE)
        return cls(requests, number, places)

    def get(self, uuid: bytes) -> ForgetRequest | None:
        """Return a request, None when there is none of that uuid."""
        return next((each for each in self.requests if each.uuid == uuid), None)

    def under(self, name: Name) -> Iterator[tuple[Place, set[Name]]]:
        """Yield the places of a name that a file may hold yet, each with all of its names."""
        for request in self.requests:
            if request.done_ms is None:
                yield from request.named.under(name).items()

    def with_request(self, request: ForgetRequest) -> ForgottenMessages:
        """Return the same with a request, in place of the one of its uuid if there is one."""
        others = [each for each in self.requests if each.uuid != request.uuid]
        requests = sorted((*others, request), key=lambda each: each.number)
        if len(others) < len(self.requests):  # the places are what they were
            return replace(self, requests=tuple(requests))
        return ForgottenMessages.of(tuple(requests), max(self.number, request.number))

    def without(self, uuid: bytes) -> ForgottenMessages:
        """Return the same without a request that is over."""
        left = tuple(each for each in self.requests if each.uuid != uuid)
        return ForgottenMessages.of(left, self.number)

    def below(self, end_of: Callable[[bytes, int], int]) -> ForgottenMessages:
        """Return the same without offsets that `end_of` (topic, queue_id) says are still to be given."""
        if not any(each.places.beyond(end_of) for each in self.requests):
            return self
        requests = tuple(each.below(end_of) for each in self.requests)
        return ForgottenMessages.of(requests, self.number)


class ForgottenRecord:
    """The record of one log. `current` is a value; `keep` replaces it, durably first."""

    def __init__(self, filesystem: FileSystem, root: Path) -> None:
        """Know nothing yet: `refresh` reads it."""
        self._file = RecordFile(
            filesystem, root / FORGOTTEN, _MAGIC,
            "the record of forgotten messages is damaged: bring it back from a copy of the folder; "
            "without it messages that were forgotten would show again",
        )  # fmt: skip
        self.current = ForgottenMessages()

    @property
    def places(self) -> ForgottenPlaces:
        return self.current.places

    def refresh(self) -> None:
        """Read it anew if it was replaced. Raises CorruptFileError, OSError."""
        found = self._file.read_changed()
        if found is not None:
            self.current = _decode(found, self._file.path)

    def take(self, data: bytes | None) -> None:
        """Know what the file of another folder holds (None: it has none). Raises CorruptFileError."""
        record = None if data is None else self._file.decode(data)
        known = ForgottenMessages()
        self.current = known if record is None else _decode(record, self._file.path)

    def keep(self, forgotten: ForgottenMessages) -> None:
        """Make `forgotten` what is known. Durable first, then visible. Raises OSError."""
        self._file.replace(_encode(forgotten))
        self.current = forgotten


def _encode(forgotten: ForgottenMessages) -> Record:
    tables = [each.named.encode() for each in forgotten.requests]
    requests = [
        _pack(each, len(table)) for each, table in zip(forgotten.requests, tables, strict=True)
    ]
    return Record({"number": forgotten.number, "requests": requests}, b"".join(tables))


def _pack(request: ForgetRequest, table_bytes: int) -> dict[str, Any]:
    return {
        "uuid": request.uuid.hex(),
        "number": request.number,
        "time": request.time_ms,
        "table": table_bytes,
        "rewrites": request.rewrites,
        "carried": request.is_carried,
        "through": request.through,
        "unindexed": request.unindexed,
        "told": request.told,
        "held": [[number, uuid.hex(), is_journal] for number, uuid, is_journal in request.held],
        "unsearched": request.unsearched,
        "elsewhere": request.elsewhere,
        "done": request.done_ms,
    }


def _decode(record: Record, path: Path) -> ForgottenMessages:
    requests, at = [], 0
    for packed in record.notes["requests"]:
        end = at + packed["table"]
        requests.append(_unpack(packed, NamedPlaces.decode(record.table[at:end], path)))
        at = end
    return ForgottenMessages.of(tuple(requests), record.notes["number"])


def _unpack(packed: dict[str, Any], named: NamedPlaces) -> ForgetRequest:
    return ForgetRequest(
        uuid=bytes.fromhex(packed["uuid"]),
        number=packed["number"],
        time_ms=packed["time"],
        named=named,
        rewrites=packed["rewrites"],
        is_carried=packed["carried"],
        through=packed["through"],
        unindexed=tuple(packed["unindexed"]),
        told=tuple(packed["told"]),
        held=tuple(
            HeldBefore(number, bytes.fromhex(uuid), is_journal)
            for number, uuid, is_journal in packed["held"]
        ),
        unsearched=tuple((file, reason) for file, reason in packed["unsearched"]),
        elsewhere=tuple(packed["elsewhere"]),
        done_ms=packed["done"],
    )
