"""The exception tree, grouped by what the reader of a message should do.

::

    TierdexError
    ├── InvalidRequestError(field)          fix the call: a value, a name, a combination
    │   ├── CursorExpiredError              start the query again without the cursor
    │   └── RequestTooLargeError            send less in one call
    ├── NotFoundError                       there is no such object, file or node
    ├── AuthenticationError                 send a valid key
    ├── PermissionDeniedError               use a key with the right that the message names
    ├── UnavailableError(retry_after_s)     nothing is lost or applied: try again later
    │   ├── RateLimitedError                the caller sends too many requests: wait `retry_after_s`
    │   ├── BacklogFullError                the disk or its budget is full: free space, or repair the store
    │   ├── StoreUnavailableError           the object store cannot be reached or refuses work
    │   │   └── StoreTimeoutError           ... no answer in time: the request may have taken effect
    │   └── IncompleteAnswerError(answer)   on_error="fail": a file that had to be read could not be
    ├── StoreRefusedError                   the store refuses (credentials, bucket): correct the settings
    ├── OwnershipError                      another owner has the node or the folder
    │   ├── FolderInUseError(holder)        another process writes in this data folder
    │   ├── NodeInUseError(node)            the node's owner is alive: choose another node, or take it over
    │   ├── FencedError                     another owner took the node over: stop, then `tierdex adopt`
    │   ├── LossyTakeoverError(node)        the log's old disk is missing: bring it, or name what is given up
    │   ├── ReadOnlyError                   this index was opened read-only
    │   └── ForkedError                     this process is a fork of the one that opened it: open it again
    ├── ConflictError                       a conditional write lost
    │   ├── AlreadyExistsError              ... the object exists already
    │   ├── FloorError                      the object was named too long ago: upload it under a fresh name
    │   ├── OffsetMismatchError(next_offset)    another offset is next in the queue: continue at `next_offset`
    │   └── OffsetsReusedError(offset)      a crash took offsets back: read again from there
    ├── CorruptFileError(path, reason)      run `tierdex verify`; the file is named in `missing`
    │   ├── LostManifestError               restore the manifest, or open with `--accept-rollback`
    │   └── UnsupportedFormatError          the file is newer than this program, or not ours: upgrade
    └── ClosedError                         the index was closed

Programmer errors are AssertionError and IllegalTransitionError. Depends on nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "AlreadyExistsError",
    "AuthenticationError",
    "BacklogFullError",
    "ClosedError",
    "ConflictError",
    "CorruptFileError",
    "CursorExpiredError",
    "FencedError",
    "FloorError",
    "FolderInUseError",
    "ForkedError",
    "IllegalTransitionError",
    "IncompleteAnswerError",
    "InvalidRequestError",
    "LossyTakeoverError",
    "LostManifestError",
    "NodeInUseError",
    "NotFoundError",
    "OffsetMismatchError",
    "OffsetsReusedError",
    "OwnershipError",
    "PermissionDeniedError",
    "RateLimitedError",
    "ReadOnlyError",
    "RequestTooLargeError",
    "StoreRefusedError",
    "StoreTimeoutError",
    "StoreUnavailableError",
    "TierdexError",
    "UnavailableError",
    "UnsupportedFormatError",
]


class TierdexError(Exception):
    """The root of every error that Tierdex raises on purpose."""


class InvalidRequestError(TierdexError):
    """The call is wrong; nothing of it was applied.

    `field` names the wrong value as the caller wrote it, e.g. ``entries[17].offset``.
    """

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field
        self.detail = message


class CursorExpiredError(InvalidRequestError):
    """The files behind the cursor were merged or expired too far: start the query again."""


class RequestTooLargeError(InvalidRequestError):
    """The body, batch or number of lookups is above the limit: send less at once."""


class NotFoundError(TierdexError):
    """There is no such object, file or node. Never raised for a key: its answer is empty."""


class AuthenticationError(TierdexError):
    """No key, or an unknown one; no token, or one that is not valid."""


class PermissionDeniedError(TierdexError):
    """The caller's rights do not cover the request: its scope, or the topic."""


def raised_anew(error: TierdexError) -> TierdexError:
    """Return the same error as a new object, to be raised once more: tracebacks add up."""
    again = type(error).__new__(type(error), *error.args)
    again.__dict__.update(error.__dict__)
    return again


class UnavailableError(TierdexError):
    """Nothing was applied or acknowledged; the same call may succeed later."""

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class RateLimitedError(UnavailableError):
    """The caller makes more requests than it may; nothing was looked at: go on after `retry_after_s`."""


class BacklogFullError(UnavailableError):
    """The disk, or the budget for files that wait for the store, is full."""


class StoreUnavailableError(UnavailableError):
    """The object store cannot be reached, or answers that it is overloaded."""


