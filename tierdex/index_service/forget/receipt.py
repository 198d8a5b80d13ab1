"""The receipt of a request to forget entries, or messages of a log: plain values, and their digest.

Depends on answer, manifest and errors.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tierdex.index_service.answer import Entry, Missing
    from tierdex.lifecycle.manifests.manifest import ManifestState


class HeldFile(NamedTuple):
    """A file that still holds forgotten entries; `object_key` is None while it is not published."""

    file_id: str
    node: str
    uuid: str  # hex
    object_key: str | None


class RewrittenFile(NamedTuple):
    """A file that held some, and the object (None: it is gone) that was written without them."""

    file_id: str
    node: str
    uuid: str  # hex
    object_key: str | None


class LingeringObject(NamedTuple):
    """An object that is read no more, and holds some until it is deleted, after `until_ms`."""

    object_key: str
    node: str
    until_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The state of one request. `time_ms` is when it was made: nothing put later is forgotten by it.

    `entries` are where the messages lie: all that was found since the request was taken up in this process;
    files that were written anew tell nothing of them any more. `is_complete` says that every
    owner has acknowledged, and, where the files were to be written anew at once, that they are;
    `waiting` names what is missing. `lingering` are objects that were written anew, and are not deleted
    yet; of a request that was not to rewrite at once none is known. `manifest` are the numbers that were
    read: {node: number}.
    """

    forgetting: str
    time_ms: int
    is_complete: bool
    waiting: list[Missing] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    holding: list[HeldFile] = field(default_factory=list)
    rewritten: list[RewrittenFile] = field(default_factory=list)
    lingering: list[LingeringObject] = field(default_factory=list)
    manifest: dict[str, int] = field(default_factory=dict)

    @property
    def waits_for_files(self) -> bool:
        """Return whether files are to be written anew that are not yet."""
        held = {file.file_id for file in self.holding}
        return any(missing.file in held for missing in self.waiting)

    @property
    def digest(self) -> str:
        """The SHA-256 of the canonical JSON of everything else."""
        text = json.dumps(self._content(), sort_keys=True, separators=(",", ":"))
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()

    def document(self) -> dict[str, Any]:
        """Return plain JSON values, the digest with them."""
        return {**self._content(), "digest": self.digest}

    def _content(self) -> dict[str, Any]:
        return {
            "forgetting": self.forgetting,
            "time_ms": self.time_ms,
            "complete": self.is_complete,
            "waiting": [each._asdict() for each in self.waiting],
            "entries": [entry.to_dict() for entry in self.entries],
            "holding": [each._asdict() for each in self.holding],
            "rewritten": [each._asdict() for each in self.rewritten],
            "lingering": [each._asdict() for each in self.lingering],
            "manifest": self.manifest,
        }


def name_of_request(forgetting: object) -> str:
    """Return the name of a request that is given by name or receipt. Raises InvalidRequestError."""
    name = forgetting.forgetting if isinstance(forgetting, Receipt) else forgetting
    if not isinstance(name, str):
        raise InvalidRequestError("must be a name or a receipt", field="forgetting")
    return name


class ForgottenMessage(NamedTuple):
    """Where a message is forgotten."""

    topic: str
    queue_id: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetReceipt(Receipt):
    """The state of one request to forget messages of a log, and of what its index had of them.

    `messages` are hidden in every read since it was made, and stay so; `held_count` are those beside them
    that wait for their `deliver_at`, and copies of those that waited. `holding` are files that have something
    of them in their bytes, messages or entries, `rewritten` those that had. `is_complete` says that nothing
    was left unsearched, that the index has forgotten them as well, and, where files were to be
    written anew at once, that they are; `waiting` names what is missing. `elsewhere` are nodes whose own logs
    have messages under a name that was asked for: they are not asked, and do not count; ask there.
    """

    messages: list[ForgottenMessage] = field(default_factory=list)
    held_count: int = 0
    elsewhere: list[str] = field(default_factory=list)

    def _content(self) -> dict[str, Any]:
        return {
            **Receipt._content(self),
            "messages": [each._asdict() for each in self.messages],
            "held_count": self.held_count,
            "elsewhere": self.elsewhere,
        }


def lingering_objects(
    held: set[bytes], states: Mapping[str, ManifestState], grace_ms: int
) -> list[LingeringObject]:
    """Return the dropped objects of files, and those from which they were merged."""
    for state in states.values():
        for row in state.files.values():
            parts = {part.uuid for part in row.parts}
            if not held.isdisjoint(parts):
                held = held | parts
    return [
        LingeringObject(dropped.object_key, state.node, dropped.dropped_ms + grace_ms)
        for state in states.values()
        for dropped in state.dropped.values()
        if dropped.uuid in held
    ]


def holder_of(uuid: bytes, states: Mapping[str, ManifestState]) -> str | None:
    """Return the object that was written in place of a file, None when no listed one was."""
    for state in states.values():
        for row in state.files.values():
            if any(part.uuid == uuid for part in row.parts):
                return row.object_key
    return None
