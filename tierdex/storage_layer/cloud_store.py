"""Objects in a bucket of Google Cloud Storage, or in a container of Azure, through obstore.

`gcs` and `azure` make the clients; the verbs are the same for both. What obstore leaves to its caller:

* One attempt a call: `RetryingStore` above repeats. A repeated create comes back as "taken" after its own
  lost success, so that `put_if_absent` compares what is there. The client repeats the parts of an upload.
* A range that ends behind the object comes back short, without an error: lengths are compared.
* A prefix means whole folders, and Azure's list may begin before `start_after`: the list is filtered.
* A cut connection, a timeout, 500 and 503 are one kind of error there; after one of a PUT the object may be
  written, as the contract says.
* A child of fork would hang for ever in the client's threads: every call is refused there.
* It shows no date of an answer: `time_ms` asks the service's address, which needs no rights.

Depends on base, errors, fork and obstore.
"""

from __future__ import annotations

import contextlib
from datetime import timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import httpx2

from tierdex.errors import (
    AlreadyExistsError,
    CorruptFileError,
    NotFoundError,
    StoreRefusedError,
    StoreTimeoutError,
    StoreUnavailableError,
)
from tierdex.fork import Refusing, forked_error, tell_child
from tierdex.storage_layer.base import (
    Names,
    StoredObject,
    UploadSource,
    check_folder_prefix,
    check_key,
    check_prefix,
    check_range,
    check_users_key,
    check_users_prefix,
    range_beyond_end,
    read_source,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typing_extensions import Buffer

    from tierdex.settings import Settings

PART_BYTES: Final = 8 << 20
_PARTS_AT_ONCE: Final = 4
_SLOWEST: Final = 128 << 10  # bytes a second that a store must bring
_LARGEST: Final = 64 << 20  # bytes of one answer, of a page or a part
_TEXT: Final = 300  # characters of obstore's text that an error shows
_BEHIND_END: Final = ("416", "Requested range", "InvalidRange")
_TIMED_OUT: Final = ("timed out", "TimedOut")


class Bucket(NamedTuple):
    """What `gcs` and `azure` make: clients of one bucket, and how it is called."""

    client: Any  # of one attempt
    upload_client: Any  # of parts, which may be sent again
    url: str  # without parameters: gs://BUCKET
    shown_url: str
    address: str  # of the service


class CloudStore:
    """One bucket or container. Safe to share between threads; makes no request until a verb is called."""

    def __init__(
        self, bucket: Bucket, *, multipart_bytes: int, timeout_s: float, any_key: bool = False
    ) -> None:
        """With `any_key` objects of users are read."""
        import obstore

        self._verbs: Any = obstore
        self._bucket = bucket
        self._multipart_bytes = multipart_bytes
        self._timeout_s = timeout_s
        self._check_read = check_users_key if any_key else check_key
        self._check_listed = check_users_prefix if any_key else check_prefix
        tell_child(self._after_fork)

    def _after_fork(self) -> None:
        self._of_parent = self._bucket  # kept alive: the child must not end its threads
        self._verbs = cast("Any", Refusing(forked_error("store")))

    @property
    def url(self) -> str:
        return self._bucket.shown_url

    def __repr__(self) -> str:
        return f"CloudStore({self.url!r})"

    def get(self, key: str, position: int | None = None, length: int | None = None) -> bytes:
        start, length = check_range(position, length)
        if self._check_read(key) and length == 0:
            return b""
        where, client = self._where(key), self._bucket.client
        with translated(where):
            if length is not None:
                body = bytes(self._verbs.get_range(client, key, start=start, length=length))
            else:
                options = {"range": {"offset": start}} if start else {}
                body = bytes(self._verbs.get(client, key, options=options).bytes())
        if length is not None and len(body) != length:
            raise range_beyond_end(where, start, length, start + len(body))
        return body

    def put(self, key: str, data: Buffer) -> None:
        with self._in_bucket(check_key(key)):
            self._verbs.put(self._bucket.client, key, bytes(data), use_multipart=False)

    def put_if_absent(self, key: str, data: Buffer) -> None:
        body = bytes(data)
        try:
            with self._in_bucket(check_key(key)):
                self._verbs.put(self._bucket.client, key, body, mode="create")
        except AlreadyExistsError:
            try:
                there = self.get(key)
            except NotFoundError as error:  # deleted meanwhile: whose it was is not known
                raise StoreUnavailableError(
                    f"{self._where(key)} came and went: try again"
                ) from error
            if there != body:
                raise

    def upload(self, key: str, source: UploadSource, length: int) -> None:
        if length <= self._multipart_bytes:
            self.put(key, read_source(source, 0, length))
            return

        def parts() -> Iterator[bytes]:
            for position in range(0, length, PART_BYTES):
                yield read_source(source, position, min(PART_BYTES, length - position))

        with self._in_bucket(
            check_key(key)
        ):  # an error of the source ends the upload, and comes out as it is
            self._verbs.put(
                self._bucket.upload_client, key, parts(),
                chunk_size=PART_BYTES, max_concurrency=_PARTS_AT_ONCE,
            )  # fmt: skip

    def delete(self, key: str) -> None:
        with contextlib.suppress(NotFoundError), translated(self._where(check_key(key))):
            self._verbs.delete(self._bucket.client, key)

    def list(self, prefix: str, start_after: str = "") -> Iterator[StoredObject]:
        self._check_listed(prefix)
        folder = prefix.rpartition("/")[0]
        with self._in_bucket(prefix):
            pages = self._verbs.list(
                self._bucket.client, prefix=folder or None, offset=start_after or None
            )
            for page in pages:
                for found in page:
                    if found["path"].startswith(prefix) and found["path"] > start_after:
                        yield _stored(found)

    def list_folders(self, prefix: str) -> Names:
        check_folder_prefix(prefix)
        with self._in_bucket(prefix):
            found = self._verbs.list_with_delimiter(
                self._bucket.client, prefix=prefix.rstrip("/") or None
            )
        return sorted(name.rstrip("/").rpartition("/")[2] for name in found["common_prefixes"])

    def head(self, key: str) -> StoredObject:
        with translated(self._where(self._check_read(key))):
            return _stored(self._verbs.head(self._bucket.client, key))

    def time_ms(self) -> int | None:
        try:
            answer = httpx2.head(self._bucket.address, timeout=self._timeout_s)
        except httpx2.TimeoutException as error:
            raise StoreTimeoutError(f"{self._bucket.address}: {error}") from error
        except httpx2.HTTPError as error:
            raise StoreUnavailableError(f"{self._bucket.address}: {error}") from error
        date = answer.headers.get("date")
        return None if date is None else round(parsedate_to_datetime(date).timestamp() * 1000)

    def close(self) -> None:
        """Do nothing: obstore's connections end with its clients."""

    def _where(self, key: str) -> str:
        return f"{self._bucket.url}/{key}"

    @contextlib.contextmanager
    def _in_bucket(self, key: str) -> Iterator[None]:
        """Translate the errors of a write or a list: what is not there is the bucket, never the object."""
        try:
            with translated(self._where(key)):
                yield
        except NotFoundError as error:
            raise StoreRefusedError(
                f"{self._bucket.url} does not exist: create it, or correct the store's url"
            ) from error


def make_clients(
    make: Callable[..., Any], settings: Settings, endpoint: str | None
) -> tuple[Any, Any]:
    """Return a client of one attempt, and one for the parts of uploads, which are sent again.

    `make` takes `client_options` and `retry_config` of obstore. Raises StoreRefusedError for bad credentials.
    """
    whole_s = settings.store_timeout + _LARGEST / _SLOWEST
    options = {
        "timeout": timedelta(seconds=whole_s),
        "read_timeout": timedelta(seconds=settings.store_timeout),
        "connect_timeout": timedelta(seconds=settings.store_timeout),
        "allow_http": endpoint is not None and endpoint.startswith("http://"),
    }
    once = {"max_retries": 0, "retry_timeout": timedelta(seconds=whole_s)}
    often = {**once, "max_retries": max(0, settings.store_attempts - 1)}
    from obstore.exceptions import BaseError

    try:
        return tuple(make(client_options=options, retry_config=each) for each in (once, often))
    except BaseError as error:
        raise StoreRefusedError(f"the store's credentials: {str(error)[:300]}") from error


@contextlib.contextmanager
def translated(where: str) -> Iterator[None]:
    """Turn obstore's errors into ours; the unnamed ones are told apart by their text."""
    from obstore import exceptions as refused

    try:
        yield
    except (refused.NotFoundError, FileNotFoundError) as error:
        raise NotFoundError(where) from error
    except (refused.AlreadyExistsError, refused.PreconditionError) as error:
        raise AlreadyExistsError(where) from error
    except (refused.PermissionDeniedError, refused.UnauthenticatedError) as error:
        raise StoreRefusedError(f"{where}: {str(error)[:_TEXT]}") from error
    except refused.BaseError as error:
        text = str(error)
        if any(each in text for each in _TIMED_OUT):
            raise StoreTimeoutError(f"{where}: {text[:_TEXT]}") from error
        if any(each in text for each in _BEHIND_END):
            raise CorruptFileError(where, "the range lies behind its end") from error
        raise StoreUnavailableError(f"{where}: {text[:_TEXT]}") from error


def _stored(found: Any) -> StoredObject:
    modified_ms = round(found["last_modified"].timestamp() * 1000)
    return StoredObject(found["path"], found["size"], modified_ms)
