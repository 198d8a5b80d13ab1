"""The connection to a server: botocore's session and client, and its errors as errors of our tree.

Configuration and credentials come from the caller or the usual AWS chain, and never enter a URL, a
message or a log. botocore sends each request once; `RetryingStore` and the multipart upload repeat.

boto3 is imported when a client is made, not with this module; only this file and s3_signer.py import it
or botocore. Depends on s3_errors.
"""

from __future__ import annotations

import contextlib
import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tierdex.errors import (
    StoreRefusedError,
    StoreTimeoutError,
    StoreUnavailableError,
    TierdexError,
)
from tierdex.storage_layer.s3_errors import Refusal, error_of, parse_date, parse_retry_after

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_s3 import S3Client

    from tierdex.storage_layer.store_url import Credentials

DEFAULT_REGION = "us-east-1"  # what servers other than AWS expect when none is named


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Server:
    """The address of a server. A field that is None comes from the usual AWS configuration."""

    endpoint_url: str | None = None
    region: str | None = None
    timeout_s: float = 10.0  # to connect, and between two reads of an answer
    pool: int = 16  # connections that are kept open
    checksum: Literal["when_supported", "when_required"] = "when_required"
    kms_key: str | None = None  # of objects that are written; None: what the bucket does
    credentials: Credentials | None = None


def connect(server: S3Server) -> tuple[Any, S3Client]:
    """Return a session and its client. Reads configuration and sends nothing."""
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
    credentials = server.credentials
    session = boto3.session.Session(
        aws_access_key_id=credentials.access_key if credentials else None,
        aws_secret_access_key=credentials.secret_key if credentials else None,
        aws_session_token=credentials.session_token if credentials else None,
    )
    endpoint_url = server.endpoint_url or os.environ.get("AWS_ENDPOINT_URL_S3")
    endpoint_url = endpoint_url or os.environ.get("AWS_ENDPOINT_URL") or None
    region = server.region or os.environ.get("AWS_REGION") or session.region_name or DEFAULT_REGION
    config = Config(
        connect_timeout=server.timeout_s,
        read_timeout=server.timeout_s,
        max_pool_connections=server.pool,
        retries={"total_max_attempts": 1, "mode": "standard"},
        # Names in a host name want DNS for every bucket, which only AWS has.
        s3={"addressing_style": "path" if endpoint_url else "auto"},
        signature_version="s3v4",
        request_checksum_calculation=server.checksum,
        response_checksum_validation=server.checksum,
    )
    return session, session.client(
        "s3", endpoint_url=endpoint_url, region_name=region, config=config
    )


def date_of_bucket(client: Any, bucket: str) -> int | None:
    """Return the date (ms) of the server's answer to a HEAD of the bucket; None without a valid one."""
    from botocore.exceptions import ClientError

    try:
        answer = client.head_bucket(Bucket=bucket)
    except ClientError as error:
        answer = error.response  # a refusal has a date, too
        if int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)) >= 500:
            raise
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return parse_date(headers.get("date"))


@contextlib.contextmanager
def translated(where: str) -> Iterator[None]:
    """Turn each error of botocore, urllib3 or a socket into one of our tree."""
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
    """Return our error for one of botocore, urllib3 or a socket; None for any other (a bug)."""
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
        return StoreUnavailableError(
            f"{what}: the store cannot be reached, or closed the connection"
        )
    configuration = (
        boto.BotoCoreError,
        boto.MissingServiceIdError,
        boto.UndefinedModelAttributeError,
    )
    if isinstance(error, configuration):
        return StoreRefusedError(f"{what}: {_first_line(error)}: correct the AWS settings")
    return None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:200]


def member_of(answer: Any, name: str, where: str) -> Any:
    """Return a member that every complete answer has. Raises StoreUnavailableError when it is absent."""
    if name not in answer:
        raise StoreUnavailableError(f"{where}: the answer was cut: it has no {name}")
    return answer[name]
