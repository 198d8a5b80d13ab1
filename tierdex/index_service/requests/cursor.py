"""The opaque place where a query continues: after one entry of one file.

A cursor names the query it belongs to (a digest of topic, key or message ID, begin and end), the file,
and the *fingerprint* of the last entry returned: it means the same in every form of a file. Besides it
has a *place* in the file's present form, where that entry is looked for first, and what tells an entry
that no page has returned from one that some page may have: see paging.py.

A caller can forge one, so nothing of it is trusted: a place is followed only to where the
walk of the query could lead, too, and where it meets no item the page is taken by a walk (paging.py).

Depends on repeats and lifecycle.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import struct
from functools import lru_cache
from typing import Final, NamedTuple

from tierdex.errors import InvalidRequestError
from tierdex.index_service.requests.repeats import Floors
from tierdex.lifecycle.paths import parse_file_id

MERGES_BYTES: Final = 8
SUM_MODULUS: Final = 1 << 64
NO_PLACE: Final = -1

_VERSION = 3
_to_json = json.JSONEncoder(separators=(",", ":")).encode  # made once: a batch has many cursors
_DIGEST_BYTES = 8
_HEAD = struct.Struct(f"<B{_DIGEST_BYTES}s16sQ{MERGES_BYTES}s16sq")


class Cursor(NamedTuple):
    """Continue in file `file_id`, after the entry with this fingerprint.

    `returned` is the sum of the fingerprints' first halves over this page and those before it, `merges`
    stands for the merged files with parts on both sides of `file_id`. `form` is the uuid of its file if
    that was compacted already, else zeros; `place` is where the entry lies in this form: a row number of
    a chained file, page and row of a compacted one, or NO_PLACE. `floors` bound what was returned from below.
    """

    query_digest: bytes
    fingerprint: bytes
    returned: int
    merges: bytes
    form: bytes
    place: int
    file_id: str
    floors: Floors

    def encode(self) -> str:
        tail = _to_json([self.file_id, *self.floors.encode()])
        raw = _HEAD.pack(_VERSION, *self[:-2]) + tail.encode()
        check = hashlib.blake2b(raw, digest_size=4).digest()
        return base64.urlsafe_b64encode(check + raw).decode().rstrip("=")


def decode_cursor(text: str, query_digest: bytes) -> Cursor:
    """Return the cursor in `text`. Raises InvalidRequestError when it is not one of this query."""
    cursor = _read(text)
    if cursor.query_digest != query_digest:
        raise InvalidRequestError(
            "this cursor belongs to another query; topic, key, message_id, begin and end must be "
            "the same as in the query that returned it",
            field="cursor",
        )
    return cursor


@lru_cache(maxsize=256)  # the fast path and the general one may both ask
def _read(text: str) -> Cursor:
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        check, raw = raw[:4], raw[4:]
        if hashlib.blake2b(raw, digest_size=4).digest() != check:
            raise ValueError("checksum")
        version, digest, fingerprint, returned, merges, form, place = _HEAD.unpack_from(raw)
        if version != _VERSION:
            raise ValueError("version")
        file_id, lowest_time, lowest = json.loads(raw[_HEAD.size :].decode())
        if not isinstance(file_id, str):
            raise ValueError("file_id")
        parse_file_id(file_id)
        floors = Floors.decode(lowest_time, lowest)
    except (
        ValueError,
        TypeError,
        RecursionError,
        binascii.Error,
        struct.error,
        InvalidRequestError,
    ) as error:
        raise InvalidRequestError(
            "not a cursor; pass `next_cursor` of the answer before, unchanged", field="cursor"
        ) from error
    return Cursor(digest, fingerprint, returned, merges, form, place, file_id, floors)


@lru_cache(maxsize=1024, typed=True)  # 1 and 1.0 are not the same
def digest_query(*parts: object) -> bytes:
    """Return 8 bytes that stand for a query's topic, key, message ID and time range."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        text = repr(part).encode("utf-8", "surrogatepass")
        digest.update(len(text).to_bytes(4, "little") + text)
    return digest.digest()
