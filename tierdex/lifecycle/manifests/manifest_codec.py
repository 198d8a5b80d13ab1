"""The bytes of a manifest object: one line of header, then compact JSON.

::

    tierdex-manifest <version> <what> <length of the JSON> <CRC32C, 8 hex digits><newline>
    {...}

`what` is commit, tombstone or hint. The checksum covers the header up to itself and the JSON, and
the JSON repeats node and number, so that a sound object under a wrong number fails too. There is one
spelling of every header: a flipped byte anywhere, a truncation or a tail is a CorruptFileError.
A newer version is an UnsupportedFormatError. Unknown fields of a known version are ignored.

A commit is of format 2, and of format 3 when it says, or follows what says, something that a reader
of format 2 would pass over and then answer wrongly: a file of another kind, a range of hashes,
forgotten entries (`means_more`). A node of which nothing of the kind is listed any more goes on in format 2.

A commit without a checkpoint repeats those before it, back to the newest checkpoint, up to 32 KiB: an
opening then reads few objects (decision 0110). `repeats` adds nothing to what
they say: programs that do not know it read them one by one.

JSON and not a binary form: when a bucket is broken, `cat` and `jq` must do.

Integers are exact over int64 (and read back as Python ints); uuids are hex.
Depends on manifest, applied_commit, packed_commit, live_record, orjson and google_crc32c.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import google_crc32c
import orjson

from tierdex.errors import CorruptFileError, UnsupportedFormatError
from tierdex.lifecycle.manifests.applied_commit import apply
from tierdex.lifecycle.manifests.live_record import pack_live, unpack_live
from tierdex.lifecycle.manifests.manifest import (
    Commit,
    Hint,
    ManifestState,
    Tombstone,
)
from tierdex.lifecycle.manifests.packed_commit import pack_commit, unpack_commit, unpack_tombstone

if TYPE_CHECKING:
    from collections.abc import Sequence

MAGIC: Final = b"tierdex-manifest"
FORMAT_VERSION: Final = 3  # the highest of commits; tombstones and hints are of format 1
_PLAIN_VERSION: Final = 2  # of a commit that means no more than programs of format 2 know
_HEADER_BYTES_MAX: Final = 128
REPEATED_BYTES_MAX: Final = 32 * 1024  # of earlier commits in one commit


# -- objects ----------------------------------------------------------------------------------


def encode_commit(commit: Commit, before: ManifestState | None = None) -> bytes:
    """Return the object's bytes; `before` is the state that the commit follows, None if any will do.

    Of the commits that led from the newest checkpoint to `before` it repeats the latest, as many as fit.
    """
    means_more = _means_more(commit) or (before is not None and apply(before, commit).means_more)
    version = FORMAT_VERSION if means_more else _PLAIN_VERSION
    packed = pack_commit(commit)
    if before is not None and commit.checkpoint is None:
        repeated = _repeated(before.since)
        if repeated:
            packed["repeats"] = repeated
    return frame(b"commit", packed, version)


def _repeated(commits: Sequence[Commit]) -> list[orjson.Fragment]:
    """Return the latest of `commits` that fit, oldest first."""
    encoded: list[bytes] = []
    left = REPEATED_BYTES_MAX
    for commit in reversed(commits):
        data = orjson.dumps(pack_commit(commit))
        left -= len(data)
        if left < 0:
            break
        encoded.append(data)
    return [orjson.Fragment(data) for data in reversed(encoded)]


def _means_more(commit: Commit) -> bool:
    state = commit.checkpoint
    return commit.change.means_more or (state is not None and state.means_more)


def encode_tombstone(tombstone: Tombstone) -> bytes:
    """Return the bytes that overwrite a collected number."""
    return frame(b"tombstone", tombstone._asdict())


def encode_hint(node: str, hint: Hint) -> bytes:
    """Return the bytes of a node's hint."""
    live = {} if hint.live is None else {"live": pack_live(hint.live)}
    return frame(
        b"hint", {"node": node, "checkpoint": hint.checkpoint, "number": hint.number, **live}
    )


def decode_manifest(data: bytes, *, key: str, node: str, number: int) -> Commit | Tombstone:
    """Return the object of a manifest number.

    Raises CorruptFileError (UnsupportedFormatError for a newer version) naming `key`.
    """
    what, packed, version = _unframe(data, key)
    if what == b"commit" and version < _PLAIN_VERSION:
        raise UnsupportedFormatError(key, f"a commit of format {version}: no release wrote it")
    try:
        found = _UNPACK[what](packed)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise CorruptFileError(key, f"not a manifest {what.decode()}: {error!r}") from error
    if not isinstance(found, (Commit, Tombstone)):
        raise CorruptFileError(key, "a hint lies where a commit should be")
    if (found.node, found.number) != (node, number):
        raise CorruptFileError(key, f"holds number {found.number} of node {found.node!r}")
    if version < FORMAT_VERSION and isinstance(found, Commit) and _means_more(found):
        # Other programs pass over it in this format and answer otherwise: it is damage.
        raise CorruptFileError(key, f"says in format {version} what only {FORMAT_VERSION} can say")
    return found


def decode_hint(data: bytes, *, key: str, node: str) -> Hint:
    """Return a hint, which may be old. Raises CorruptFileError."""
    what, packed, _ = _unframe(data, key)
    if what != b"hint" or not isinstance(packed, dict) or packed.get("node") != node:
        raise CorruptFileError(key, "not this node's hint")
    checkpoint = packed.get("checkpoint")
    number = packed.get("number")
    if type(checkpoint) is not int or type(number) is not int or not 0 <= checkpoint <= number:
        raise CorruptFileError(key, "the hint names no numbers")
    live = packed.get("live")
    try:
        return Hint(checkpoint, number, None if live is None else unpack_live(live))
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptFileError(key, f"not a live record: {error!r}") from error


# -- the frame --------------------------------------------------------------------------------


def frame(what: bytes, packed: object, version: int = 1) -> bytes:
    body = orjson.dumps(packed)
    return header_line(version, what, body) + body


def header_line(version: int, what: bytes, body: bytes) -> bytes:
    prefix = b"%s %d %s %d " % (MAGIC, version, what, len(body))
    crc = google_crc32c.extend(google_crc32c.value(prefix), body)
    return prefix + b"%08x\n" % crc


def _unframe(data: bytes, key: str) -> tuple[bytes, Any, int]:
    """Return what it is, the JSON, the format's version."""
    line, newline, body = data.partition(b"\n")
    fields = line.split(b" ")
    if not newline or len(line) > _HEADER_BYTES_MAX or len(fields) != 5 or fields[0] != MAGIC:
        raise CorruptFileError(key, "no manifest header")
    version = int(fields[1]) if fields[1].isdigit() else 0
    if version > FORMAT_VERSION:
        raise UnsupportedFormatError(
            key, f"manifest format {version}, this program reads up to {FORMAT_VERSION}: update it"
        )
    what = fields[2]
    # One spelling only: a header other than the one that we write for this body is damage.
    if what not in _UNPACK or line + newline != header_line(version, what, body):
        raise CorruptFileError(key, "length or checksum does not match")
    try:
        return what, orjson.loads(body), version
    except orjson.JSONDecodeError as error:
        raise CorruptFileError(key, f"not JSON: {error}") from error


_UNPACK: Final[dict[bytes, Any]] = {
    b"commit": unpack_commit,
    b"tombstone": unpack_tombstone,
    b"hint": lambda packed: packed,
}
