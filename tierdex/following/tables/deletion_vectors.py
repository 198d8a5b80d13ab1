"""Deletion vectors: the deleted rows of a data file, as Delta and Iceberg v3 write them.

Both hold the portable form of a 64-bit roaring bitmap (RoaringFormatSpec, "extension for 64-bit
implementations"); around it Delta puts a magic number, and a length and CRC-32 where it lies in a file.
Delta's descriptor is that of its protocol ("Deletion Vectors"): `u` a file below the table by an encoded
UUID, `p` a file by its address, `i` the vector itself. Texts are in Z85 (ZeroMQ RFC 32).

Depends on errors, numpy and pyroaring.
"""

from __future__ import annotations

import uuid
import zlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tierdex.errors import CorruptFileError, InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAGIC: Final = 1681511377
_Z85: Final = (
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
)
_Z85_OF: Final = {letter: number for number, letter in enumerate(_Z85)}
_UUID_TEXT: Final = 20  # characters of a UUID in Z85


def rows_of_bitmap(data: bytes, where: str) -> np.ndarray:
    """Return the positions in a portable 64-bit roaring bitmap: u8, rising. Raises CorruptFileError."""
    try:
        from pyroaring import BitMap64
    except ImportError as error:
        raise InvalidRequestError(
            f"the table has deletion vectors: pip install 'tierdex[delta]' ({error})",
            field="source",
        ) from error
    try:
        return np.array(BitMap64.deserialize(data).to_array(), np.uint64)
    except (ValueError, OverflowError, RuntimeError) as error:
        raise CorruptFileError(where, f"holds no bitmap of deleted rows: {error}") from error


def decode_z85(text: str) -> bytes:
    """Return the bytes of a text in Z85. Raises ValueError.

    A last group that begins with ``#``, which no whole group does, has a byte less for each of them: so
    delta-kernel writes lengths that are no multiple of four.
    """
    if len(text) % 5:
        raise ValueError(f"{len(text)} characters are no Z85")
    made = b""
    for at in range(0, len(text), 5):
        group = text[at : at + 5]
        digits = group.lstrip("#") if at + 5 == len(text) and group[0] == "#" else group
        value = 0
        for letter in digits:
            if letter not in _Z85_OF:
                raise ValueError(f"{letter!r} is no Z85")
            value = value * 85 + _Z85_OF[letter]
        try:
            made += value.to_bytes(len(digits) - 1, "big")
        except OverflowError as error:
            raise ValueError(f"{group!r} is no Z85") from error
    return made


def rows_of_delta(
    descriptor: Mapping[str, Any], read: Callable[[str, int, int], bytes]
) -> np.ndarray:
    """Return the deleted rows of a descriptor; `read` reads a range of a file of the table.

    Raises CorruptFileError, and what `read` raises.
    """
    text = str(descriptor["pathOrInlineDv"])
    size = int(descriptor["sizeInBytes"])
    kind = descriptor["storageType"]
    if kind == "i":
        try:
            data = decode_z85(text)[:size]
        except ValueError as error:
            raise CorruptFileError("an inline deletion vector", str(error)) from error
        rows = _of_delta(data, "an inline deletion vector")
    else:
        path = path_of_delta(descriptor)
        begin = int(descriptor.get("offset") or 0)
        block = read(path, begin, size + 8)
        if len(block) != size + 8 or int.from_bytes(block[:4], "big") != size:
            raise CorruptFileError(path, f"has no deletion vector of {size} bytes at {begin}")
        data = block[4:-4]
        if zlib.crc32(data) != int.from_bytes(block[-4:], "big"):
            raise CorruptFileError(path, f"the deletion vector at {begin} is damaged")
        rows = _of_delta(data, path)
    count = descriptor.get("cardinality")
    if count is not None and int(count) != len(rows):
        raise CorruptFileError(text, f"has {len(rows)} deleted rows, and {count} are announced")
    return rows


def path_of_delta(descriptor: Mapping[str, Any]) -> str:
    """Return the path below the table, or the address, of the file that has a vector."""
    text = str(descriptor["pathOrInlineDv"])
    if descriptor["storageType"] == "p":
        return text
    if descriptor["storageType"] != "u" or len(text) < _UUID_TEXT:
        raise CorruptFileError(text[:80], "is no place of a deletion vector")
    prefix, encoded = text[:-_UUID_TEXT], text[-_UUID_TEXT:]
    try:
        name = uuid.UUID(bytes=decode_z85(encoded))
    except ValueError as error:
        raise CorruptFileError(text, str(error)) from error
    return f"{prefix}/deletion_vector_{name}.bin" if prefix else f"deletion_vector_{name}.bin"


def _of_delta(data: bytes, where: str) -> np.ndarray:
    if len(data) < 4 or int.from_bytes(data[:4], "little") != MAGIC:
        raise CorruptFileError(where, "does not begin as a deletion vector does")
    return rows_of_bitmap(data[4:], where)


def mark_of_delta(descriptor: Mapping[str, Any] | None) -> str:
    """Return what tells a vector from another one of the same file: the protocol's unique ID."""
    if descriptor is None:
        return ""
    offset = descriptor.get("offset")
    place = "" if offset is None else f"@{offset}"
    return f"{descriptor['storageType']}{descriptor['pathOrInlineDv']}{place}"
