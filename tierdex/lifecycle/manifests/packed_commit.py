"""A commit as JSON has it: packed for a manifest object, and unpacked from one.

Depends on manifest, row_codec, forgotten_codec and packed_values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tierdex.lifecycle.manifests.forgotten_codec import pack_forgetting, to_forgetting
from tierdex.lifecycle.manifests.manifest import (
    NOTHING,
    Change,
    Checkpoint,
    Commit,
    Dropped,
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
    from collections.abc import Iterable, Mapping


# -- packing: absent means default, so that small commits stay small ---------------------------


def pack_commit(commit: Commit) -> dict[str, Any]:
    """Return a commit as JSON has it."""
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


def unpack_commit(packed: dict[str, Any]) -> Commit:
    """Return a commit. Raises KeyError, TypeError, ValueError ... for what is none."""
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
        repeats=tuple(map(unpack_commit, packed.get("repeats", ()))),
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


def unpack_tombstone(packed: dict[str, Any]) -> Tombstone:
    """Return a tombstone. Raises as `unpack_commit`."""
    found = Tombstone(
        to_text(packed["node"]), to_count(packed["number"]), to_count(packed["newest"])
    )
    if found.newest <= found.number:
        raise ValueError("newest")
    return found
