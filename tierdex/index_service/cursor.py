"""The opaque place where a query goes on: after one entry of one file.

A cursor names the query it belongs to (a digest of topic, key or message ID, begin and end), the
file, and the *location* of the last entry returned. A location means the same in every form of a
file, so a cursor survives roll, compaction, upload and restart; a merged file lists the files it
was made of, so it survives that too. Nothing in it is a position, hence nothing in it can go stale
silently: when the location is not found where it must be, the cursor has expired.

Depends on errors and the standard library.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import NamedTuple

from tierdex.errors import InvalidRequestError

_VERSION = b"\x01"
_DIGEST_BYTES = 8
_FINGERPRINT_BYTES = 16


class Cursor(NamedTuple):
    """Go on in file `file_id`, after the entry whose location has this fingerprint."""

    query_digest: bytes
    fingerprint: bytes
    file_id: str

    def encode(self) -> str:
        raw = _VERSION + self.query_digest + self.fingerprint + self.file_id.encode()
        check = hashlib.blake2b(raw, digest_size=4).digest()
        return base64.urlsafe_b64encode(check + raw).decode().rstrip("=")


def decode_cursor(text: str, query_digest: bytes) -> Cursor:
    """Return the cursor in `text`. Raises InvalidRequestError when it is not one of this query."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        check, raw = raw[:4], raw[4:]
        if hashlib.blake2b(raw, digest_size=4).digest() != check or raw[:1] != _VERSION:
            raise ValueError("checksum")
        digest = raw[1 : 1 + _DIGEST_BYTES]
        fingerprint = raw[1 + _DIGEST_BYTES : 1 + _DIGEST_BYTES + _FINGERPRINT_BYTES]
        file_id = raw[1 + _DIGEST_BYTES + _FINGERPRINT_BYTES :].decode()
    except (ValueError, binascii.Error) as error:
        raise InvalidRequestError(
            "not a cursor; pass `next_cursor` of the answer before, unchanged", field="cursor"
        ) from error
    if digest != query_digest:
        raise InvalidRequestError(
            "this cursor belongs to another query; topic, key, message_id, begin and end must be "
            "the same as in the query that returned it",
            field="cursor",
        )
    return Cursor(digest, fingerprint, file_id)


def digest_query(*parts: object) -> bytes:
    """Return 8 bytes that stand for a query's topic, key, message ID and time range."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        text = repr(part).encode("utf-8", "surrogatepass")
        digest.update(len(text).to_bytes(4, "little") + text)
    return digest.digest()


def fingerprint_location(location: tuple[object, ...]) -> bytes:
    """Return 16 bytes that stand for one location, whatever form its file has."""
    return hashlib.blake2b(repr(location).encode(), digest_size=_FINGERPRINT_BYTES).digest()
