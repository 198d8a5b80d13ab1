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

Format 1 listed topics by name, in rows and for the node as a whole, and the end offset of every queue;
it is read, and never written. Its end offsets stay until the first queue table holds them.

Integers are exact over int64 (and read back as Python ints); uuids are hex.
Depends on manifest, forgotten, live_record, orjson, google_crc32c and topic_set.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import google_crc32c
import orjson

from tierdex.errors import CorruptFileError, UnsupportedFormatError
from tierdex.lifecycle.forgotten import ENTRY, AskedHash, Forgetting
from tierdex.lifecycle.live_record import pack_live, unpack_live
from tierdex.lifecycle.manifest import (
    INDEX_KIND,
    NOTHING,
    Change,
    Checkpoint,
    Commit,
    Dropped,
    FileRef,
    FileRow,
    HashGroups,
    HashRange,
    Hint,
    ManifestState,
    NodeKind,
    NodeOwner,
    QueueTableRef,
    RemoveReason,
    Retention,
    Tombstone,
    apply,
)
from tierdex.lifecycle.topic_set import decode_topics, encode_topics, topic_set

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MAGIC: Final = b"tierdex-manifest"
FORMAT_VERSION: Final = 3  # the highest of commits; tombstones and hints are as they were in 1
_PLAIN_VERSION: Final = 2  # of a commit that means no more than programs of format 2 know
_KIND: Final = re.compile(r"[a-z][a-z0-9_]{0,31}")
_HEADER_BYTES_MAX: Final = 128
_INT64: Final = 1 << 63
_HASHES: Final = 1 << 64


# -- objects ----------------------------------------------------------------------------------


def encode_commit(commit: Commit, before: ManifestState | None = None) -> bytes:
    """Return the object's bytes; `before` is the state that the commit follows, None if any will do."""
    means_more = _means_more(commit) or (before is not None and apply(before, commit).means_more)
    version = FORMAT_VERSION if means_more else _PLAIN_VERSION
    return _frame(b"commit", _pack_commit(commit), version)


def _means_more(commit: Commit) -> bool:
    state = commit.checkpoint
    return commit.change.means_more or (state is not None and state.means_more)


def encode_tombstone(tombstone: Tombstone) -> bytes:
    """Return the bytes that overwrite a collected number."""
    return _frame(b"tombstone", tombstone._asdict())


def encode_hint(node: str, hint: Hint) -> bytes:
    """Return the bytes of a node's hint."""
    live = {} if hint.live is None else {"live": pack_live(hint.live)}
    return _frame(
        b"hint", {"node": node, "checkpoint": hint.checkpoint, "number": hint.number, **live}
    )


def decode_manifest(data: bytes, *, key: str, node: str, number: int) -> Commit | Tombstone:
    """Return the object of a manifest number.

    Raises CorruptFileError (UnsupportedFormatError for a newer version) naming `key`.
    """
    what, packed, version = _unframe(data, key)
    try:
        found = _UNPACK[what](packed)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise CorruptFileError(key, f"not a manifest {what.decode()}: {error!r}") from error
    if not isinstance(found, (Commit, Tombstone)):
        raise CorruptFileError(key, "a hint lies where a commit should be")
    if (found.node, found.number) != (node, number):
        raise CorruptFileError(key, f"holds number {found.number} of node {found.node!r}")
    if version < FORMAT_VERSION and isinstance(found, Commit) and _means_more(found):
        # Other programs pass over it in this format and answer otherwise: nobody wrote it so.
        raise CorruptFileError(key, f"says in format {version} what only {FORMAT_VERSION} can say")
    return found


def decode_hint(data: bytes, *, key: str, node: str) -> Hint:
    """Return a hint, which may be old. Raises CorruptFileError."""
    what, packed, _ = _unframe(data, key)
    if what != b"hint" or not isinstance(packed, dict) or packed.get("node") != node:
        raise CorruptFileError(key, "not this node's hint")
    checkpoint = packed.get("checkpoint")
    number = packed.get("number", checkpoint)  # absent in what an older program wrote
    if type(checkpoint) is not int or type(number) is not int or not 0 <= checkpoint <= number:
        raise CorruptFileError(key, "the hint names no numbers")
    live = packed.get("live")
    try:
        return Hint(checkpoint, number, None if live is None else unpack_live(live))
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptFileError(key, f"not a live record: {error!r}") from error


