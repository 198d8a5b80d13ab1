"""The one exception tree, grouped by what the reader of the message should do.

::

    TierdexError
    ├── InvalidRequestError(field)          fix the call: a value, a name, a combination
    │   ├── CursorExpiredError              start the query again without the cursor
    │   └── RequestTooLargeError            send less in one call
    ├── NotFoundError                       there is no such object, file or node
    ├── AuthenticationError                 send a valid key
    ├── PermissionDeniedError               use a key with the scope that the message names
    ├── UnavailableError(retry_after_s)     nothing is lost or applied: try again later
    │   ├── BacklogFullError                the disk budget or the disk is full: free space, or mend the store
    │   ├── StoreUnavailableError           the object store cannot be reached or refuses work
    │   │   └── StoreTimeoutError           ... it did not answer in time: the request may have taken effect
    │   └── IncompleteAnswerError(answer)   on_error="fail": a file that should have been asked could not be
    ├── StoreRefusedError                   the store says no (credentials, bucket): mend the settings
    ├── OwnershipError                      somebody else owns it
    │   ├── FolderInUseError(holder)        another process writes in this data folder
    │   ├── NodeInUseError(node)            its owner is alive: choose another node, or take it over
    │   ├── FencedError                     another owner took the node over: stop, then `tierdex adopt`
    │   ├── ReadOnlyError                   this index was opened read-only
    │   └── ForkedError                     a fork of the process that opened it: open your own here
    ├── ConflictError                       a conditional write lost
    │   ├── AlreadyExistsError              ... since the object is there already
    │   └── FloorError                      the object was named too long ago: upload it under a fresh name
    ├── CorruptFileError(path, reason)      run `tierdex verify`; the file is named in `missing`
    │   ├── LostManifestError               restore the manifest, or open with `--accept-rollback`
    │   └── UnsupportedFormatError          the file is newer than this program, or not ours: upgrade
    └── ClosedError                         the index was closed

Programmer errors are AssertionError and IllegalTransitionError. Depends on nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    "LostManifestError",
    "NodeInUseError",
    "NotFoundError",
    "OwnershipError",
    "PermissionDeniedError",
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
    """Root of every error that Tierdex raises on purpose."""


class InvalidRequestError(TierdexError):
    """The call is wrong; nothing of it was applied.

    `field` names the offending value as the caller wrote it, e.g. ``entries[17].offset``.
    """

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field
        self.detail = message


class CursorExpiredError(InvalidRequestError):
    """The cursor's file was merged or expired beyond what can be bridged: start again."""


class RequestTooLargeError(InvalidRequestError):
    """The body, batch or number of lookups is above the limit: send less at once."""


class NotFoundError(TierdexError):
    """There is no such object, file or node. Never raised for a key: an absent key is an empty answer."""


class AuthenticationError(TierdexError):
    """No key, or one that nobody knows."""


class PermissionDeniedError(TierdexError):
    """The key is known, its scope does not cover the request."""


class UnavailableError(TierdexError):
    """Nothing was applied or acknowledged; the same call may succeed later."""

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class BacklogFullError(UnavailableError):
    """The disk, or the budget for files that wait for the store, is full."""


class StoreUnavailableError(UnavailableError):
    """The object store cannot be reached, or answers that it is overloaded."""


class StoreTimeoutError(StoreUnavailableError):
    """No answer in time; whether the request took effect is not known."""


class IncompleteAnswerError(UnavailableError):
    """A lookup with ``on_error="fail"`` could not ask every file; `missing` says which and why."""

    def __init__(
        self, message: str, *, missing: Sequence[object] = (), retry_after_s: float = 1.0
    ) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.missing = list(missing)


class StoreRefusedError(TierdexError):
    """The store answered with a refusal that a retry cannot mend (credentials, bucket, conditions)."""


class OwnershipError(TierdexError):
    """Somebody else owns the folder or the node, or this side only reads."""


class FolderInUseError(OwnershipError):
    """Another process writes in the data folder; `holder` says which."""

    def __init__(self, message: str, *, holder: str = "") -> None:
        super().__init__(message)
        self.holder = holder


class NodeInUseError(OwnershipError):
    """Another folder or process owns the node and is, for all that the store tells, alive."""

    def __init__(self, message: str, *, node: str = "") -> None:
        super().__init__(message)
        self.node = node


class FencedError(OwnershipError):
    """A newer owner took the node over. This one stops putting, keeps answering, deletes nothing."""


class ReadOnlyError(OwnershipError):
    """The index was opened read-only."""


class ForkedError(OwnershipError):
    """The index, or store, was opened by this process' parent before it forked; nothing was done."""


class ConflictError(TierdexError):
    """A conditional write lost against another writer."""


class AlreadyExistsError(ConflictError):
    """The object exists, and it is not our own earlier attempt."""


class FloorError(ConflictError):
    """The object's name lies below the floor of garbage collection: upload again under a fresh one."""


class CorruptFileError(TierdexError):
    """A file's bytes break a rule of its format. It is never answered from; `tierdex verify` says more."""

    def __init__(self, path: object, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = str(path)
        self.reason = reason


class LostManifestError(CorruptFileError):
    """The store knows less of a node than it once did: manifest objects are gone, or an old copy is back."""


class UnsupportedFormatError(CorruptFileError):
    """The file is of a newer format version, or is not an index file at all."""


class ClosedError(TierdexError):
    """The index was closed; open it again."""


class IllegalTransitionError(AssertionError):
    """A file was moved between two states that the transition table does not join: a bug of ours."""