class StoreTimeoutError(StoreUnavailableError):
    """No answer in time; the request may have taken effect."""


class IncompleteAnswerError(UnavailableError):
    """A lookup with ``on_error="fail"`` could not read every file; `missing` tells which and why."""

    def __init__(
        self, message: str, *, missing: Sequence[object] = (), retry_after_s: float = 1.0
    ) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.missing = list(missing)

    @classmethod
    def too_old(cls, missing: Sequence[tuple[str, str]]) -> Self:
        """Return the error for nodes (and why) that make an answer older than was asked for."""
        names = ", ".join(f"{name} ({reason})" for name, reason in missing[:3])
        return cls(f"older than asked for: {names}", missing=missing)


class StoreRefusedError(TierdexError):
    """The store refused in a way that no retry changes (credentials, bucket, conditions)."""


class OwnershipError(TierdexError):
    """Another owner has the folder or the node, or this index only reads."""


class FolderInUseError(OwnershipError):
    """Another process writes in the data folder; `holder` names it."""

    def __init__(self, message: str, *, holder: str = "") -> None:
        super().__init__(message)
        self.holder = holder


class NodeInUseError(OwnershipError):
    """Another folder or process owns the node and has a recent heartbeat."""

    def __init__(self, message: str, *, node: str = "") -> None:
        super().__init__(message)
        self.node = node


class FencedError(OwnershipError):
    """A newer owner took the node over. The older one only answers: it puts and deletes nothing."""


class LossyTakeoverError(OwnershipError):
    """The log's node was not handed over, and what its owner acknowledged may lie on its disk alone.

    Nothing was done. Open it with the old data folder; or with ``takeover="lossy"``, where what was not
    published is given up, and its offsets are given anew under a higher generation.
    """

    def __init__(self, message: str, *, node: str = "") -> None:
        super().__init__(message)
        self.node = node


class ReadOnlyError(OwnershipError):
    """The index was opened read-only."""


class ForkedError(OwnershipError):
    """The index, or store, was opened by the parent of this process; nothing was done."""


class ConflictError(TierdexError):
    """A conditional write lost against another writer."""


class AlreadyExistsError(ConflictError):
    """The object exists, and is not our own earlier attempt."""


class FloorError(ConflictError):
    """The object's name lies below the floor of garbage collection: upload it under a fresh name."""


class OffsetMismatchError(ConflictError):
    """`expect_offset` is not the offset that the queue gives next; nothing was appended.

    Everything below `next_offset` has the level that was asked for; `end_offsets` has the end by level.
    """

    def __init__(
        self, message: str, *, next_offset: int = 0, end_offsets: Mapping[str, int] | None = None
    ) -> None:
        super().__init__(message)
        self.next_offset = next_offset
        self.end_offsets = dict(end_offsets or {})


class OffsetsReusedError(ConflictError):
    """A crash took offsets back that this reader had seen, and other messages have them now.

    `offset` is the first of them: what was read from there on is void.
    """

    def __init__(self, message: str, *, offset: int = 0, generation: int = 0) -> None:
        super().__init__(message)
        self.offset = offset
        self.generation = generation


class CorruptFileError(TierdexError):
    """A file's bytes break a rule of its format. No answer uses it; `tierdex verify` tells more."""

    def __init__(self, path: object, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = str(path)
        self.reason = reason


class LostManifestError(CorruptFileError):
    """The store has less of a node than before: manifest objects are lost, or an old copy is back."""


class UnsupportedFormatError(CorruptFileError):
    """The file is of a newer format version, or is not an index file at all."""


class ClosedError(TierdexError):
    """The index was closed; open it again."""


class IllegalTransitionError(AssertionError):
    """A file was moved between states without a transition: a bug of Tierdex."""


def reason_of(error: Exception) -> str:
    """Return why a file could not be read, without its place: what names the file stands beside it."""
    if isinstance(error, CorruptFileError):
        return without_places(error.reason)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return without_places(str(error)) or type(error).__name__


def without_places(text: str) -> str:
    """Return a text in which each path and each URL of a folder or bucket is only its last name.

    Answers go to callers who may know what a file is called, not where this machine keeps it.
    """
    return _PLACE.sub(r"\1", text)


_PLACE: Final = re.compile(
    r"(?<![\w./:-])(?!/(?:v1|healthz|readyz|metrics)\b)"  # the service's own addresses stay
    r"(?:(?:file|s3)://)?/?(?<=/)(?=\S)(?:[^/\n'\":]*/)*([^/\s'\":,;()]*)"
)


FILE_ERRORS: Final = (
    CorruptFileError,
    UnavailableError,
    NotFoundError,
    StoreRefusedError,
    OSError,
)
"""Errors that concern one file: an answer may go on without it, and says so."""