def encode_row(row: FileRow) -> bytes:
    """Return a row as JSON; a job passes it to its driver."""
    return orjson.dumps(_pack_row(row))


def decode_row(data: bytes) -> FileRow:
    """Return the row that `encode_row` wrote. Raises CorruptFileError."""
    try:
        return _unpack_row(orjson.loads(data))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise CorruptFileError("file row", f"not a row: {error!r}") from error


# -- the frame --------------------------------------------------------------------------------


def _frame(what: bytes, packed: object, version: int = 1) -> bytes:
    body = orjson.dumps(packed)
    return _header(version, what, body) + body


def _header(version: int, what: bytes, body: bytes) -> bytes:
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
    if what not in _UNPACK or line + newline != _header(version, what, body):
        raise CorruptFileError(key, "length or checksum does not match")
    try:
        return what, orjson.loads(body), version
    except orjson.JSONDecodeError as error:
        raise CorruptFileError(key, f"not JSON: {error}") from error


# -- packing: absent means default, so that small commits stay small ---------------------------


def _pack_commit(commit: Commit) -> dict[str, Any]:
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
        "add": [_pack_row(row) for row in change.add],
        "remove": {uuid.hex(): reason.value for uuid, reason in change.remove.items()},
        "forget": [uuid.hex() for uuid in change.forget],
        "forget_replaced": _pack_refs(change.forget_replaced),
        "floor": change.floor,
        "collected": change.collected,
        "rollback": change.rollback,
        "retention": None if change.retention is None else _pack_retention(change.retention),
        "queue_table": _pack_table(change.queue_table),
        "covers": [uuid.hex() for uuid in change.covers],
        "end_offsets": _pack_offsets(change.end_offsets),
        "streams": dict(change.streams),
        "adopts": [[each.node, each.owner.hex()] for each in change.adopts],
        "retires": change.retires or None,
        "forgettings": list(map(_pack_forgetting, change.forgettings)),
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
        "files": [_pack_row(row) for row in state.files.values()],
        "dropped": [
            [d.object_key, d.uuid.hex(), d.number, d.reason.value, d.dropped_ms]
            for d in state.dropped.values()
        ],
        "replaced": _pack_refs(sorted(state.replaced)),
        "retention": _pack_retention(state.retention),
        "queue_table": _pack_table(state.queue_table),
        "uncovered": sorted(uuid.hex() for uuid in state.uncovered),
        "end_offsets": _pack_offsets(state.end_offsets),
        "streams": dict(state.streams),
    } | _without_defaults(
        {
            "published_through": state.published_through,
            "outstanding": _pack_outstanding(state.outstanding),
            "retired": state.is_retired or None,
            "adopted": [[each.node, each.owner.hex()] for each in sorted(state.adopted)],
            "forgettings": list(map(_pack_forgetting, state.forgettings.values())),
        }
    )


def _pack_forgetting(record: Forgetting) -> dict[str, Any]:
    return {
        "uuid": record.uuid.hex(),
        "time": record.time_ms,
        "asked": [list(each) for each in record.asked],
        "waits": list(record.waits),
        "rewrites": record.rewrites,
        "entries": b64encode(record.entries).decode(),
        "bounds": dict(record.bounds),
        "files": _pack_refs(record.files),
        "only": None if record.only is None else [list(each) for each in record.only],
    }


def _pack_outstanding(outstanding: Mapping[bytes, int]) -> dict[str, int]:
    return {owner.hex(): through for owner, through in outstanding.items()}


