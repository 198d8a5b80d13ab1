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
Depends on manifest, applied_commit, row_codec, forgotten_codec, live_record, packed_values, orjson and
google_crc32c.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import google_crc32c
import orjson

from tierdex.errors import CorruptFileError, UnsupportedFormatError
from tierdex.lifecycle.manifests.applied_commit import apply
from tierdex.lifecycle.manifests.forgotten_codec import pack_forgetting, to_forgetting
from tierdex.lifecycle.manifests.live_record import pack_live, unpack_live
from tierdex.lifecycle.manifests.manifest import (
    NOTHING,
    Change,
    Checkpoint,
    Commit,
    Dropped,
    Hint,
    ManifestState,
    NodeKind,
    NodeOwner,
    QueueTableRef,
    RemoveReason,
    Retention,
    Tombstone,
)
from tierdex.lifecycle.manifests.packed_values import (
    frozen,
    pack_refs,
    to_count,
    to_integer,
    to_optional_count,
    to_refs,
    to_text,
    to_truth,
    to_uuid,
)
from tierdex.lifecycle.manifests.row_codec import pack_rows, unpack_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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


# -- packing: absent means default, so that small commits stay small ---------------------------


def pack_commit(commit: Commit) -> dict[str, Any]:
    packed = {
        "node": commit.node,
        "number": commit.number,
        "kind": commit.kind.value,
        "epoch": commit.epoch,
        "owner": commit.owner.hex(),
        "commit_id": commit.commit_id.hex(),
        "time_ms": commit.time_ms,
        "base": commit.base,
        "change": _pack_change(commit.change),
    }
    if commit.published_through is not None:
        packed["published_through"] = commit.published_through
    if commit.checkpoint is not None:
        packed["checkpoint"] = _pack_state(commit.checkpoint)
    return packed


def _pack_change(change: Change) -> dict[str, Any]:
    packed = {
        "add": pack_rows(change.add),
        "remove": {uuid.hex(): reason.value for uuid, reason in change.remove.items()},
        "forget": [uuid.hex() for uuid in change.forget],
        "forget_replaced": pack_refs(change.forget_replaced),
        "floor": change.floor,
        "collected": change.collected,
        "rollback": change.rollback,
        "retention": None if change.retention is None else _pack_retention(change.retention),
        "queue_table": _pack_table(change.queue_table),
        "covers": [uuid.hex() for uuid in change.covers],
        "streams": dict(change.streams),
        "adopts": [[each.node, each.owner.hex()] for each in change.adopts],
        "retires": change.retires or None,
        "merge_floor": change.merge_floor,
        "expires": [uuid.hex() for uuid in change.expires],
        "forgettings": list(map(pack_forgetting, change.forgettings)),
        "ends": [uuid.hex() for uuid in change.ends],
    }
    if change.outstanding is not None:  # none left is said, too
        return _without_defaults(packed) | {"outstanding": _pack_outstanding(change.outstanding)}
    return _without_defaults(packed)


def _without_defaults(packed: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in packed.items() if value not in (None, [], {})}


def _pack_state(state: ManifestState) -> dict[str, Any]:
    return {
        "node": state.node,
        "number": state.number,
        "kind": None if state.kind is None else state.kind.value,
        "epoch": state.epoch,
        "owner": state.owner.hex(),
        "time_ms": state.time_ms,
        "base": state.base,
        "base_ms": state.base_ms,
        "checkpoints": [[found.number, found.time_ms] for found in state.checkpoints],
        "collected": state.collected,
        "rollback": state.rollback,
        "floor": state.floor,
        "highest_number": state.highest_number,
        "files": pack_rows(state.files.values()),
        "dropped": [
            [d.object_key, d.uuid.hex(), d.number, d.reason.value, d.dropped_ms]
            for d in state.dropped.values()
        ],
        "replaced": pack_refs(sorted(state.replaced)),
        "retention": _pack_retention(state.retention),
        "queue_table": _pack_table(state.queue_table),
        "uncovered": sorted(uuid.hex() for uuid in state.uncovered),
        "streams": dict(state.streams),
    } | _without_defaults(
        {
            "published_through": state.published_through,
            "outstanding": _pack_outstanding(state.outstanding),
            "retired": state.is_retired or None,
            "adopted": [[each.node, each.owner.hex()] for each in sorted(state.adopted)],
            "forgettings": list(map(pack_forgetting, state.forgettings.values())),
            "merge_floor": state.merge_floor or None,
            "expiring": sorted(uuid.hex() for uuid in state.expiring),
        }
    )


def _pack_outstanding(outstanding: Mapping[bytes, int]) -> dict[str, int]:
    return {owner.hex(): through for owner, through in outstanding.items()}


def _pack_retention(retention: Retention) -> dict[str, Any]:
    return {"default": retention.default_ms, "topics": dict(retention.topics_ms)}


def _pack_table(table: QueueTableRef | None) -> list[Any] | None:
    return None if table is None else [table.object_key, table.uuid.hex(), table.bytes, table.crc]


# -- unpacking: any exception here means that the JSON is not ours ------------------------------


