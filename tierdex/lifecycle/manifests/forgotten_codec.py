"""A request to forget, as a manifest's JSON has it. Raises what packed_values does.

Depends on forgotten and packed_values.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

from tierdex.lifecycle.manifests.forgotten import ENTRY, AskedHash, Forgetting
from tierdex.lifecycle.manifests.packed_values import (
    pack_refs,
    to_count,
    to_hash,
    to_integer,
    to_refs,
    to_text,
    to_truth,
    to_uuid,
)


def pack_forgetting(record: Forgetting) -> dict[str, Any]:
    """Return a record as JSON values."""
    return {
        "uuid": record.uuid.hex(),
        "number": record.number,
        "begun": record.begun,
        "time": record.time_ms,
        "asked": [list(each) for each in record.asked],
        "waits": list(record.waits),
        "rewrites": record.rewrites,
        "entries": b64encode(record.entries).decode(),
        "bounds": dict(record.bounds),
        "files": pack_refs(record.files),
        "only": None if record.only is None else [list(each) for each in record.only],
        "only_node": record.only_node,
        **({"sources": list(record.sources)} if record.sources else {}),
    }


def to_forgetting(packed: dict[str, Any]) -> Forgetting:
    """Return the record that was packed."""
    entries = b64decode(packed["entries"], validate=True)
    if len(entries) % ENTRY.itemsize:
        raise ValueError("entries")
    bounds = {to_text(node): to_count(number) for node, number in packed["bounds"].items()}
    only, only_node = packed.get("only"), packed.get("only_node")
    return Forgetting(
        uuid=to_uuid(packed["uuid"]),
        number=to_count(packed.get("number", 0)),
        begun=to_count(packed.get("begun", 0)),
        time_ms=to_integer(packed["time"]),
        asked=tuple(_unpack_asked(*each) for each in packed["asked"]),
        waits=tuple(map(to_text, packed["waits"])),
        rewrites=to_truth(packed["rewrites"]),
        entries=entries,
        bounds=bounds,
        files=to_refs(packed["files"]),
        only=None if only is None else tuple((to_count(queue), to_count(at)) for queue, at in only),
        only_node=None if only_node is None else to_text(only_node),
        sources=tuple(map(to_text, packed.get("sources", ()))),
    )


def _unpack_asked(topic: Any, kind: Any, key_hash: Any) -> AskedHash:
    if kind not in (0, 1) or (topic is None and kind == 0):
        raise ValueError(f"not a kind of name: {kind!r}")
    return AskedHash(None if topic is None else to_text(topic), int(kind), to_hash(key_hash))
