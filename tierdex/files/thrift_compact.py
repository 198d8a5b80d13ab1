"""Thrift's compact form, as Parquet's footer and indexes have it: decoded without a schema, encoded again.

A struct is {field number: (type, value)}, a list (type of its elements, values). Types are those of the form:
1 and 2 are true and false, 3 to 6 integers, 7 a double (its eight bytes), 8 bytes, 9 a list, 12 a struct.

Pure. Depends on nothing.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

Struct: TypeAlias = "dict[int, tuple[int, Any]]"
TRUE, FALSE, BYTE, I32, I64, DOUBLE, BINARY, LIST, STRUCT = 1, 2, 3, 5, 6, 7, 8, 9, 12
_INTEGERS: Final = range(4, 7)
_LONG_LIST: Final = 15


class NotCompactError(ValueError):
    """The bytes are no struct in this form, or have a type that Parquet does not use."""


def decode(source: bytes) -> Struct:
    """Return the struct that the bytes begin with. Raises NotCompactError."""
    return decode_at(source, 0)[0]


def decode_at(source: bytes, position: int) -> tuple[Struct, int]:
    """Return the struct at a position, and the position behind it. Raises NotCompactError."""
    reader = _Reader(source, position)
    try:
        return reader.struct(), reader.at
    except (IndexError, RecursionError) as error:
        raise NotCompactError("it ends within a struct") from error


def encode(struct: Struct) -> bytes:
    """Return a struct's bytes."""
    out = bytearray()
    _put_struct(out, struct)
    return bytes(out)


class _Reader:
    def __init__(self, source: bytes, at: int) -> None:
        self._source = source
        self.at = at

    def struct(self) -> Struct:
        found: Struct = {}
        number = 0
        while (head := self._byte()) != 0:
            number = number + (head >> 4) if head >> 4 else self._integer()
            found[number] = (head & 15, self._value(head & 15))
        return found

    def _value(self, kind: int) -> Any:
        if kind in (TRUE, FALSE):
            return kind == TRUE
        if kind == BYTE:
            return self._byte()
        if kind in _INTEGERS:
            return self._integer()
        if kind == DOUBLE:
            return self._bytes(8)
        if kind == BINARY:
            return self._bytes(self._varint())
        if kind == LIST:
            return self._list()
        if kind == STRUCT:
            return self.struct()
        raise NotCompactError(f"has a value of type {kind}")

    def _list(self) -> tuple[int, list[Any]]:
        head = self._byte()
        count = head >> 4 if head >> 4 < _LONG_LIST else self._varint()
        kind = head & 15
        if kind in (TRUE, FALSE):
            return kind, [self._byte() == TRUE for _ in range(count)]
        return kind, [self._value(kind) for _ in range(count)]

    def _byte(self) -> int:
        self.at += 1
        return self._source[self.at - 1]

    def _bytes(self, count: int) -> bytes:
        self.at += count
        if self.at > len(self._source):
            raise IndexError
        return self._source[self.at - count : self.at]

    def _varint(self) -> int:
        found = shift = 0
        while True:
            byte = self._byte()
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return found
            shift += 7

    def _integer(self) -> int:
        found = self._varint()
        return (found >> 1) ^ -(found & 1)


def _put_struct(out: bytearray, struct: Struct) -> None:
    before = 0
    for number, (kind, value) in sorted(struct.items()):
        if kind in (TRUE, FALSE):
            kind = TRUE if value else FALSE
        if 0 < number - before <= 15:
            out.append((number - before) << 4 | kind)
        else:
            out.append(kind)
            _put_varint(out, number << 1)
        before = number
        if kind not in (TRUE, FALSE):
            _put_value(out, kind, value)
    out.append(0)


def _put_value(out: bytearray, kind: int, value: Any) -> None:
    if kind == BYTE:
        out.append(value)
    elif kind in _INTEGERS:
        _put_varint(out, value << 1 if value >= 0 else (-value << 1) - 1)
    elif kind == DOUBLE:
        out += value
    elif kind == BINARY:
        _put_varint(out, len(value))
        out += value
    elif kind == STRUCT:
        _put_struct(out, value)
    else:
        _put_list(out, *value)


def _put_list(out: bytearray, kind: int, values: list[Any]) -> None:
    if len(values) < _LONG_LIST:
        out.append(len(values) << 4 | kind)
    else:
        out.append(_LONG_LIST << 4 | kind)
        _put_varint(out, len(values))
    for value in values:
        if kind in (TRUE, FALSE):
            out.append(TRUE if value else FALSE)
        else:
            _put_value(out, kind, value)


def _put_varint(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