def _unpack_commit(packed: dict[str, Any]) -> Commit:
    checkpoint = packed.get("checkpoint")
    commit = Commit(
        node=to_text(packed["node"]),
        number=to_count(packed["number"]),
        kind=NodeKind(packed["kind"]),
        epoch=to_count(packed["epoch"]),
        owner=to_uuid(packed["owner"]),
        commit_id=to_uuid(packed["commit_id"]),
        time_ms=to_integer(packed["time_ms"]),
        base=to_count(packed["base"]),
        change=_unpack_change(packed["change"]),
        published_through=to_optional_count(packed.get("published_through")),
        checkpoint=None if checkpoint is None else _unpack_state(checkpoint),
        repeats=tuple(map(_unpack_commit, packed.get("repeats", ()))),
    )
    first = commit.number - len(commit.repeats)
    for number, earlier in enumerate(commit.repeats, first):
        told = earlier.node, earlier.base, earlier.number, earlier.repeats
        if told != (commit.node, commit.base, number, ()) or number <= commit.base:
            raise ValueError("repeats")
    if (commit.checkpoint is not None) != (commit.base == commit.number):
        raise ValueError("base")
    if commit.checkpoint is not None and commit.checkpoint.number != commit.number:
        raise ValueError("checkpoint")
    return commit


def _unpack_change(packed: dict[str, Any]) -> Change:
    remove = {to_uuid(uuid): RemoveReason(why) for uuid, why in packed.get("remove", {}).items()}
    counts = ("floor", "collected", "rollback", "merge_floor")
    numbers = {name: packed.get(name) for name in counts}
    retention = packed.get("retention")
    return Change(
        add=tuple(unpack_rows(packed.get("add", ()))),
        remove=frozen(remove),
        forget=tuple(map(to_uuid, packed.get("forget", ()))),
        forget_replaced=to_refs(packed.get("forget_replaced", ())),
        **{name: None if number is None else to_count(number) for name, number in numbers.items()},
        retention=None if retention is None else _unpack_retention(retention),
        queue_table=_unpack_table(packed.get("queue_table")),
        covers=tuple(map(to_uuid, packed.get("covers", ()))),
        streams=_unpack_streams(packed.get("streams", {})),
        outstanding=_unpack_outstanding(packed.get("outstanding")),
        retires=to_truth(packed.get("retires", False)),
        adopts=_unpack_owners(packed.get("adopts", ())),
        expires=tuple(map(to_uuid, packed.get("expires", ()))),
        forgettings=tuple(map(to_forgetting, packed.get("forgettings", ()))),
        ends=tuple(map(to_uuid, packed.get("ends", ()))),
    )


def _unpack_state(packed: dict[str, Any]) -> ManifestState:
    rows = unpack_rows(packed["files"])
    dropped = [
        Dropped(to_text(key), to_uuid(uuid), to_count(number), RemoveReason(why), to_integer(at))
        for key, uuid, number, why, at in packed["dropped"]
    ]
    kind = packed["kind"]
    return ManifestState(
        node=to_text(packed["node"]),
        number=to_count(packed["number"]),
        kind=None if kind is None else NodeKind(kind),
        epoch=to_count(packed["epoch"]),
        owner=to_uuid(packed["owner"]),
        time_ms=to_integer(packed["time_ms"]),
        base=to_count(packed["base"]),
        base_ms=to_integer(packed["base_ms"]),
        checkpoints=tuple(
            Checkpoint(to_count(number), to_integer(at))
            for number, at in packed.get("checkpoints", ())
        ),
        collected=to_count(packed["collected"]),
        rollback=to_count(packed.get("rollback", 0)),
        floor=to_count(packed["floor"]),
        highest_number=to_count(packed["highest_number"]),
        files=frozen({row.uuid: row for row in rows}),
        dropped=frozen({d.uuid: d for d in dropped}),
        replaced=frozenset(to_refs(packed["replaced"])),
        retention=_unpack_retention(packed["retention"]),
        queue_table=_unpack_table(packed.get("queue_table")),
        uncovered=frozenset(map(to_uuid, packed.get("uncovered", ()))),
        streams=_unpack_streams(packed["streams"]),
        published_through=to_optional_count(packed.get("published_through")),
        outstanding=_unpack_outstanding(packed.get("outstanding")) or NOTHING,
        is_retired=to_truth(packed.get("retired", False)),
        adopted=frozenset(_unpack_owners(packed.get("adopted", ()))),
        forgettings=frozen({r.uuid: r for r in map(to_forgetting, packed.get("forgettings", ()))}),
        merge_floor=to_count(packed.get("merge_floor", 0)),
        expiring=frozenset(map(to_uuid, packed.get("expiring", ()))),
    )


def _unpack_outstanding(packed: dict[str, Any] | None) -> Mapping[bytes, int] | None:
    if packed is None:
        return None
    return frozen({to_uuid(owner): to_count(through) for owner, through in packed.items()})


def _unpack_owners(packed: Iterable[Any]) -> tuple[NodeOwner, ...]:
    return tuple(NodeOwner(to_text(node), to_uuid(owner)) for node, owner in packed)


def _unpack_retention(packed: dict[str, Any]) -> Retention:
    def limit(value: object) -> int | None:
        return None if value is None else to_count(value)

    topics = {to_text(topic): limit(value) for topic, value in packed["topics"].items()}
    return Retention(limit(packed["default"]), frozen(topics))


def _unpack_table(packed: list[Any] | None) -> QueueTableRef | None:
    if packed is None:
        return None
    key, uuid, size, crc = packed
    return QueueTableRef(to_text(key), to_uuid(uuid), to_count(size), to_count(crc))


def _unpack_streams(packed: dict[str, Any]) -> Mapping[str, int]:
    return frozen({query_id: to_integer(batch_id) for query_id, batch_id in packed.items()})


def _unpack_tombstone(packed: dict[str, Any]) -> Tombstone:
    found = Tombstone(
        to_text(packed["node"]), to_count(packed["number"]), to_count(packed["newest"])
    )
    if found.newest <= found.number:
        raise ValueError("newest")
    return found


_UNPACK: Final[dict[bytes, Any]] = {
    b"commit": _unpack_commit,
    b"tombstone": _unpack_tombstone,
    b"hint": lambda packed: packed,
}