def _pack_row(row: FileRow) -> dict[str, Any]:
    packed = {
        "uuid": row.uuid.hex(),
        "number": row.number,
        "key": row.object_key,
        "bytes": row.bytes,
        "items": row.item_count,
        "slots": row.slot_count,
        "min": row.min_time,
        "max": row.max_time,
        "begin": row.begin_ms,
        "sealed": row.sealed_at_ms,
        "sidecar": row.sidecar_position,
        "crc": row.tail_crc,
        "topics": encode_topics(row.topics),
        "schema": row.schema,
    }
    if row.tells:
        packed["tells"] = True
    if row.replaces:
        packed["replaces"] = _pack_refs(row.replaces)
    if row.parts:
        packed["parts"] = _pack_refs(row.parts)
    if row.kind != INDEX_KIND:
        packed["kind"] = row.kind
    if row.hash_range is not None:
        packed["hashes"] = list(row.hash_range)
    if row.groups is not None:
        packed["groups"] = list(row.groups)
    return packed


def _pack_refs(refs: Iterable[FileRef]) -> list[list[Any]]:
    return [[ref.node, ref.uuid.hex(), ref.number] for ref in refs]


def _pack_retention(retention: Retention) -> dict[str, Any]:
    return {"default": retention.default_ms, "topics": dict(retention.topics_ms)}


def _pack_table(table: QueueTableRef | None) -> list[Any] | None:
    return None if table is None else [table.object_key, table.uuid.hex(), table.bytes, table.crc]


def _pack_offsets(offsets: Mapping[tuple[str, int], int]) -> dict[str, dict[str, int]]:
    packed: dict[str, dict[str, int]] = {}
    for (topic, queue_id), end in offsets.items():
        packed.setdefault(topic, {})[str(queue_id)] = end
    return packed


# -- unpacking: any exception here means that the JSON is not ours ------------------------------


def _unpack_commit(packed: dict[str, Any]) -> Commit:
    checkpoint = packed.get("checkpoint")
    commit = Commit(
        node=_text(packed["node"]),
        number=_count(packed["number"]),
        kind=NodeKind(packed["kind"]),
        epoch=_count(packed["epoch"]),
        owner=_uuid(packed["owner"]),
        commit_id=_uuid(packed["commit_id"]),
        time_ms=_integer(packed["time_ms"]),
        base=_count(packed["base"]),
        change=_unpack_change(packed["change"]),
        published_through=_optional_count(packed.get("published_through")),
        checkpoint=None if checkpoint is None else _unpack_state(checkpoint),
    )
    if (commit.checkpoint is not None) != (commit.base == commit.number):
        raise ValueError("base")
    if commit.checkpoint is not None and commit.checkpoint.number != commit.number:
        raise ValueError("checkpoint")
    return commit


def _unpack_change(packed: dict[str, Any]) -> Change:
    remove = {_uuid(uuid): RemoveReason(why) for uuid, why in packed.get("remove", {}).items()}
    numbers = {name: packed.get(name) for name in ("floor", "collected", "rollback")}
    retention = packed.get("retention")
    return Change(
        add=tuple(map(_unpack_row, packed.get("add", ()))),
        remove=_frozen(remove),
        forget=tuple(map(_uuid, packed.get("forget", ()))),
        forget_replaced=_unpack_refs(packed.get("forget_replaced", ())),
        **{name: None if number is None else _count(number) for name, number in numbers.items()},
        retention=None if retention is None else _unpack_retention(retention),
        queue_table=_unpack_table(packed.get("queue_table")),
        covers=tuple(map(_uuid, packed.get("covers", ()))),
        end_offsets=_unpack_offsets(packed.get("end_offsets", {})),
        streams=_unpack_streams(packed.get("streams", {})),
        outstanding=_unpack_outstanding(packed.get("outstanding")),
        retires=_truth(packed.get("retires", False)),
        adopts=_unpack_owners(packed.get("adopts", ())),
        forgettings=tuple(map(_unpack_forgetting, packed.get("forgettings", ()))),
        ends=tuple(map(_uuid, packed.get("ends", ()))),
    )


