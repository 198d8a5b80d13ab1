"""Protobuf payloads, by protobuf's own dynamic messages; the registry compiles the schemas.

Depends on registry and google.
"""

from __future__ import annotations

from base64 import b64decode
from typing import TYPE_CHECKING, Any

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    json_format,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.resolving.registry import Schema

_NAME = "tierdex-main.proto"
_WELL_KNOWN: Any = (
    any_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2,
    wrappers_pb2,
)  # fmt: skip


def protobuf_reader(schema: Schema) -> Callable[[bytes], str]:
    """Return what makes JSON of one payload, field names as in the schema, int64 as exact text."""
    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()
    for module in _WELL_KNOWN:
        found = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(found)
        pool.Add(found)
        added.add(found.name)
    file = _add(pool, schema, _NAME, added)

    def read(payload: bytes) -> str:
        path, at = _path(payload)
        kind: Any = pool.FindFileByName(file)
        names = [each.name for each in _types(schema)]
        wanted = kind.message_types_by_name[names[path[0]]]
        for number in path[1:]:
            wanted = wanted.nested_types[number]
        message = message_factory.GetMessageClass(wanted)()
        message.ParseFromString(payload[at:])
        written: str = json_format.MessageToJson(
            message, preserving_proto_field_name=True, ensure_ascii=False, descriptor_pool=pool
        )
        return written

    return read


def _file_of(schema: Schema) -> Any:
    found = descriptor_pb2.FileDescriptorProto()
    found.ParseFromString(b64decode(schema.text))
    return found


def _types(schema: Schema) -> Any:
    return _file_of(schema).message_type


def _add(pool: Any, schema: Schema, name: str, added: set[str]) -> str:
    """Add a file and what it imports to the pool, under the names by which it is imported."""
    for imported, referred in schema.references.items():
        if imported not in added:
            _add(pool, referred, imported, added)
    file = _file_of(schema)
    file.name = name
    pool.Add(file)
    added.add(name)
    return name


def _path(payload: bytes) -> tuple[list[int], int]:
    """Return the numbers that lead to the message's type, and where the message begins.

    They are zigzag varints: how many, then each; a lone zero stands for the first type.
    """
    count, at = _varint(payload, 0)
    if count == 0:
        return [0], at
    if not 0 < count <= 32:
        raise ValueError("no path")
    path = []
    for _ in range(count):
        number, at = _varint(payload, at)
        path.append(number)
    return path, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), at
        shift += 7
        if shift > 35:
            raise ValueError("no number")
