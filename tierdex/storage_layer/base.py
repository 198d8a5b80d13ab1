"""The contract of a store: bytes by key, the same promises from every backend and wrapper.

::

    MeteredStore > RetryingStore > the counter > PrefixedStore > S3Store | LocalStore | MemoryStore

A *key* of ours is a relative path of plain characters: segments of ``A-Z a-z 0-9 . _ = -`` joined by ``/``,
no segment starting with a dot, at most 900 characters. Objects of users (`open_objects`) are read
alone, and have any key that S3 allows. Folders are no objects: a folder exists as long as an object lies
below it.

What each verb promises:

* atomic    -- a reader sees an object whole or not at all, also when the writer dies
* durable   -- an object survives, once `put`, `put_if_absent` or `upload` has returned, the failures that
               the store survives; after an error the request may have taken effect, or may still
* typed     -- only errors of `tierdex.errors` come out:
               `NotFoundError` · `AlreadyExistsError` · `StoreTimeoutError` and `StoreUnavailableError`
               (try again) · `StoreRefusedError` (correct the settings) · `CorruptFileError` (the object is
               shorter than the range asked for) · `InvalidRequestError` (the key)

Every method is safe to call from many threads. Depends on errors only.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from tierdex.errors import CorruptFileError, InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer

MAX_KEY_CHARACTERS = 900
_USERS_KEY_BYTES = 1024
_SEGMENT = r"[A-Za-z0-9_=-][A-Za-z0-9._=-]*"
_KEY = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*")
_PREFIX = re.compile(rf"(?:{_SEGMENT}/)*(?:{_SEGMENT})?")


Names: TypeAlias = list[str]  # a method called `list` hides the builtin


class StoredObject(NamedTuple):
    """One object, as a listing or `head` shows it.

    `size` in bytes; `modified_ms` is the store's own wall time of the last write, in milliseconds,
    perhaps cut to whole seconds.
    """

    key: str
    size: int
    modified_ms: int


class UploadSource(Protocol):
    """The bytes of an upload; an `OpenFile` is one."""

    def read_at(self, position: int, length: int) -> bytes:
        """Return up to `length` bytes; fewer only at the end."""
        ...


class Store(Protocol):
    """Bytes by key. The module's docstring has the promises of all verbs."""

    @property
    def url(self) -> str:
        """The store's URL as a user would write it, without credentials."""
        ...

    def get(self, key: str, position: int | None = None, length: int | None = None) -> bytes:
        """Return the object's bytes, whole or exactly [position, position + length).

        Without `length`, to the end of the object; a `length` of 0 sends no request. Never returns
        fewer bytes: raises CorruptFileError when the object ends before the range does (or begins
        after it), NotFoundError when there is no object.
        """
        ...

    def put(self, key: str, data: Buffer) -> None:
        """Write the object; replace an earlier one."""
        ...

    def put_if_absent(self, key: str, data: Buffer) -> None:
        """Write the object unless the key is taken: of many writers exactly one succeeds.

        Raises AlreadyExistsError when other bytes are there. Equal bytes count as an earlier
        attempt of the same caller whose answer was lost, and as success; so put something unique in
        them.
        """
        ...

    def upload(self, key: str, source: UploadSource, length: int) -> None:
        """Write `length` bytes of `source` as the object, without holding all of them in memory.

        Atomic like `put`. Raises CorruptFileError when the source ends early.
        """
        ...

    def delete(self, key: str) -> None:
        """Remove the object; an absent one is fine."""
        ...

    def list(self, prefix: str, start_after: str = "") -> Iterator[StoredObject]:
        """Yield the objects whose key starts with `prefix` and is above `start_after`, in key order.

        Objects that are created or deleted meanwhile may or may not be in it.
        """
        ...

    def list_folders(self, prefix: str) -> Names:
        """Return the sorted names (one segment, no slash) of the folders right below `prefix`.

        `prefix` is empty or ends with a slash.
        """
        ...

    def head(self, key: str) -> StoredObject:
        """Return the object as a listing shows it. Raises NotFoundError."""
        ...

    def time_ms(self) -> int | None:
        """Return the store's own wall time (ms), perhaps cut to whole seconds; None when it tells none.

        It is the time of the store's answer, thus past when it arrives: never ahead of the store's clock.
        """
        ...

    def close(self) -> None:
        """Close the connections and end waits between attempts; no call may follow."""
        ...


def check_key(key: str) -> str:
    """Return `key` if it is a legal one. Raises InvalidRequestError."""
    if not is_plain_key(key):
        raise InvalidRequestError(
            f"{key[:100]!r} is not a relative path of letters, digits and . _ = -", field="key"
        )
    return key


def check_users_key(key: str) -> str:
    """Return `key` if S3 allows it: any text of so many bytes. Raises InvalidRequestError."""
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        size = 0
    if not 1 <= size <= _USERS_KEY_BYTES:
        raise InvalidRequestError(
            f"{key[:100]!r} is not 1 to {_USERS_KEY_BYTES} bytes of UTF-8", field="key"
        )
    return key


def check_users_prefix(prefix: str) -> str:
    """Return `prefix` if keys of users' objects can start with it. Raises InvalidRequestError."""
    return check_users_key(prefix) if prefix else prefix


def is_plain_key(key: str) -> bool:
    """Return whether a key is one that we would make."""
    return len(key) <= MAX_KEY_CHARACTERS and _KEY.fullmatch(key) is not None


def check_prefix(prefix: str) -> str:
    """Return `prefix` if keys can start with it. Raises InvalidRequestError."""
    if len(prefix) > MAX_KEY_CHARACTERS or _PREFIX.fullmatch(prefix) is None:
        raise InvalidRequestError(f"no key starts with {prefix[:100]!r}", field="prefix")
    return prefix


def check_folder_prefix(prefix: str) -> str:
    """Return `prefix` if it names a folder (or nothing). Raises InvalidRequestError."""
    if prefix and not prefix.endswith("/"):
        raise InvalidRequestError(f"{prefix[:100]!r} does not end with a slash", field="prefix")
    return check_prefix(prefix)


def check_range(position: int | None, length: int | None) -> tuple[int, int | None]:
    """Return (position, length) with an absent position as 0; a negative number is a bug of ours."""
    position = position or 0
    assert position >= 0, position
    assert length is None or length >= 0, length
    return position, length


def range_beyond_end(
    where: str, position: int, length: int | None, size: int | None = None
) -> CorruptFileError:
    """Return the error for a range beyond the end of the object."""
    asked = f"[{position}, {'end' if length is None else position + length})"
    held = "it is shorter" if size is None else f"it holds {size} bytes"
    return CorruptFileError(where, f"bytes {asked} were asked for and {held}")


def read_source(source: UploadSource, position: int, length: int) -> bytes:
    """Return exactly `length` bytes of an upload's source. Raises CorruptFileError."""
    data = source.read_at(position, length)
    if len(data) != length:
        raise range_beyond_end("the source of an upload", position, length, position + len(data))
    return data
