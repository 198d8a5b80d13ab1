"""The lean signed GET: one HTTP request for the bytes of one object.

A lookup in a published file is one ranged GET, so this is the only verb whose cost counts: boto3
takes over a millisecond of CPU for it (serialising, hooks, parsing, endpoint rules); signing and
sending it here takes a tenth of that. The signer, the credentials and the address still come from
botocore, through `s3_signer.py`. Unusual requests (a proxy, a redirect, no credentials) raise
`UnusualGetError`, and boto3 sends them.

The length of the body is compared with the range: a short body is an error, never short bytes. A
slow body is abandoned after `timeout_s` and the time that it would take at `SLOWEST_BYTES_PER_S`.

Depends on urllib3, s3_errors and base. Must not import boto3 or botocore.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

import urllib3

from tierdex.errors import StoreTimeoutError, StoreUnavailableError
from tierdex.storage_layer.base import range_beyond_end
from tierdex.storage_layer.s3_errors import error_of, refusal_of_body

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tierdex.clock import Clock

SLOWEST_BYTES_PER_S = 128 * 1024
READ_BYTES = 256 * 1024
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
_UNUSUAL_STATUS = {301, 302, 303, 304, 307, 308}
_UNUSUAL_CODES = {"AuthorizationHeaderMalformed"}


class UnusualGetError(Exception):
    """The request needs boto3; never leaves storage_layer."""


class SignGet(Protocol):
    """Signs a GET: takes the url and headers, returns the headers to send."""

    def __call__(self, url: str, headers: dict[str, str]) -> Mapping[str, str]: ...


class SignedGet:
    """Gets objects below `base_url`. Owns its connection pool. Safe to share between threads."""

    def __init__(
        self,
        base_url: str,
        sign: SignGet,
        *,
        timeout_s: float,
        pool: int,
        ca_certs: str | None,
        clock: Clock,
    ) -> None:
        self._base_url = base_url
        self._sign = sign
        self._timeout_s = timeout_s
        self._clock = clock
        self._pool = urllib3.PoolManager(
            maxsize=pool,
            retries=False,
            timeout=urllib3.Timeout(connect=timeout_s, read=timeout_s),
            ca_certs=ca_certs if base_url.startswith("https") else None,
        )

    def __call__(self, key: str, position: int, length: int | None, where: str) -> bytes:
        """Return the bytes of one range, or of the whole object (position 0, no length)."""
        url = self._base_url + quote(key, safe="/~")
        headers = {"Accept-Encoding": "identity"}
        if position or length is not None:
            headers["Range"] = range_header(position, length)
        response = self._pool.request(
            "GET",
            url,
            headers=dict(self._sign(url, headers)),
            preload_content=False,
            decode_content=False,
            redirect=False,
        )
        try:
            body = self._read(response, length, where)
        except BaseException:
            response.close()  # half a body is left on the connection, which cannot be used again
            raise
        response.release_conn()
        if response.status in (200, 206):
            return checked_body(
                body,
                position,
                length,
                content_range=response.headers.get("content-range"),
                where=where,
            )
        refusal = refusal_of_body(response.status, response.headers, body)
        if response.status in _UNUSUAL_STATUS or refusal.code in _UNUSUAL_CODES:
            raise UnusualGetError(f"{response.status} {refusal.code}")
        raise error_of(refusal, where)

    def close(self) -> None:
        self._pool.clear()

    def _read(self, response: urllib3.BaseHTTPResponse, length: int | None, where: str) -> bytes:
        """Read the body in the pieces that arrive, so that a slow one is noticed between two of them."""
        declared = response.headers.get("content-length")
        if declared is None and response.headers.get("transfer-encoding") is None:
            raise StoreUnavailableError(f"{where}: the answer was cut: it has no length")
        # An invalid length (a proxy's "5, 5") bounds nothing here; `checked_body` finds it.
        expected = length or (int(declared) if declared and declared.isdecimal() else 0)
        give_up_s = self._clock.monotonic() + self._timeout_s + expected / SLOWEST_BYTES_PER_S
        pieces = []
        while piece := response.read1(READ_BYTES):
            pieces.append(piece)
            if self._clock.monotonic() > give_up_s:
                raise StoreTimeoutError(f"{where}: the body arrives too slowly and was abandoned")
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def range_header(position: int, length: int | None) -> str:
    """Return the Range header for [position, position + length), or to the end."""
    return f"bytes={position}-{'' if length is None else position + length - 1}"


def checked_body(
    body: bytes, position: int, length: int | None, *, content_range: str | None, where: str
) -> bytes:
    """Return `body` if it is the requested range.

    Raises CorruptFileError when the object is shorter than the range, StoreUnavailableError when
    the answer contradicts its headers (cut, or another range).
    """
    if not position and length is None:
        return body  # whole: the client compared it with Content-Length
    found = _CONTENT_RANGE.fullmatch(content_range or "")
    if found is None:  # the server ignored the range and sent everything
        end = len(body) if length is None else position + length
        if end > len(body) or position >= len(body):
            raise range_beyond_end(where, position, length, len(body))
        return body[position:end]
    first, last, size = (int(number) for number in found.groups())
    end = size if length is None else position + length
    if end > size:
        raise range_beyond_end(where, position, length, size)
    if first != position or last != end - 1 or len(body) != end - position:
        raise StoreUnavailableError(
            f"{where}: asked for bytes [{position}, {end}), got {len(body)} of [{first}, {last + 1})"
        )
    return body
