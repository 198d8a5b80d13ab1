"""Values from a manifest's JSON, each checked; an invalid one raises.

Integers are exact over int64 (hashes over 64 bits without a sign); uuids are hex. Raises ValueError or
TypeError; the codec turns either into damage.

Depends on file_row and manifest.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from tierdex.lifecycle.manifests.file_row import FileRef
from tierdex.lifecycle.manifests.manifest import NOTHING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_KIND: Final = re.compile(r"[a-z][a-z0-9_]{0,31}")
_INT64: Final = 1 << 63
_HASHES: Final = 1 << 64


def frozen(mapping: dict[Any, Any]) -> Mapping[Any, Any]:
    """Return a read-only mapping."""
    return MappingProxyType(mapping) if mapping else NOTHING


def to_uuid(value: str) -> bytes:
    """Return 16 bytes."""
    uuid = bytes.fromhex(value)
    if len(uuid) != 16:
        raise ValueError("uuid")
    return uuid


def to_integer(value: object) -> int:
    """Return an int64."""
    if type(value) is not int or not -_INT64 <= value < _INT64:
        raise ValueError(f"not an int64: {value!r}")
    return value


def to_count(value: object) -> int:
    """Return an int64 of at least 0."""
    number = to_integer(value)
    if number < 0:
        raise ValueError(f"negative: {number}")
    return number


def to_optional_count(value: object) -> int | None:
    """Return an int64 of at least 0; None stays."""
    return None if value is None else to_count(value)


def to_truth(value: object) -> bool:
    """Return a bool."""
    if type(value) is not bool:
        raise TypeError(f"neither true nor false: {value!r}")
    return value


def to_hash(value: object) -> int:
    """Return an unsigned 64-bit hash."""
    if type(value) is not int or not 0 <= value < _HASHES:
        raise ValueError(f"not a hash: {value!r}")
    return value


def to_kind(value: object) -> str:
    """Return the name of a kind of file."""
    if not isinstance(value, str) or not _KIND.fullmatch(value):
        raise ValueError(f"not a kind of file: {value!r}")
    return value


def to_text(value: object) -> str:
    """Return a string."""
    if not isinstance(value, str):
        raise TypeError(f"not a text: {value!r}")
    return value


def pack_refs(refs: Iterable[FileRef]) -> list[list[Any]]:
    """Return files as JSON values."""
    return [[ref.node, ref.uuid.hex(), ref.number] for ref in refs]


def to_refs(packed: Iterable[Any]) -> tuple[FileRef, ...]:
    """Return the files that `pack_refs` was given."""
    return tuple(FileRef(to_text(node), to_uuid(uuid), to_count(n)) for node, uuid, n in packed)