def _unpack_state(packed: dict[str, Any]) -> ManifestState:
    rows = list(map(_unpack_row, packed["files"]))
    dropped = [
        Dropped(_text(key), _uuid(uuid), _count(number), RemoveReason(why), _integer(at))
        for key, uuid, number, why, at in packed["dropped"]
    ]
    kind = packed["kind"]
    return ManifestState(
        node=_text(packed["node"]),
        number=_count(packed["number"]),
        kind=None if kind is None else NodeKind(kind),
        epoch=_count(packed["epoch"]),
        owner=_uuid(packed["owner"]),
        time_ms=_integer(packed["time_ms"]),
        base=_count(packed["base"]),
        base_ms=_integer(packed["base_ms"]),
        checkpoints=tuple(
            Checkpoint(_count(number), _integer(at)) for number, at in packed.get("checkpoints", ())
        ),
        collected=_count(packed["collected"]),
        rollback=_count(packed.get("rollback", 0)),
        floor=_count(packed["floor"]),
        highest_number=_count(packed["highest_number"]),
        files=_frozen({row.uuid: row for row in rows}),
        dropped=_frozen({d.uuid: d for d in dropped}),
        replaced=frozenset(_unpack_refs(packed["replaced"])),
        retention=_unpack_retention(packed["retention"]),
        queue_table=_unpack_table(packed.get("queue_table")),
        uncovered=frozenset(map(_uuid, packed.get("uncovered", ()))),
        end_offsets=_unpack_offsets(packed["end_offsets"]),
        streams=_unpack_streams(packed["streams"]),
        published_through=_optional_count(packed.get("published_through")),
        outstanding=_unpack_outstanding(packed.get("outstanding")) or NOTHING,
        is_retired=_truth(packed.get("retired", False)),
        adopted=frozenset(_unpack_owners(packed.get("adopted", ()))),
        forgettings=_frozen(
            {r.uuid: r for r in map(_unpack_forgetting, packed.get("forgettings", ()))}
        ),
    )


def _unpack_forgetting(packed: dict[str, Any]) -> Forgetting:
    entries = b64decode(packed["entries"], validate=True)
    if len(entries) % ENTRY.itemsize:
        raise ValueError("entries")
    bounds = {_text(node): _count(number) for node, number in packed["bounds"].items()}
    only = packed.get("only")
    return Forgetting(
        uuid=_uuid(packed["uuid"]),
        time_ms=_integer(packed["time"]),
        asked=tuple(_unpack_asked(*each) for each in packed["asked"]),
        waits=tuple(map(_text, packed["waits"])),
        rewrites=_truth(packed["rewrites"]),
        entries=entries,
        bounds=bounds,
        files=_unpack_refs(packed["files"]),
        only=None if only is None else tuple((_count(queue), _count(at)) for queue, at in only),
    )


def _unpack_asked(topic: Any, kind: Any, key_hash: Any) -> AskedHash:
    if kind not in (0, 1) or (topic is None and kind == 0):
        raise ValueError(f"not a kind of name: {kind!r}")
    return AskedHash(None if topic is None else _text(topic), int(kind), _hash(key_hash))


def _unpack_outstanding(packed: dict[str, Any] | None) -> Mapping[bytes, int] | None:
    if packed is None:
        return None
    return _frozen({_uuid(owner): _count(through) for owner, through in packed.items()})


def _unpack_owners(packed: Iterable[Any]) -> tuple[NodeOwner, ...]:
    return tuple(NodeOwner(_text(node), _uuid(owner)) for node, owner in packed)


