"""The header of an index file: encode, decode, and what is plausible.

Everything in it is fixed at the file's birth. Sizes are checked here before memory is allocated by
them. Depends on fileparts, layout and schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tierdex.errors import CorruptFileError, UnsupportedFormatError
from tierdex.fileparts.header import sign_header, verified_header
from tierdex.fileparts.layout import BLOCK_BYTES, round_up
from tierdex.fileparts.predecessor import decode_predecessor
from tierdex.indexfile import layout
from tierdex.indexfile.layout import Form
from tierdex.indexfile.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class FileHeader:
    """What a file says about itself. `row_capacity` is 0 in the compacted form."""

    form: Form
    uuid: bytes
    schema: Schema
    slot_count: int
    item_capacity: int
    row_capacity: int
    created_ms: int
    hash_function: int = layout.HASH_XXH64_TOPIC_SEEDED
    hash_seed: int = layout.HASH_SEED

    def encode(self) -> bytes:
        """Return the 4096 bytes of the header."""
        schema = self.schema.encode()
        header = np.zeros((), layout.HEADER)
        header["magic"] = layout.HEADER_MAGIC
        header["format_version"] = self.schema.format_version
        header["form"] = self.form
        header["uuid"] = np.void(self.uuid)
        for name in ("hash_function", "hash_seed", "slot_count", "item_capacity", "row_capacity"):
            header[name] = getattr(self, name)
        header["created_ms"] = self.created_ms
        header["item_bytes"] = self.schema.item_bytes
        header["schema_bytes"] = len(schema)
        return sign_header(header, schema)

    @property
    def full_length(self) -> int:
        """The length of an unsealed file, used or not."""
        return round_up(self.row_end(self.row_capacity), BLOCK_BYTES)

    def row_end(self, row: int) -> int:
        """Return the byte after row `row` of a chained file."""
        return layout.rows_position(self.slot_count) + row * self.schema.item_bytes


def decode_header(data: bytes, path: object, *, form: Form | None = None) -> FileHeader:
    """Return the header in `data`, the first 4096 bytes of the file at `path`.

    Raises UnsupportedFormatError (foreign or newer) and CorruptFileError; `form` is the form that the
    caller can read, None for any.
    """
    newest = layout.SEQUENCE_FORMAT_VERSION
    header = verified_header(
        data, layout.HEADER, layout.HEADER_MAGIC, path, noun="an index file", newest=newest
    )
    return _plausible(header, data, path, form)


def read_chained_header(read_at: Callable[[int, int], bytes], path: object) -> FileHeader:
    """Return the header of the chained file that `read_at` reads; raises as `decode_header` does."""
    return decode_header(read_at(0, layout.HEADER_BYTES), path, form=Form.CHAINED)


def _plausible(header: np.void, data: bytes, path: object, form: Form | None) -> FileHeader:
    """Return the fields as a FileHeader, or say which of them cannot be."""
    try:
        found = Form(int(header["form"]))
    except ValueError:
        raise UnsupportedFormatError(path, f"unknown form {int(header['form'])}") from None
    if form is not None and found is not form:
        raise CorruptFileError(path, f"is in {found.name.lower()} form, not {form.name.lower()}")
    if int(header["hash_function"]) != layout.HASH_XXH64_TOPIC_SEEDED:
        raise UnsupportedFormatError(path, f"unknown hash function {int(header['hash_function'])}")
    schema_bytes = int(header["schema_bytes"])
    if schema_bytes > layout.SCHEMA_BYTES_MAX:
        raise CorruptFileError(path, f"implausible schema length {schema_bytes}")
    end = layout.SCHEMA_POSITION + schema_bytes
    if bytes(header["reserved"]).strip(b"\0") or data[end : layout.PREDECESSOR_POSITION].strip(
        b"\0"
    ):
        raise CorruptFileError(path, "reserved bytes of the header are not zero")
    try:
        schema = Schema.decode(data[layout.SCHEMA_POSITION : end])
    except ValueError as error:
        raise CorruptFileError(path, str(error)) from error
    if int(header["format_version"]) != schema.format_version:
        version = int(header["format_version"])
        raise CorruptFileError(path, f"format version {version} with the schema of another version")
    result = FileHeader(
        form=found,
        uuid=bytes(header["uuid"]),
        schema=schema,
        slot_count=int(header["slot_count"]),
        item_capacity=int(header["item_capacity"]),
        row_capacity=int(header["row_capacity"]),
        created_ms=int(header["created_ms"]),
        hash_function=int(header["hash_function"]),
        hash_seed=int(header["hash_seed"]),
    )
    if schema.item_bytes != int(header["item_bytes"]):
        raise CorruptFileError(path, "item size and schema differ")
    check_counts(result, path)
    if decode_predecessor(data, result.uuid, path) is not None and found is Form.COMPACTED:
        raise CorruptFileError(path, "a compacted file names a predecessor")
    return result


def check_counts(header: FileHeader, path: object) -> None:
    """Raise CorruptFileError when a count is out of its bounds."""
    if not 1 <= header.slot_count <= layout.SLOT_COUNT_MAX:
        raise CorruptFileError(path, f"implausible slot count {header.slot_count}")
    if header.form is Form.CHAINED:
        if not 1 <= header.item_capacity <= layout.ITEM_CAPACITY_MAX:
            raise CorruptFileError(path, f"implausible item capacity {header.item_capacity}")
        if not header.item_capacity < header.row_capacity <= layout.ROW_COUNT_MAX:
            raise CorruptFileError(path, f"implausible row capacity {header.row_capacity}")
