"""The header of a log file, and what its writer's caller added: encode, decode, and what is plausible.

Everything in it is fixed at the file's birth, but for the predecessor's record of a journal. Sizes are
checked here before memory is allocated by them. Depends on filesystem, layout and fileparts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tierdex.errors import CorruptFileError, UnsupportedFormatError
from tierdex.fileparts.header import sign_header, verified_header
from tierdex.fileparts.layout import BLOCK_BYTES, FORMAT_VERSION, HEADER_BYTES, PREDECESSOR_POSITION
from tierdex.fileparts.predecessor import decode_predecessor
from tierdex.logfile import layout
from tierdex.logfile.layout import Codec, Form

if TYPE_CHECKING:
    from pathlib import Path

    from tierdex.filesystem import FileSystem


@dataclass(frozen=True)
class LogHeader:
    """What a log file says about itself. `capacity` is 0 when grouped, `page_bytes` in a journal."""

    form: Form
    uuid: bytes
    created_ms: int
    generation: int
    capacity: int = 0
    page_bytes: int = 0
    codec: Codec = Codec.PLAIN

    def encode(self) -> bytes:
        """Return the 4096 bytes of the header, without a predecessor."""
        header = np.zeros((), layout.HEADER)
        header["magic"] = layout.HEADER_MAGIC
        header["format_version"] = FORMAT_VERSION
        header["uuid"] = np.void(self.uuid)
        for name in ("form", "codec", "created_ms", "capacity", "generation", "page_bytes"):
            header[name] = getattr(self, name)
        return sign_header(header)

    def grouped(self, *, page_bytes: int, codec: Codec) -> LogHeader:
        """Return the header of this file's grouped form."""
        return replace(self, form=Form.GROUPED, capacity=0, page_bytes=page_bytes, codec=codec)


def decode_log_header(data: bytes, path: object, *, form: Form | None = None) -> LogHeader:
    """Return the header in `data`, the first 4096 bytes of the file at `path`.

    Raises UnsupportedFormatError (foreign or newer) and CorruptFileError; `form` is the form that the
    caller can read, None for any.
    """
    header = verified_header(data, layout.HEADER, layout.HEADER_MAGIC, path, noun="a log file")
    try:
        found, codec = Form(int(header["form"])), Codec(int(header["codec"]))
    except ValueError as error:
        raise UnsupportedFormatError(path, f"unknown form or codec: {error}") from None
    if form is not None and found is not form:
        raise CorruptFileError(path, f"is in {found.name.lower()} form, not {form.name.lower()}")
    behind = data[layout.HEADER.itemsize : PREDECESSOR_POSITION]
    if int(header["lanes"]) or (bytes(header["reserved"]) + behind).strip(b"\0"):
        raise CorruptFileError(path, "reserved bytes of the header are not zero")
    result = LogHeader(
        form=found,
        uuid=bytes(header["uuid"]),
        created_ms=int(header["created_ms"]),
        generation=int(header["generation"]),
        capacity=int(header["capacity"]),
        page_bytes=int(header["page_bytes"]),
        codec=codec,
    )
    check_sizes(result, path)
    if decode_predecessor(data[:HEADER_BYTES], result.uuid, path) is not None and (
        found is Form.GROUPED
    ):
        raise CorruptFileError(path, "a grouped file names a predecessor")
    return result


def is_log_file(filesystem: FileSystem, path: Path) -> bool:
    """Return whether a file begins as a log file does. Raises OSError."""
    file = filesystem.open(path)
    try:
        return file.read_at(0, len(layout.HEADER_MAGIC)) == layout.HEADER_MAGIC
    finally:
        file.close()


def check_sizes(header: LogHeader, path: object) -> None:
    """Raise CorruptFileError when a size is out of its bounds, or another form's."""
    capacity, page_bytes = header.capacity, header.page_bytes
    if header.form is Form.JOURNAL:
        least, most = layout.JOURNAL_BYTES_MIN, layout.JOURNAL_BYTES_MAX
        if not least <= capacity <= most or capacity % BLOCK_BYTES:
            raise CorruptFileError(path, f"implausible capacity {capacity}")
        if page_bytes or header.codec is not Codec.PLAIN:
            raise CorruptFileError(path, "a journal has pages")
    elif capacity or not layout.PAGE_BYTES_MIN <= page_bytes <= layout.PAGE_BYTES_MAX:
        raise CorruptFileError(path, f"implausible page size {page_bytes} or capacity {capacity}")


def decode_extra(data: bytes, path: object) -> dict[str, Any]:
    """Return what the caller of a file's writer added, JSON's. Raises CorruptFileError."""
    try:
        extra = json.loads(data)
    except ValueError as error:
        raise CorruptFileError(path, f"extra: {error}") from error
    if not isinstance(extra, dict):
        raise CorruptFileError(path, "extra is not an object")
    return extra
