"""Error answers of an S3 server as errors of our tree. Pure, without a client library.

| status | code | becomes | why |
|---|---|---|---|
| 404 | NoSuchKey, none (HEAD) | NotFoundError | |
| 404 | NoSuchBucket | StoreRefusedError | no retry makes a bucket |
| 412 | | AlreadyExistsError | `If-None-Match: *` lost: the key is taken |
| 409 | | StoreUnavailableError | another conditional write is under way: nothing applied, ask again |
| 416 | | CorruptFileError | the object is shorter than its manifest row says |
| 401, 403 | | StoreRefusedError | credentials, policy, or this machine's clock |
| 408, 400 RequestTimeout | | StoreTimeoutError | |
| 400 | digest, length | StoreUnavailableError | bytes were altered or lost in transit |
| 429, 5xx | | StoreUnavailableError | with the pause that the server asks for |
| 501 | | StoreRefusedError | the server does not know the header or the verb |
| other | | StoreRefusedError | |

Depends on errors only.
"""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from tierdex.errors import (
    AlreadyExistsError,
    CorruptFileError,
    NotFoundError,
    StoreRefusedError,
    StoreTimeoutError,
    StoreUnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tierdex.errors import TierdexError

MESSAGE_CHARACTERS = 200

ADVICE: Final = {
    "NoSuchBucket": "create the bucket, or correct the store's URL",
    "InvalidAccessKeyId": "the access key is not known there: correct the AWS credentials",
    "SignatureDoesNotMatch": "the secret key is wrong: correct the AWS credentials",
    "RequestTimeTooSkewed": "this machine's clock is wrong: set it",
    "ExpiredToken": "the session token has expired: renew the AWS credentials",
    "InvalidToken": "the session token is wrong: correct the AWS credentials",
    "AuthorizationHeaderMalformed": "the region is wrong: set region= in the store's URL",
    "PermanentRedirect": "the bucket is in another region: set region= in the store's URL",
    "NotImplemented": "this store lacks a feature that tierdex needs (conditional writes)",
}
_TIMEOUTS: Final = {"RequestTimeout", "RequestTimeoutException"}
_DAMAGED: Final = {
    "BadDigest",
    "IncompleteBody",
    "InvalidDigest",
    "XAmzContentChecksumMismatch",
    "XAmzContentSHA256Mismatch",
}
# The upload disappeared: it must begin again.
_BEGIN_AGAIN: Final = {"NoSuchUpload", "InvalidPart"}
_OVERLOADED: Final = {"SlowDown", "ThrottlingException", "TooManyRequests", "RequestThrottled"}


class Refusal(NamedTuple):
    """The deciding fields of an error answer. `retry_after_s` is 0 when the server asked for no pause."""

    status: int
    code: str
    message: str
    retry_after_s: float = 0.0


def error_of(refusal: Refusal, where: str) -> TierdexError:
    """Return our error for an answer about `where`, an object's url without credentials."""
    status, code = refusal.status, refusal.code
    named = "" if code == str(status) else f" {code}"  # a HEAD has no code
    said = f"{where}: {status}{named} {refusal.message[:MESSAGE_CHARACTERS]}".rstrip()
    if status == 412:
        return AlreadyExistsError(said)
    if status == 416:
        return CorruptFileError(where, "the object is shorter than the range asked for")
    if status == 408 or code in _TIMEOUTS:
        return StoreTimeoutError(said)
    if status == 409 or code in _DAMAGED or code in _BEGIN_AGAIN or code in _OVERLOADED:
        return StoreUnavailableError(said, retry_after_s=refusal.retry_after_s or 1.0)
    if status == 404 and code != "NoSuchBucket":
        return NotFoundError(said)
    if status == 429 or (status >= 500 and status != 501):
        return StoreUnavailableError(said, retry_after_s=refusal.retry_after_s or 1.0)
    return StoreRefusedError(f"{said}: {_advice(status, code)}")


def refusal_of_body(status: int, headers: Mapping[str, str], body: bytes) -> Refusal:
    """Return the refusal of a raw error answer; a body that is not S3's XML has no code."""
    text = body[:4096].decode("utf-8", "replace")
    return Refusal(
        status,
        _element(text, "Code"),
        _element(text, "Message"),
        parse_retry_after(headers.get("retry-after")),
    )


def parse_retry_after(value: str | None) -> float:
    """Return the seconds of a Retry-After header; 0 for none or a date (which few servers send)."""
    return float(value) if value and re.fullmatch(r"[0-9]{1,6}", value) else 0.0


def parse_date(value: str | None) -> int | None:
    """Return the time (ms) of a Date header; None for none, or one that is no date."""
    try:
        return round(parsedate_to_datetime(value or "").timestamp() * 1000)
    except (ValueError, TypeError, OverflowError):
        return None


def _element(text: str, name: str) -> str:
    found = re.search(f"<{name}>([^<]*)</{name}>", text)
    return found.group(1) if found else ""


def _advice(status: int, code: str) -> str:
    if code in ADVICE:
        return ADVICE[code]
    if status in (401, 403):
        return "check the AWS credentials and their rights in this bucket"
    if status in (301, 307):
        return ADVICE["PermanentRedirect"]
    if status == 501:
        return ADVICE["NotImplemented"]
    return "check the store's URL and settings"
