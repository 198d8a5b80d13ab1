"""Objects in a bucket of an S3-compatible server.

Uses few requests: GET with a range, PUT, PUT with ``If-None-Match: *``, DELETE, list, multipart upload.
It never uses conditions on multipart uploads, ``If-Match`` or conditional deletes, since some servers
ignore them.

* One attempt a call: `RetryingStore` above repeats. Only the parts of a multipart upload are repeated
  here.
* A 412 of `put_if_absent` means that the key is taken, perhaps by an earlier attempt of ours (or of a
  proxy) whose answer was lost. The object is read and compared before AlreadyExistsError is raised.
* The transfer is checked: Content-MD5 up (or boto3's checksums, ``store_checksum``), lengths and ranges
  down. The content is checked by the checksums of the file format.

::

    S3Store -- s3_client (session, errors) -- boto3
       |------ s3_multipart (large objects)
       '------ s3_signer -> s3_get (the lean ranged GET)

Depends on base, s3_client, s3_get, s3_multipart and s3_signer.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import threading
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlencode

from tierdex.errors import AlreadyExistsError, NotFoundError, StoreUnavailableError
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
    is_plain_key,
    read_source,
)
from tierdex.storage_layer.s3_client import connect, date_of_bucket, member_of, translated
from tierdex.storage_layer.s3_get import SignedGet, UnusualGetError, checked_body, range_header
from tierdex.storage_layer.s3_multipart import MultipartUpload
from tierdex.storage_layer.s3_signer import make_lean_get

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer

    from tierdex.clock import Clock
    from tierdex.storage_layer.retrying import RetryPolicy
    from tierdex.storage_layer.s3_client import S3Server


class S3Store:
    """One bucket. Safe to share between threads; makes no request until a verb is called."""

    def __init__(
        self,
        bucket: str,
        server: S3Server,
        *,
        multipart_bytes: int = 64 << 20,
        list_page: int = 1000,
        any_key: bool = False,
        part_retry: RetryPolicy,
        clock: Clock,
    ) -> None:
        """Make the client. With `any_key` objects of users are read.

        Raises StoreRefusedError when boto3, region or profile are missing.
        """
        self._bucket = bucket
        self._server = server
        self._send_md5 = server.checksum == "when_required"
        self._encryption: dict[str, Any] = {}
        if server.kms_key is not None:
            self._encryption = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": server.kms_key}
        self._multipart_bytes = multipart_bytes
        self._list_page = list_page
        self._check_read = check_users_key if any_key else check_key
        self._check_listed = check_users_prefix if any_key else check_prefix
        self._part_retry = part_retry
        self._clock = clock
        self._lock = threading.Lock()
        self._lean_get: SignedGet | None = None
        self._lean_get_is_known = False
        with translated(f"s3://{bucket}"):
            self._session, self._client = connect(server)
        tell_child(self._after_fork)

    def _after_fork(self) -> None:
        """Refuse every call: two processes that share a connection read each other's answers."""
        self._of_parent = (
            self._client,
            self._lean_get,
        )  # kept alive: a child of fork may call no library
        self._client = cast("Any", Refusing(forked_error("store")))
        self._lean_get, self._lean_get_is_known = None, True
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        address = {"endpoint_url": self._server.endpoint_url, "region": self._server.region}
        query = urlencode({name: value for name, value in address.items() if value})
        return f"s3://{self._bucket}{'?' if query else ''}{query}"

    def __repr__(self) -> str:
        return f"S3Store({self.url!r})"

    def get(self, key: str, position: int | None = None, length: int | None = None) -> bytes:
        start, length = check_range(position, length)
        if self._check_read(key) and length == 0:
            return b""
        where = self._where(key)
        with translated(where):
            # On its way to a server a URL may be made plainer (dots, slashes): boto3 knows how to sign those.
            lean_get = self._lean() if is_plain_key(key) else None
            if lean_get is not None:
                with contextlib.suppress(UnusualGetError):
                    return lean_get(key, start, length, where)
            return self._get_by_boto3(key, start, length)

    def put(self, key: str, data: Buffer) -> None:
        body = _as_bytes(data)
        with translated(self._where(check_key(key))):
            self._client.put_object(
                Bucket=self._bucket, Key=key, Body=body, **self._digest(body), **self._encryption
            )

    def put_if_absent(self, key: str, data: Buffer) -> None:
        body = _as_bytes(data)
        try:
            with translated(self._where(check_key(key))):
                self._client.put_object(
                    Bucket=self._bucket,
                    Key=key,
                    Body=body,
                    IfNoneMatch="*",
                    **self._digest(body),
                    **self._encryption,
                )
        except AlreadyExistsError:
            if self._read_for_comparison(key) != body:
                raise

    def upload(self, key: str, source: UploadSource, length: int) -> None:
        if length <= self._multipart_bytes:
            self.put(key, read_source(source, 0, length))
            return
        upload = MultipartUpload(
            self._client,
            self._bucket,
            check_key(key),
            encryption=self._encryption,
            digest=self._digest,
            retry=self._part_retry,
        )
        upload.send(source, length, self._multipart_bytes)

    def delete(self, key: str) -> None:
        with contextlib.suppress(NotFoundError), translated(self._where(check_key(key))):
            self._client.delete_object(Bucket=self._bucket, Key=key)

    def list(self, prefix: str, start_after: str = "") -> Iterator[StoredObject]:
        self._check_listed(prefix)
        where = self._where(prefix)
        for page in self._list_pages(prefix, StartAfter=start_after):
            for entry in page.get("Contents", []):
                key, size = member_of(entry, "Key", where), member_of(entry, "Size", where)
                modified_ms = round(member_of(entry, "LastModified", where).timestamp() * 1000)
                yield StoredObject(key, size, modified_ms)

    def list_folders(self, prefix: str) -> Names:
        check_folder_prefix(prefix)
        where = self._where(prefix)
        return sorted(
            member_of(folder, "Prefix", where)[len(prefix) : -1]
            for page in self._list_pages(prefix, Delimiter="/")
            for folder in page.get("CommonPrefixes", [])
        )

    def head(self, key: str) -> StoredObject:
        with translated(self._where(self._check_read(key))):
            found = self._client.head_object(Bucket=self._bucket, Key=key)
        size = member_of(found, "ContentLength", self._where(key))
        modified_ms = round(member_of(found, "LastModified", self._where(key)).timestamp() * 1000)
        return StoredObject(key, size, modified_ms)

    def time_ms(self) -> int | None:
        with translated(self._where("")):
            return date_of_bucket(self._client, self._bucket)

    def close(self) -> None:
        self._part_retry.close()
        self._client.close()
        if self._lean_get is not None:
            self._lean_get.close()

    # -- one request --------------------------------------------------------------------------------

    def _where(self, key: str) -> str:
        return f"s3://{self._bucket}/{key}"

    def _digest(self, body: bytes) -> dict[str, Any]:
        if not self._send_md5:
            return {}  # boto3 adds a checksum of its own
        digest = hashlib.md5(body, usedforsecurity=False).digest()
        return {"ContentMD5": base64.b64encode(digest).decode()}

    def _get_by_boto3(self, key: str, position: int, length: int | None) -> bytes:
        ranged = bool(position) or length is not None
        answer = self._client.get_object(
            Bucket=self._bucket,
            Key=key,
            **({"Range": range_header(position, length)} if ranged else {}),  # type: ignore[arg-type]
        )
        body = answer["Body"].read()
        return checked_body(
            body,
            position,
            length,
            content_range=answer.get("ContentRange"),
            where=self._where(key),
        )

    def _read_for_comparison(self, key: str) -> bytes:
        try:
            return self.get(key)
        except NotFoundError as error:  # deleted meanwhile: whose it was is not known
            raise StoreUnavailableError(f"{self._where(key)} came and went: try again") from error

    def _list_pages(self, prefix: str, **arguments: str) -> Iterator[Any]:
        arguments = {name: value for name, value in arguments.items() if value}
        while True:
            with translated(self._where(prefix)):
                page = self._client.list_objects_v2(
                    Bucket=self._bucket,
                    Prefix=prefix,
                    MaxKeys=self._list_page,
                    **arguments,  # type: ignore[arg-type]
                )
            # An answer without this member was cut; taken for the end of the list it would hide objects.
            if not member_of(page, "IsTruncated", self._where(prefix)):
                yield page
                return
            arguments["ContinuationToken"] = member_of(
                page, "NextContinuationToken", self._where(prefix)
            )
            yield page

    # -- the lean GET -------------------------------------------------------------------------------

    def _lean(self) -> SignedGet | None:
        """Return the lean GET, made at the first use; None when this bucket needs boto3's own."""
        if not self._lean_get_is_known:
            with self._lock:
                if not self._lean_get_is_known:
                    self._lean_get = make_lean_get(
                        self._session, self._client, self._bucket, self._server, self._clock
                    )
                    self._lean_get_is_known = True
        return self._lean_get


def _as_bytes(data: Buffer) -> bytes:
    return data if isinstance(data, bytes) else bytes(data)