def _unpack_row(packed: dict[str, Any]) -> FileRow:
    topics = packed["topics"]
    row = FileRow(
        uuid=_uuid(packed["uuid"]),
        number=_count(packed["number"]),
        object_key=_text(packed["key"]),
        bytes=_count(packed["bytes"]),
        item_count=_count(packed["items"]),
        slot_count=_count(packed["slots"]),
        min_time=_integer(packed["min"]),
        max_time=_integer(packed["max"]),
        begin_ms=_integer(packed["begin"]),
        sealed_at_ms=_integer(packed["sealed"]),
        sidecar_position=_count(packed["sidecar"]),
        tail_crc=_count(packed["crc"]),
        # Format 1 listed the names.
        topics=topic_set(topics) if isinstance(topics, list) else decode_topics(topics),
        schema=_text(packed["schema"]),
        tells=bool(packed.get("tells", False)),
        replaces=_unpack_refs(packed.get("replaces", ())),
        parts=_unpack_refs(packed.get("parts", ())),
        kind=_kind(packed.get("kind", INDEX_KIND)),
        hash_range=_unpack_hashes(packed.get("hashes")),
        groups=_unpack_groups(packed.get("groups")),
    )
    if row.sidecar_position > row.bytes:
        raise ValueError("sidecar")
    if row.groups is not None:
        position, stride, count, head_end = row.groups
        if (
            not row.sidecar_position
            <= head_end
            <= position
            < position + stride * count
            <= row.bytes
        ):
            raise ValueError("groups")
    if row.tells and row.kind != INDEX_KIND:
        raise ValueError("only an index file tells end offsets")
    return row


def _unpack_groups(packed: list[Any] | None) -> HashGroups | None:
    return None if packed is None else HashGroups(*map(_count, packed))


def _unpack_hashes(packed: list[Any] | None) -> HashRange | None:
    if packed is None:
        return None
    first, last = map(_hash, packed)
    if first > last:
        raise ValueError("hashes")
    return HashRange(first, last)


def _unpack_refs(packed: Iterable[Any]) -> tuple[FileRef, ...]:
    return tuple(FileRef(_text(node), _uuid(uuid), _count(n)) for node, uuid, n in packed)


def _unpack_retention(packed: dict[str, Any]) -> Retention:
    def limit(value: object) -> int | None:
        return None if value is None else _count(value)

    topics = {_text(topic): limit(value) for topic, value in packed["topics"].items()}
    return Retention(limit(packed["default"]), _frozen(topics))


def _unpack_table(packed: list[Any] | None) -> QueueTableRef | None:
    if packed is None:
        return None
    key, uuid, size, crc = packed
    return QueueTableRef(_text(key), _uuid(uuid), _count(size), _count(crc))


def _unpack_offsets(packed: dict[str, dict[str, Any]]) -> Mapping[tuple[str, int], int]:
    return _frozen(
        {
            (topic, int(queue_id)): _integer(end)
            for topic, queues in packed.items()
            for queue_id, end in queues.items()
        }
    )


def _unpack_streams(packed: dict[str, Any]) -> Mapping[str, int]:
    return _frozen({query_id: _integer(batch_id) for query_id, batch_id in packed.items()})


def _unpack_tombstone(packed: dict[str, Any]) -> Tombstone:
    found = Tombstone(_text(packed["node"]), _count(packed["number"]), _count(packed["newest"]))
    if found.newest <= found.number:
        raise ValueError("newest")
    return found


def _frozen(mapping: dict[Any, Any]) -> Mapping[Any, Any]:
    return MappingProxyType(mapping) if mapping else NOTHING


def _uuid(value: str) -> bytes:
    uuid = bytes.fromhex(value)
    if len(uuid) != 16:
        raise ValueError("uuid")
    return uuid


def _integer(value: object) -> int:
    if type(value) is not int or not -_INT64 <= value < _INT64:
        raise ValueError(f"not an int64: {value!r}")
    return value


def _count(value: object) -> int:
    number = _integer(value)
    if number < 0:
        raise ValueError(f"negative: {number}")
    return number


def _optional_count(value: object) -> int | None:
    return None if value is None else _count(value)


def _truth(value: object) -> bool:
    if type(value) is not bool:
        raise TypeError(f"neither true nor false: {value!r}")
    return value


def _hash(value: object) -> int:
    if type(value) is not int or not 0 <= value < _HASHES:
        raise ValueError(f"not a hash: {value!r}")
    return value


def _kind(value: object) -> str:
    if not isinstance(value, str) or not _KIND.fullmatch(value):
        raise ValueError(f"not a kind of file: {value!r}")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"not a text: {value!r}")
    return value


_UNPACK: Final[dict[bytes, Any]] = {
    b"commit": _unpack_commit,
    b"tombstone": _unpack_tombstone,
    b"hint": lambda packed: packed,
}
