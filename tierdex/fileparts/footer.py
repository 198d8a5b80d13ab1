"""The end of an immutable file: parts, the part table, the footer. Every format shares it.

The footer is the last 64 bytes; it is written after everything else is, and says how long the file
must be, so that a cut or grown file is told at once. Depends on layout, checksums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tierdex.errors import CorruptFileError, UnsupportedFormatError
from tierdex.fileparts.checksums import checksum, unit_seed
from tierdex.fileparts.layout import (
    FOOTER,
    FOOTER_BYTES,
    FOOTER_MAGIC,
    FORMAT_VERSION,
    PART_COUNT_MAX,
    PART_ENTRY,
    Part,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_PARTS = frozenset(int(part) for part in Part)


class PartEntry(NamedTuple):
    """Where one part lies. `detail` is the part's own number, e.g. a count of elements."""

    kind: Part
    crc: int
    position: int
    length: int
    detail: int = 0


@dataclass(frozen=True)
class Footer:
    """What the end of a file says. `parts` holds each kind at most once."""

    form: int  # as the format's own enum numbers them
    uuid: bytes
    item_count: int
    file_bytes: int
    table_position: int
    crc: int
    parts: dict[Part, PartEntry]

    def part(self, kind: Part, path: object) -> PartEntry:
        """Return the entry of `kind`. Raises CorruptFileError when the file lacks it."""
        if kind not in self.parts:
            raise CorruptFileError(path, f"part {kind.name.lower()} is missing")
        return self.parts[kind]


def encode_entries(parts: Sequence[PartEntry]) -> bytes:
    """Return part table entries."""
    return np.array([tuple(entry) for entry in parts], PART_ENTRY).tobytes()


def read_entries(data: bytes, path: object) -> dict[Part, PartEntry]:
    """Return part table entries, whose bytes were verified. Raises CorruptFileError."""
    parts: dict[Part, PartEntry] = {}
    for row in np.frombuffer(data, PART_ENTRY):
        kind, crc, begin, size, detail = (int(value) for value in row.item())
        if kind not in _PARTS or Part(kind) in parts:
            raise CorruptFileError(path, f"implausible part {kind}: {size} bytes at {begin}")
        parts[Part(kind)] = PartEntry(Part(kind), crc, begin, size, detail)
    return parts


def encode_footer(
    *, form: int, uuid: bytes, item_count: int, parts: Sequence[PartEntry], position: int
) -> bytes:
    """Return part table and footer, which the caller writes at `position`, the end of all parts."""
    encoded = encode_entries(parts)
    footer = np.zeros((), FOOTER)
    footer["magic"] = FOOTER_MAGIC
    footer["format_version"] = FORMAT_VERSION
    footer["form"] = form
    footer["part_count"] = len(parts)
    footer["uuid"] = np.void(uuid)
    footer["item_count"] = item_count
    footer["file_bytes"] = position + len(encoded) + FOOTER_BYTES
    footer["table_position"] = position
    footer["table_crc"] = checksum(encoded, unit_seed(uuid, Part.PART_TABLE))
    footer["crc"] = checksum(footer.tobytes(), unit_seed(uuid, Part.FOOTER))
    return encoded + footer.tobytes()


def read_footer(
    read_at: Callable[[int, int], bytes],
    file_bytes: int,
    path: object,
    *,
    uuid: bytes | None = None,
) -> Footer:
    """Return the footer of a file of `file_bytes` bytes; `uuid` is what its header says, if known.

    Raises CorruptFileError (cut, grown, damaged, foreign) and UnsupportedFormatError (newer).
    """
    if file_bytes < FOOTER_BYTES:
        raise CorruptFileError(path, f"too short for a footer: {file_bytes} bytes")
    data = read_at(file_bytes - FOOTER_BYTES, FOOTER_BYTES)
    if len(data) != FOOTER_BYTES or data[:8] != FOOTER_MAGIC:
        raise CorruptFileError(path, "no footer at the end: the file is cut or was never finished")
    record = np.frombuffer(data, FOOTER, 1)[0]
    found = bytes(record["uuid"])
    crc_position = FOOTER.fields["crc"][1]  # type: ignore[index]
    unsigned = data[:crc_position] + bytes(4) + data[crc_position + 4 :]
    if checksum(unsigned, unit_seed(found, Part.FOOTER)) != int(record["crc"]):
        raise CorruptFileError(path, "footer checksum differs")
    if int(record["format_version"]) != FORMAT_VERSION:
        raise UnsupportedFormatError(path, f"format version {int(record['format_version'])}")
    if uuid is not None and found != uuid:
        raise CorruptFileError(path, "the footer belongs to another file")
    if int(record["file_bytes"]) != file_bytes:
        raise CorruptFileError(
            path, f"has {file_bytes} bytes, its footer says {int(record['file_bytes'])}"
        )
    return Footer(
        form=int(record["form"]),
        uuid=found,
        item_count=int(record["item_count"]),
        file_bytes=file_bytes,
        table_position=int(record["table_position"]),
        crc=int(record["crc"]),
        parts=_read_table(read_at, record, file_bytes, path),
    )


def _read_table(
    read_at: Callable[[int, int], bytes], record: np.void, file_bytes: int, path: object
) -> dict[Part, PartEntry]:
    count, position = int(record["part_count"]), int(record["table_position"])
    length = count * PART_ENTRY.itemsize
    if count > PART_COUNT_MAX or position + length + FOOTER_BYTES != file_bytes:
        raise CorruptFileError(path, f"implausible part table: {count} parts at {position}")
    data = read_at(position, length)
    if checksum(data, unit_seed(bytes(record["uuid"]), Part.PART_TABLE)) != int(
        record["table_crc"]
    ):
        raise CorruptFileError(path, "part table checksum differs")
    parts = read_entries(data, path)
    for entry in parts.values():
        if entry.position + entry.length > position:
            raise CorruptFileError(
                path,
                f"implausible part {int(entry.kind)}: {entry.length} bytes at {entry.position}",
            )
    return parts


def make_part(
    kind: Part, uuid: bytes, data: bytes | np.ndarray, position: int, detail: int = 0
) -> PartEntry:
    """Return the entry of a part whose bytes are `data` (u1) and lie at `position`."""
    return PartEntry(kind, checksum(data, unit_seed(uuid, kind)), position, len(data), detail)


def read_part(
    read_at: Callable[[int, int], bytes], footer: Footer, kind: Part, path: object
) -> bytes:
    """Return the verified bytes of a part. Raises CorruptFileError."""
    entry = footer.part(kind, path)
    data = read_at(entry.position, entry.length)
    if len(data) != entry.length or checksum(data, unit_seed(footer.uuid, kind)) != entry.crc:
        raise CorruptFileError(path, f"checksum of part {kind.name.lower()} differs")
    return data
