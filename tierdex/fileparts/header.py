"""The header of a file: 4096 bytes under a checksum of their own, whatever the format says in them.

The checksum takes its own field and the predecessor's record as zero: that record is written later, and
has its own. Not seeded: the file's uuid is not known before the header is read.

Depends on layout and google_crc32c.
"""

from __future__ import annotations

import google_crc32c
import numpy as np

from tierdex.errors import CorruptFileError, UnsupportedFormatError
from tierdex.fileparts.layout import FORMAT_VERSION, HEADER_BYTES, PREDECESSOR_POSITION


def sign_header(header: np.ndarray, behind: bytes = b"") -> bytes:
    """Return the 4096 bytes of a header: the struct `header`, its crc set, then `behind`, then zeros."""
    header["crc"] = 0
    header["crc"] = google_crc32c.value((header.tobytes() + behind).ljust(HEADER_BYTES, b"\0"))
    return (header.tobytes() + behind).ljust(HEADER_BYTES, b"\0")


def verified_header(
    data: bytes,
    dtype: np.dtype,
    magic: bytes,
    path: object,
    *,
    noun: str,
    newest: int = FORMAT_VERSION,
) -> np.void:
    """Return the struct at the beginning of `data`, the first bytes of the file at `path`.

    `noun` says in an error what the file should be, `newest` is the highest version to read. Raises
    UnsupportedFormatError (foreign or newer) and CorruptFileError.
    """
    if data[: len(magic)] != magic:
        if len(data) < len(magic) or not any(data):
            raise CorruptFileError(path, f"no header: the file begins with {len(data)} bytes")
        raise UnsupportedFormatError(path, f"not {noun}: unknown magic")
    if len(data) < HEADER_BYTES:
        raise CorruptFileError(path, f"header cut to {len(data)} bytes")
    header: np.void = np.frombuffer(data, dtype, 1)[0]
    version = int(header["format_version"])
    unsigned = bytearray(data[:HEADER_BYTES])
    crc_position = dtype.fields["crc"][1]  # type: ignore[index]
    unsigned[crc_position : crc_position + 4] = bytes(4)
    unsigned[PREDECESSOR_POSITION:] = bytes(HEADER_BYTES - PREDECESSOR_POSITION)
    if google_crc32c.value(bytes(unsigned)) != int(header["crc"]):
        # A newer version may keep its checksum elsewhere: the version is what helps the reader.
        if version > newest:
            raise UnsupportedFormatError(
                path, f"format version {version} is newer than this program"
            )
        raise CorruptFileError(path, "header checksum differs")
    if not FORMAT_VERSION <= version <= newest:
        raise UnsupportedFormatError(path, f"format version {version} cannot be read")
    return header
