"""The rows of a manifest as JSON; a default value is absent.

The pieces of one run have the same parts, which the first of them spells out; the others name it (`run`).

Depends on file_row, packed_values, topic_set and orjson. Of any exception in unpacking a caller makes the
error of its object: the JSON is not ours then.
"""

from __future__ import annotations

from dataclasses import replace
from sys import intern
from typing import TYPE_CHECKING, Any

import orjson

from tierdex.errors import CorruptFileError
from tierdex.lifecycle.manifests.file_row import INDEX_KIND, FileRow, HashGroups, HashRange
from tierdex.lifecycle.manifests.packed_values import (
    pack_refs,
    to_count,
    to_hash,
    to_integer,
    to_kind,
    to_optional_count,
    to_refs,
    to_text,
    to_uuid,
)
from tierdex.lifecycle.topic_set import decode_topics, encode_topics

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tierdex.lifecycle.manifests.file_row import FileRef


def encode_row(row: FileRow) -> bytes:
    """Return a row as JSON; a job passes it to its driver."""
    return orjson.dumps(pack_row(row))


def decode_row(data: bytes) -> FileRow:
    """Return the row that `encode_row` wrote. Raises CorruptFileError."""
    try:
        return _unpack_row(orjson.loads(data))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise CorruptFileError("file row", f"not a row: {error!r}") from error


def pack_rows(rows: Iterable[FileRow]) -> list[dict[str, Any]]:
    """Return rows as JSON values, in their order."""
    packed = []
    spelled: dict[tuple[tuple[FileRef, ...], tuple[FileRef, ...]], str] = {}
    for row in rows:
        one = pack_row(row)
        if row.hash_range is not None and row.parts:
            first = spelled.setdefault((row.parts, row.replaces), one["uuid"])
            if first != one["uuid"]:
                one = {name: one[name] for name in one if name not in ("parts", "replaces")}
                one["run"] = first
        packed.append(one)
    return packed


def unpack_rows(packed: Iterable[dict[str, Any]]) -> list[FileRow]:
    """Return the rows that `pack_rows` made; any exception says that they are not."""
    rows: list[FileRow] = []
    spelled: dict[str, FileRow] = {}
    for one in packed:
        row = _unpack_row(one)
        if "run" in one:
            first = spelled[to_text(one["run"])]
            row = replace(row, parts=first.parts, replaces=first.replaces)
        elif row.hash_range is not None:
            spelled[one["uuid"]] = row
        rows.append(row)
    return rows


def pack_row(row: FileRow) -> dict[str, Any]:
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
        packed["replaces"] = pack_refs(row.replaces)
    if row.parts:
        packed["parts"] = pack_refs(row.parts)
    if row.kind != INDEX_KIND:
        packed["kind"] = row.kind
    if row.hash_range is not None:
        packed["hashes"] = list(row.hash_range)
    if row.groups is not None:
        packed["groups"] = list(row.groups)
    if row.forgets_through is not None:
        packed["forgets_through"] = row.forgets_through
    return packed


def _unpack_row(packed: dict[str, Any]) -> FileRow:
    row = FileRow(
        uuid=to_uuid(packed["uuid"]),
        number=to_count(packed["number"]),
        object_key=to_text(packed["key"]),
        bytes=to_count(packed["bytes"]),
        item_count=to_count(packed["items"]),
        slot_count=to_count(packed["slots"]),
        min_time=to_integer(packed["min"]),
        max_time=to_integer(packed["max"]),
        begin_ms=to_integer(packed["begin"]),
        sealed_at_ms=to_integer(packed["sealed"]),
        sidecar_position=to_count(packed["sidecar"]),
        tail_crc=to_count(packed["crc"]),
        topics=decode_topics(packed["topics"]),
        schema=intern(to_text(packed["schema"])),  # all files of a node have one or two
        tells=bool(packed.get("tells", False)),
        replaces=to_refs(packed.get("replaces", ())),
        parts=to_refs(packed.get("parts", ())),
        kind=to_kind(packed.get("kind", INDEX_KIND)),
        hash_range=_unpack_hashes(packed.get("hashes")),
        groups=_unpack_groups(packed.get("groups")),
        forgets_through=to_optional_count(packed.get("forgets_through")),
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
    return None if packed is None else HashGroups(*map(to_count, packed))


def _unpack_hashes(packed: list[Any] | None) -> HashRange | None:
    if packed is None:
        return None
    first, last = map(to_hash, packed)
    if first > last:
        raise ValueError("hashes")
    return HashRange(first, last)
