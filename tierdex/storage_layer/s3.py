"""Objects in a bucket of an S3-compatible server. The only file that imports boto3 and botocore.

Relies on little: GET with a range, PUT, PUT with ``If-None-Match: *``, DELETE, list, multipart upload.
Conditions on multipart uploads, ``If-Match`` and conditional deletes are used nowhere: servers that are
otherwise sound ignore them.

* One attempt a call: `RetryingStore` above repeats, so botocore is told not to. Only the parts of a
  multipart upload are repeated here, since beginning a large file again for one lost part costs too much.
* Own write after a lost answer: a 412 means that the key is taken, perhaps by an earlier attempt of ours
  (or of a proxy); the object is read and compared before AlreadyExistsError is raised.
* Bytes are checked on their way: Content-MD5 up (or boto3's checksums, ``store_checksum``), lengths and
  ranges down; what they mean is checked by the format's own checksums.
* Credentials come from the caller or the usual AWS chain and go nowhere else: not into urls, messages, logs.

boto3 is imported when a store is made, not with this module. Depends on base, s3_errors, s3_get, retrying.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import logging
import os
import threading
import urllib.request
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import parse_qs, urlencode, urlsplit

from tierdex.errors import (
    AlreadyExistsError,
    NotFoundError,
    StoreRefusedError,
    StoreTimeoutError,
    StoreUnavailableError,
    TierdexError,
)
from tierdex.storage_layer.base import (
    Names,
    Source,
    StoredObject,
    check_folder_prefix,
    check_key,
    check_prefix,
    check_range,
    read_source,
)
from tierdex.storage_layer.s3_errors import Refusal, error_of, parse_retry_after
from tierdex.storage_layer.s3_get import SignedGet, UnusualGetError, checked_body, range_header

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mypy_boto3_s3 import S3Client
    from typing_extensions import Buffer

    from tierdex.clock import Clock
    from tierdex.storage_layer.credentials import Credentials
    from tierdex.storage_layer.retrying import RetryPolicy

DEFAULT_REGION = "us-east-1"  # what servers other than AWS expect when nobody names one
MAX_PARTS = 10_000
_SAMPLE_KEY = "sample"


class S3Store:
    """One bucket. Safe to share between threads; makes no request until a verb is called."""

    def __init__(
        self,
        bucket: str,
        *,
        endpoint_url: str | None = None,
        region: str | None = None,
        timeout_s: float = 10.0,
        pool: int = 16,
        checksum: Literal["when_supported", "when_required"] = "when_required",
        multipart_bytes: int = 64 << 20,
        list_page: int = 1000,
        part_retry: RetryPolicy,
        clock: Clock,
        credentials: Credentials | None = None,
    ) -> None:
        """Make the client. Raises StoreRefusedError when boto3, region or profile are missing."""
        self._bucket = bucket
        self._address = {
            name: value
            for name, value in (("endpoint_url", endpoint_url), ("region", region))
            if value
        }
        self._timeout_s = timeout_s
        self._pool = pool
        self._send_md5 = checksum == "when_required"
        self._multipart_bytes = multipart_bytes
        self._list_page = list_page
        self._part_retry = part_retry
        self._clock = clock
        self._lock = threading.Lock()
        self._lean_get: SignedGet | None = None
        self._lean_get_is_known = False
        with _translated(f"s3://{bucket}"):
            self._session, self._client = _connect(
                endpoint_url,
                region,
                timeout_s=timeout_s,
                pool=pool,
                checksum=checksum,
                credentials=credentials,
            )

    @property
    def url(self) -> str:
        query = f"?{urlencode(self._address)}" if self._address else ""
        return f"s3://{self._bucket}{query}"

    def __repr__(self) -> str:
        return f"S3Store({self.url!r})"

    def get(self, key: str, position: int | None = None, length: int | None = None) -> bytes:
        start, length = check_range(position, length)
        if check_key(key) and length == 0:
            return b""
        where = self._where(key)
        with _translated(where):
            lean_get = self._lean()
            if lean_get is not None:
                with contextlib.suppress(UnusualGetError):
                    return lean_get(key, start, length, where)
            return self._get_by_boto3(key, start, length)

    def put(self, key: str, data: Buffer) -> None:
        body = _as_bytes(data)
        with _translated(self._where(check_key(key))):
            self._client.put_object(Bucket=self._bucket, Key=key, Body=body, **self._digest(body))

    def put_if_absent(self, key: str, data: Buffer) -> None:
        body = _as_bytes(data)
        try:
            with _translated(self._where(check_key(key))):
                self._client.put_object(
                    Bucket=self._bucket,
                    Key=key,
                    Body=body,
                    IfNoneMatch="*",
                    **self._digest(body),
                )
        except AlreadyExistsError:
            if self._read_for_comparison(key) != body:
                raise

    def upload(self, key: str, source: Source, length: int) -> None:
        if length <= self._multipart_bytes:
            self.put(key, read_source(source, 0, length))
            return
        where = self._where(check_key(key))
        with _translated(where):
            begun = self._client.create_multipart_upload(Bucket=self._bucket, Key=key)
        upload = _Upload(key, _member(begun, "UploadId", where))
        try:
            self._upload_parts(upload, source, length)
        except BaseException as error:
            # Parts of an upload that nobody ends are stored, and paid for, until a bucket rule drops them.
            try:
                with _translated(where):
                    self._client.abort_multipart_upload(
                        Bucket=self._bucket, Key=key, UploadId=upload.id
                    )
            except TierdexError as abort_error:
                error.add_note(f"the upload could not be aborted either: {abort_error}")
            raise

    def delete(self, key: str) -> None:
        with contextlib.suppress(NotFoundError), _translated(self._where(check_key(key))):
            self._client.delete_object(Bucket=self._bucket, Key=key)

    def list(self, prefix: str, start_after: str = "") -> Iterator[StoredObject]:
        check_prefix(prefix)
        for page in self._list_pages(prefix, StartAfter=start_after):
            for entry in page.get("Contents", []):
                modified_ms = round(entry["LastModified"].timestamp() * 1000)
                yield StoredObject(entry["Key"], entry["Size"], modified_ms)

    def list_folders(self, prefix: str) -> Names:
        check_folder_prefix(prefix)
        return sorted(
            folder["Prefix"][len(prefix) : -1]
            for page in self._list_pages(prefix, Delimiter="/")
            for folder in page.get("CommonPrefixes", [])
        )

    def head(self, key: str) -> StoredObject:
        with _translated(self._where(check_key(key))):
            found = self._client.head_object(Bucket=self._bucket, Key=key)
        size = _member(found, "ContentLength", self._where(key))
        modified_ms = round(_member(found, "LastModified", self._where(key)).timestamp() * 1000)
        return StoredObject(key, size, modified_ms)

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
        except NotFoundError as error:  # deleted since it was in our way: there is no answer yet
            raise StoreUnavailableError(f"{self._where(key)} came and went: try again") from error

    def _upload_parts(self, upload: _Upload, source: Source, length: int) -> None:
        part_bytes = max(self._multipart_bytes, -(-length // MAX_PARTS))
        for position in range(0, length, part_bytes):
            data = read_source(source, position, min(part_bytes, length - position))
            upload.tags.append(self._part_retry.call(self._upload_part, upload, data))
        parts = [{"PartNumber": n, "ETag": tag} for n, tag in enumerate(upload.tags, 1)]
        with _translated(self._where(upload.key)):
            self._client.complete_multipart_upload(
                Bucket=self._bucket,
                Key=upload.key,
                UploadId=upload.id,
                MultipartUpload={"Parts": parts},  # type: ignore[typeddict-item]
            )

    def _upload_part(self, upload: _Upload, data: bytes) -> str:
        where = self._where(upload.key)
        with _translated(where):
            done = self._client.upload_part(
                Bucket=self._bucket,
                Key=upload.key,
                UploadId=upload.id,
                PartNumber=len(upload.tags) + 1,
                Body=data,
                **self._digest(data),
            )
        tag: str = _member(done, "ETag", where)
        return tag

    def _list_pages(self, prefix: str, **arguments: str) -> Iterator[Any]:
        arguments = {name: value for name, value in arguments.items() if value}
        while True:
            with _translated(self._where(prefix)):
                page = self._client.list_objects_v2(
                    Bucket=self._bucket,
                    Prefix=prefix,
                    MaxKeys=self._list_page,
                    **arguments,  # type: ignore[arg-type]
                )
            # Without this member the answer was cut: taken for an end it would hide objects.
            if not _member(page, "IsTruncated", self._where(prefix)):
                yield page
                return
            arguments["ContinuationToken"] = _member(
                page, "NextContinuationToken", self._where(prefix)
            )
            yield page

    # -- the lean GET -------------------------------------------------------------------------------

    def _lean(self) -> SignedGet | None:
        """Return the lean GET, made at the first use; none where boto3 has to do it."""
        if not self._lean_get_is_known:
            with self._lock:
                if not self._lean_get_is_known:
                    self._lean_get = self._make_lean_get()
                    self._lean_get_is_known = True
        return self._lean_get

    def _make_lean_get(self) -> SignedGet | None:
        """Learn address, region and service from a url that boto3 signs itself; no request is sent."""
        import botocore.auth
        import botocore.awsrequest
        import botocore.httpsession

        credentials = self._session.get_credentials()
        if credentials is None or self._bucket.endswith("--x-s3"):  # those have their own sessions
            return None
        signed_url = self._client.generate_presigned_url(
            "get_object", Params={"Bucket": self._bucket, "Key": _SAMPLE_KEY}
        )
        parts = urlsplit(signed_url)
        scope = parse_qs(parts.query).get("X-Amz-Credential", [""])[0].split("/")
        host = parts.hostname or ""
        proxied = parts.scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(
            host
        )
        if len(scope) != 5 or proxied or not parts.path.endswith(f"/{_SAMPLE_KEY}"):
            return None
        _, _, region, service, _ = scope

        def sign(url: str, headers: dict[str, str]) -> Mapping[str, str]:
            request = botocore.awsrequest.AWSRequest(method="GET", url=url, headers=headers)
            signer = botocore.auth.S3SigV4Auth(
                credentials.get_frozen_credentials(), service, region
            )
            signer.add_auth(request)
            return dict(request.headers.items())

        ca_bundle = self._session._session.get_config_variable("ca_bundle")
        return SignedGet(
            f"{parts.scheme}://{parts.netloc}{parts.path.removesuffix(_SAMPLE_KEY)}",
            sign,
            timeout_s=self._timeout_s,
            pool=self._pool,
            ca_certs=ca_bundle or botocore.httpsession.get_cert_path(True),
            clock=self._clock,
        )


class _Upload:
    """A multipart upload under way: its id, and the tags of the parts that arrived."""

    def __init__(self, key: str, upload_id: str) -> None:
        self.key = key
        self.id = upload_id
        self.tags: list[str] = []


def _member(answer: Any, name: str, where: str) -> Any:
    """Return a part that every whole answer has. Raises StoreUnavailableError for one that was cut."""
    if name not in answer:
        raise StoreUnavailableError(f"{where}: the answer was cut: it has no {name}")
    return answer[name]


def _as_bytes(data: Buffer) -> bytes:
    return data if isinstance(data, bytes) else bytes(data)


def _connect(
    endpoint_url: str | None,
    region: str | None,
    *,
    timeout_s: float,
    pool: int,
    checksum: Literal["when_supported", "when_required"],
    credentials: Credentials | None,
) -> tuple[Any, S3Client]:
    """Return a session and its client; reads configuration, sends nothing."""
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        raise StoreRefusedError(
            "s3:// needs boto3: install it with `pip install 'tierdex[s3]'`"
        ) from error
    logger = logging.getLogger("botocore")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)  # its DEBUG lines hold signatures and session tokens
    session = boto3.session.Session(
        aws_access_key_id=credentials.access_key if credentials else None,
        aws_secret_access_key=credentials.secret_key if credentials else None,
        aws_session_token=credentials.session_token if credentials else None,
    )
    endpoint_url = endpoint_url or os.environ.get("AWS_ENDPOINT_URL_S3")
    endpoint_url = endpoint_url or os.environ.get("AWS_ENDPOINT_URL") or None
    region = region or os.environ.get("AWS_REGION") or session.region_name or DEFAULT_REGION
    config = Config(
        connect_timeout=timeout_s,
        read_timeout=timeout_s,
        max_pool_connections=pool,
        retries={"total_max_attempts": 1, "mode": "standard"},
        # Names in a host name want DNS for every bucket, which only AWS has.
        s3={"addressing_style": "path" if endpoint_url else "auto"},
        signature_version="s3v4",
        request_checksum_calculation=checksum,
        response_checksum_validation=checksum,
    )
    return session, session.client(
        "s3", endpoint_url=endpoint_url, region_name=region, config=config
    )


@contextlib.contextmanager
def _translated(where: str) -> Iterator[None]:
    """Turn whatever botocore, urllib3 or a socket raises into an error of our tree."""
    try:
        yield
    except TierdexError:
        raise
    except Exception as error:
        ours = translate(error, where)
        if ours is None:
            raise
        raise ours from error


def translate(error: Exception, where: str) -> TierdexError | None:
    """Return our error for one of botocore, urllib3 or a socket; None for anything else (a bug)."""
    import urllib3.exceptions
    from botocore import exceptions as boto

    if isinstance(error, boto.ClientError):
        answer = error.response.get("ResponseMetadata", {})
        said = error.response.get("Error", {})
        refusal = Refusal(
            int(answer.get("HTTPStatusCode", 0)),
            str(said.get("Code", "")),
            str(said.get("Message", "")),
            parse_retry_after(answer.get("HTTPHeaders", {}).get("retry-after")),
        )
        return error_of(refusal, where)
    what = f"{where}: {type(error).__name__}"
    timeouts = (boto.ConnectTimeoutError, boto.ReadTimeoutError, urllib3.exceptions.TimeoutError)
    if isinstance(error, (*timeouts, TimeoutError)) and not isinstance(
        error, urllib3.exceptions.NewConnectionError
    ):
        return StoreTimeoutError(f"{what}: no answer in time")
    insecure = (boto.SSLError, urllib3.exceptions.SSLError)
    if isinstance(error, insecure) and "CERTIFICATE_VERIFY_FAILED" in str(error):
        return StoreRefusedError(f"{what}: the server's certificate is not trusted (AWS_CA_BUNDLE)")
    passing = (
        boto.HTTPClientError,
        boto.ConnectionError,
        boto.ChecksumError,
        boto.FlexibleChecksumError,
        boto.IncompleteReadError,
        boto.CredentialRetrievalError,
        boto.MetadataRetrievalError,
        boto.CapacityNotAvailableError,
        urllib3.exceptions.HTTPError,
        OSError,
    )
    if isinstance(error, passing):
        return StoreUnavailableError(f"{what}: the store cannot be reached or hung up")
    configuration = (
        boto.BotoCoreError,
        boto.MissingServiceIdError,
        boto.UndefinedModelAttributeError,
    )
    if isinstance(error, configuration):
        return StoreRefusedError(f"{what}: {_first_line(error)}: mend the AWS settings")
    return None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:200]
