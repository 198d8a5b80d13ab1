"""The opaque place where a query goes on: after one entry of one file.

A cursor names the query it belongs to (a digest of topic, key or message ID, begin and end), the
file, and the *location* of the last entry returned. A location means the same in every form of a
file, so a cursor survives roll, compaction, upload and restart; a merged file lists the files it
was made of, so it survives that too. Nothing in it is a position, hence nothing in it can go stale
silently: when the location is not found where it must be, the cursor has expired.

It also sums up the locations that were returned up to there, and the merged files that reach across
its place: see paging.py.

Depends on errors and the standard library.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from tierdex.index_service.repeats import Identity

MERGES_BYTES: Final = 8
SUM_MODULUS: Final = 1 << 64

_VERSION = 3
_DIGEST_BYTES = 8
_HEAD = struct.Struct(f"<B{_DIGEST_BYTES}s16sQ{MERGES_BYTES}s16s")


class Cursor(NamedTuple):
    """Go on in file `file_id`, after the entry whose location has this fingerprint.

    `returned` is the sum of `weigh` over all entries of this page and those before it, `merges`
    stands for the merged files with parts on both sides of `file_id`. `form` is the uuid of its file
    if that was compacted already, else zeros.
    """

    query_digest: bytes
    fingerprint: bytes
    returned: int
    merges: bytes
    form: bytes
    file_id: str

    def encode(self) -> str:
        raw = _HEAD.pack(_VERSION, *self[:-1]) + self.file_id.encode()
        check = hashlib.blake2b(raw, digest_size=4).digest()
        return base64.urlsafe_b64encode(check + raw).decode().rstrip("=")


def decode_cursor(text: str, query_digest: bytes) -> Cursor:
    """Return the cursor in `text`. Raises InvalidRequestError when it is not one of this query."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        check, raw = raw[:4], raw[4:]
        if hashlib.blake2b(raw, digest_size=4).digest() != check:
            raise ValueError("checksum")
        version, digest, fingerprint, returned, merges, form = _HEAD.unpack_from(raw)
        if version != _VERSION:
            raise ValueError("version")
        file_id = raw[_HEAD.size :].decode()
    except (ValueError, binascii.Error, struct.error) as error:
        raise InvalidRequestError(
            "not a cursor; pass `next_cursor` of the answer before, unchanged", field="cursor"
        ) from error
    if digest != query_digest:
        raise InvalidRequestError(
            "this cursor belongs to another query; topic, key, message_id, begin and end must be "
            "the same as in the query that returned it",
            field="cursor",
        )
    return Cursor(digest, fingerprint, returned, merges, form, file_id)


def digest_query(*parts: object) -> bytes:
    """Return 8 bytes that stand for a query's topic, key, message ID and time range."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        text = repr(part).encode("utf-8", "surrogatepass")
        digest.update(len(text).to_bytes(4, "little") + text)
    return digest.digest()


def fingerprint_identity(identity: Identity) -> bytes:
    """Return 16 bytes that stand for one entry, whatever form its file has."""
    return hashlib.blake2b(repr(tuple(identity)).encode(), digest_size=16).digest()


def weigh(fingerprint: bytes) -> int:
    """Return a number below `SUM_MODULUS` that stands for a fingerprint in a sum of many."""
    return int.from_bytes(fingerprint[:8], "little")
