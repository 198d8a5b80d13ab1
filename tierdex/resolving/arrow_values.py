"""Rows of Arrow as trees of JSON: each value in its own words, nothing rounded, no field left out.

Python's own types cannot hold all that a file holds: an infinity, a date beyond 9999, nanoseconds, two fields
of one name in a struct. So a value is read as the integer or the bytes that are stored::

    decimal          "12.50"                            all digits of its scale
    timestamp        "2024-03-01T10:00:00.123456789"    see stored_times.py
    float            NaN, Infinity                      as JSON bodies have them
    text             that is not UTF-8: its bytes are escaped
    binary           text where it is UTF-8, else base64; a UUID in its text form
    map              [[key, value], ...]

Depends on json_text, stored_times, numpy and pyarrow.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from tierdex.resolving.json_text import Number, Pairs, float_number, tree_of, write
from tierdex.resolving.stored_times import clock_text, date_text, duration_text, timestamp_text

if TYPE_CHECKING:
    from collections.abc import Callable

_DAY_MS: Final = 86_400_000
_is: Any = pa.types


def json_of_row(row: pa.Table) -> bytes:
    """Return the one row of a table as a JSON object: all columns, of one name too."""
    pairs = [[n, _tree(c[0])] for n, c in zip(row.column_names, row.columns, strict=True)]
    return write(Pairs(pairs), indented=False).encode(errors="backslashreplace")


def _tree(value: Any) -> Any:
    """Return the tree of a scalar; of an unknown type, what Arrow says of it."""
    if not value.is_valid:
        return None
    for is_such, made in _WAYS:
        if is_such(value.type):
            return made(value)
    try:
        return tree_of(value.as_py())
    except Exception:  # noqa: BLE001 - a type of Arrow's future, of any kind of wrongness
        return str(value)


def _float(value: Any) -> Any:
    kind = value.type
    if _is.is_float64(kind):
        return float_number(value.as_py())
    short = np.float16 if _is.is_float16(kind) else np.float32
    return float_number(float(str(short(value.as_py()))))  # its own digits, not those of a double


def _timestamp(value: Any) -> str:
    return timestamp_text(value.value, value.type.unit, value.type.tz)


def _date(value: Any) -> str:
    if _is.is_date32(value.type):
        return date_text(value.value)
    days, rest = divmod(value.value, _DAY_MS)
    return timestamp_text(value.value, "ms") if rest else date_text(days)


def _text(value: Any) -> str:
    return _bytes_of(value).decode(errors="backslashreplace")


def _bytes(value: Any) -> str:
    data = _bytes_of(value)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return str(tree_of(data))


def _bytes_of(value: Any) -> bytes:
    buffer = value.as_buffer()
    return b"" if buffer is None else buffer.to_pybytes()


def _extension(value: Any) -> Any:
    if value.type.extension_name == "arrow.uuid":
        return str(uuid.UUID(bytes=_bytes_of(value.value)))
    return _tree(value.value)


def _struct(value: Any) -> Pairs:
    kind = value.type
    return Pairs([[kind.field(n).name, _tree(value[n])] for n in range(kind.num_fields)])


def _list(value: Any) -> list[Any]:
    return [_tree(each) for each in value.values]


def _map(value: Any) -> list[Any]:
    return [[_tree(each[0]), _tree(each[1])] for each in value.values]


def _is_text(kind: Any) -> bool:
    return bool(_is.is_string(kind) or _is.is_large_string(kind) or _is.is_string_view(kind))


def _is_binary(kind: Any) -> bool:
    return bool(
        _is.is_binary(kind) or _is.is_large_binary(kind) or _is.is_binary_view(kind)
        or _is.is_fixed_size_binary(kind)
    )  # fmt: skip


def _is_list(kind: Any) -> bool:
    return bool(
        _is.is_list(kind) or _is.is_large_list(kind) or _is.is_fixed_size_list(kind)
        or _is.is_list_view(kind) or _is.is_large_list_view(kind)
    )  # fmt: skip


_WAYS: Final[tuple[tuple[Callable[[Any], bool], Callable[[Any], Any]], ...]] = (
    (lambda kind: isinstance(kind, pa.BaseExtensionType), _extension),
    (_is_text, _text),
    (_is.is_boolean, lambda value: value.as_py()),
    (_is.is_integer, lambda value: Number(value.as_py())),
    (_is.is_floating, _float),
    (_is.is_timestamp, _timestamp),
    (_is.is_date, _date),
    (_is.is_time, lambda value: clock_text(value.value, value.type.unit)),
    (_is.is_duration, lambda value: duration_text(value.value, value.type.unit)),
    (_is.is_decimal, lambda value: format(value.as_py(), "f")),
    (_is_binary, _bytes),
    (_is.is_map, _map),
    (_is_list, _list),
    (_is.is_struct, _struct),
    (_is.is_dictionary, lambda value: _tree(value.value)),
)
