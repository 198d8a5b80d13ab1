"""Protobuf payloads, by protobuf's own dynamic messages; the registry compiles the schemas.

The JSON is protobuf's, field by field, so that one odd field hides no other: a well-known type that has no
JSON form (a time beyond 9999, an Any of a type that is not in the schema, NaN in a Value) is shown by its
fields.

Depends on json_text, registry, resolver, numpy and google.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any, Final

import numpy as np
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
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from tierdex.resolving.json_text import Number, Opaque, Pairs, parse
from tierdex.resolving.resolver import UndecodedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.resolving.registry import Schema

_NAME: Final = "tierdex-main.proto"
_WELL_KNOWN: Final[Any] = (
    any_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2,
    wrappers_pb2,
)  # fmt: skip
_PACKAGE: Final = "google.protobuf."


def protobuf_reader(schema: Schema) -> Callable[[bytes], tuple[Any, list[str]]]:
    """Return what makes the tree of one payload, and notes about it; field names are the schema's.

    It raises UndecodedError for a message index that the file does not have, and protobuf's DecodeError.
    """
    types = _Types(schema, texts_are_bytes=False)
    lenient: list[_Types] = []

    def read(payload: bytes) -> tuple[Any, list[str]]:
        path, at = _path(payload)
        wanted = types
        try:
            message = wanted.message(path, payload[at:])
        except DecodeError:
            # One text that is not UTF-8 makes protobuf refuse the message: as bytes it is read.
            if not lenient:
                lenient.append(_Types(schema, texts_are_bytes=True))
            wanted = lenient[0]
            message = wanted.message(path, payload[at:])
        tree = _Tree(wanted)
        return tree.of_message(message, "$"), tree.notes

    return read


class _Types:
    """The message types of one schema, in a pool of their own.

    With `texts_are_bytes` fields of texts have bytes; `texts` are those (type's name, field's number).
    """

    def __init__(self, schema: Schema, *, texts_are_bytes: bool) -> None:
        self.pool: Any = descriptor_pool.DescriptorPool()
        self.texts: set[tuple[str, int]] = set()
        self._texts_are_bytes = texts_are_bytes
        added: set[str] = set()
        for module in _WELL_KNOWN:
            found = descriptor_pb2.FileDescriptorProto()
            module.DESCRIPTOR.CopyToProto(found)
            self.pool.Add(found)
            added.add(found.name)
        self._add(schema, _NAME, added)
        names = [each.name for each in _file_of(schema).message_type]
        by_name: Any = self.pool.FindFileByName(_NAME).message_types_by_name
        self._top = [by_name[name] for name in names]

    def message(self, path: list[int], data: bytes) -> Any:
        """Return the message of the type that a path leads to."""
        kinds: Any = self._top
        kind: Any = None
        for number in path:
            if not 0 <= number < len(kinds):
                raise UndecodedError(f"its message index {number} is none of the schema's")
            kind = kinds[number]
            kinds = kind.nested_types
        message = message_factory.GetMessageClass(kind)()
        message.ParseFromString(data)
        return message

    def _add(self, schema: Schema, name: str, added: set[str]) -> None:
        """Add a file and what it imports to the pool, under the names by which it is imported."""
        for imported, referred in schema.references.items():
            if imported not in added:
                self._add(referred, imported, added)
        file = _file_of(schema)
        file.name = name
        if self._texts_are_bytes:
            for kind in file.message_type:
                self._make_bytes(kind, f"{file.package}.{kind.name}".lstrip("."))
        self.pool.Add(file)
        added.add(name)

    def _make_bytes(self, kind: Any, name: str) -> None:
        for nested in kind.nested_type:
            self._make_bytes(nested, f"{name}.{nested.name}")
        for field in kind.field:
            is_map_key = kind.options.map_entry and field.number == 1  # which may be no bytes
            if field.type == field.TYPE_STRING and not is_map_key:
                field.type = field.TYPE_BYTES
                field.ClearField("default_value")
                self.texts.add((name, field.number))


class _Tree:
    """Makes the tree of one message; `notes` are about what is shown in another form, or not at all."""

    def __init__(self, types: _Types) -> None:
        self._types = types
        self.notes: list[str] = []

    def of_message(self, message: Any, path: str) -> Any:
        kind = message.DESCRIPTOR
        if kind.full_name.startswith(_PACKAGE) and kind.full_name != "google.protobuf.Empty":
            try:
                return parse(
                    json_format.MessageToJson(
                        message, preserving_proto_field_name=True, ensure_ascii=False,
                        descriptor_pool=self._types.pool,
                    )
                )  # fmt: skip
            except Exception:  # noqa: BLE001 - raised by protobuf: of any type
                self.notes.append(f"{path}: {kind.full_name} without a JSON form, by its fields")
                return Opaque(self._fields(message, path))
        return self._fields(message, path)

    def _fields(self, message: Any, path: str) -> Pairs:
        pairs = Pairs()
        for field, value in message.ListFields():
            name = f"[{field.full_name}]" if field.is_extension else field.name
            pairs.append([name, self._field(field, value, f"{path}.{name}")])
        unknown = sorted({each.field_number for each in UnknownFieldSet(message)})
        if unknown:
            listed = ", ".join(map(str, unknown[:10]))
            self.notes.append(f"{path} has fields that the schema does not know: {listed}")
        return pairs

    def _field(self, field: Any, value: Any, path: str) -> Any:
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            of_value = kind.fields_by_name["value"]
            return Pairs(
                [
                    [_map_key(key), self._value(of_value, value[key], f"{path}.*")]
                    for key in value  # in protobuf's own order
                ]
            )
        if field.is_repeated:
            return [self._value(field, each, f"{path}[{n}]") for n, each in enumerate(value)]
        return self._value(field, value, path)

    def _value(self, field: Any, value: Any, path: str) -> Any:
        if field.cpp_type == field.CPPTYPE_MESSAGE:
            return self.of_message(value, path)
        if field.cpp_type == field.CPPTYPE_ENUM:
            return _enum(field.enum_type, value)
        if field.type == field.TYPE_BYTES:
            if (field.containing_type.full_name, field.number) in self._types.texts:
                return self._text(value, path)
            return b64encode(value).decode()
        if field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64):
            return str(value)  # exact wherever it is read
        if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
            return _float(value, is_short=field.cpp_type == field.CPPTYPE_FLOAT)
        return value if isinstance(value, bool | str) else Number(value)

    def _text(self, data: bytes, path: str) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError:
            self.notes.append(f"{path} is not UTF-8, its odd bytes are shown as \\xNN")
            return data.decode(errors="backslashreplace")


def _map_key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _enum(kind: Any, number: int) -> Any:
    if kind.full_name == "google.protobuf.NullValue":
        return None
    known = kind.values_by_number.get(number)
    return Number(number) if known is None else known.name


def _float(value: float, *, is_short: bool) -> Any:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return Number(repr(float(str(np.float32(value))) if is_short else value))


def _file_of(schema: Schema) -> Any:
    found = descriptor_pb2.FileDescriptorProto()
    found.ParseFromString(b64decode(schema.text))
    return found


def _path(payload: bytes) -> tuple[list[int], int]:
    """Return the numbers that lead to the message's type, and where the message begins.

    They are zigzag varints: how many, then each; a lone zero stands for the first type.
    """
    count, at = _varint(payload, 0)
    if count == 0:
        return [0], at
    if not 0 < count <= 32:
        raise UndecodedError("it does not begin with a message index")
    path = []
    for _ in range(count):
        number, at = _varint(payload, at)
        path.append(number)
    return path, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 35:
            raise UndecodedError("it does not begin with a message index")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), at
        shift += 7
