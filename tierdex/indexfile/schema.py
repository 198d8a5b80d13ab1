"""The schema of an item: the required columns plus the caller's own location fields, or a file of rows.

An item's dtype is `key_hash u8 @0, link u4 @8, tag u4 @12, timestamp i8 @16`, then the schema's
fields in order, each aligned to its own width, padded to a multiple of 8 bytes. The hash-table code
never looks at the fields; a field may ask for a dictionary, and then holds the index of a string.

The schema stands as JSON in every file's header, so that a file is read without any outside table.
Depends on layout and errors only.
"""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tierdex.errors import InvalidRequestError
from tierdex.fileparts.layout import FORMAT_VERSION, round_up
from tierdex.indexfile import layout

if TYPE_CHECKING:
    from collections.abc import Sequence

TOPIC_DICTIONARY: Final = "topic"
_SEQUENCE: Final = "sequence"
_PACK_CODES: Final = dict(
    zip(("<i8", "<u8", "<i4", "<u4", "<i2", "<u2", "|i1", "|u1"), "qQiIhHbB", strict=True)
)
_CODES: Final = tuple(_PACK_CODES)
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_RESERVED_NAMES: Final = {field.name for field in layout.ITEM_FIELDS} | {TOPIC_DICTIONARY}


@dataclass(frozen=True)
class SchemaField:
    """One column of a location: `code` is a little-endian integer dtype, e.g. ``<u4``."""

    name: str
    code: str
    dictionary: bool = False

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or self.name in _RESERVED_NAMES:
            raise InvalidRequestError(
                f"{self.name!r} is not a name of a schema field", field="schema"
            )
        if self.code not in _CODES:
            raise InvalidRequestError(
                f"field {self.name}: type {self.code!r} is none of {', '.join(_CODES)}",
                field="schema",
            )
        if self.dictionary and self.code != "<u4":
            raise InvalidRequestError(
                f"field {self.name}: an index into a dictionary is <u4", field="schema"
            )


@dataclass(frozen=True)
class Schema:
    """The columns of an item, and where its message ends. Equal schemas have equal dtypes.

    A message ends at offset + size, since an offset is a position in bytes; at offset + 1 where offsets
    are a sequence of numbers. Immutable, safe to share.
    """

    fields: tuple[SchemaField, ...] = ()
    is_sequence: bool = (
        False  # an offset is a message's number, and the next message has the next one
    )

    def __post_init__(self) -> None:
        if self.is_sequence and not self.has_end_offsets:
            raise InvalidRequestError(
                "offsets of a sequence need a queue and a size", field="schema"
            )
        names = [field.name for field in self.fields]
        if len(set(names)) != len(names):
            raise InvalidRequestError("two fields have the same name", field="schema")
        if self.dtype.itemsize > layout.ITEM_BYTES_MAX:
            raise InvalidRequestError(
                f"an item would have {self.dtype.itemsize} bytes, at most {layout.ITEM_BYTES_MAX}",
                field="schema",
            )
        if len(self.encode()) > layout.SCHEMA_BYTES_MAX:
            raise InvalidRequestError("the names do not fit the file's header", field="schema")

    @cached_property
    def dtype(self) -> np.dtype:
        """The item as a structured dtype of `item_bytes` bytes."""
        names = [field.name for field in layout.ITEM_FIELDS]
        codes = [field.code for field in layout.ITEM_FIELDS]
        offsets = [
            layout.ITEM_HASH_POSITION,
            layout.ITEM_LINK_POSITION,
            layout.ITEM_TAG_POSITION,
            layout.ITEM_TIME_POSITION,
        ]
        position = layout.ITEM_FIELDS_POSITION
        for field in self.fields:
            width = np.dtype(field.code).itemsize
            position = round_up(position, width)
            names.append(field.name)
            codes.append(field.code)
            offsets.append(position)
            position += width
        size = round_up(position, 8)
        return np.dtype({"names": names, "formats": codes, "offsets": offsets, "itemsize": size})

    def packer(self) -> struct.Struct:
        """Return what packs one item: key_hash, link, tag, timestamp, then the fields in order."""
        fields: Any = self.dtype.fields
        code, end = "<", 0
        for name in self.dtype.names or ():
            kind, position = fields[name]
            code += "x" * (position - end) + _PACK_CODES[kind.str]
            end = position + kind.itemsize
        return struct.Struct(code + "x" * (self.item_bytes - end))

    @property
    def item_bytes(self) -> int:
        return self.dtype.itemsize

    @property
    def field_names(self) -> tuple[str, ...]:
        """Names of the schema's own fields, in order."""
        return tuple(field.name for field in self.fields)

    @property
    def dictionary_names(self) -> tuple[str, ...]:
        """Names of the dictionaries of a file: topics first, then one a field that asks for it."""
        return (TOPIC_DICTIONARY, *(field.name for field in self.fields if field.dictionary))

    def position(self, name: str) -> int:
        """Return the byte of column `name` inside an item, or -1 when there is none."""
        fields: Any = self.dtype.fields
        return int(fields[name][1]) if name in fields else -1

    @cached_property
    def has_end_offsets(self) -> bool:
        """Whether items say where a queue's message ends: fields queue_id, offset and size."""
        codes = {field.name: field.code for field in self.fields}
        wanted = {"offset": "<i8", "size": "<u4", "queue_id": "<i4"}
        return all(codes.get(name) == code for name, code in wanted.items())

    @property
    def end_step(self) -> int:
        """From an item's offset to its end offset, for kernels; 0: the item's size."""
        return int(self.is_sequence)

    @cached_property
    def is_message(self) -> bool:
        """Whether an item is a message's: the fields of MESSAGE_SCHEMA, wherever the message ends."""
        return self.fields == MESSAGE_SCHEMA.fields

    @property
    def format_version(self) -> int:
        """Version of a file with this schema: programs of version 1 would take a number for a position."""
        return layout.SEQUENCE_FORMAT_VERSION if self.is_sequence else FORMAT_VERSION

    def encode(self) -> bytes:
        """Return the schema as JSON; equal schemas give equal bytes."""
        rows = [[field.name, field.code, int(field.dictionary)] for field in self.fields]
        said = {"fields": rows} | ({"offsets": _SEQUENCE} if self.is_sequence else {})
        return json.dumps(said, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> Schema:
        """Return the schema in `data`. Raises ValueError when it is not one."""
        try:
            said = json.loads(data.decode())
            offsets = said.get("offsets")
            if offsets not in {None, _SEQUENCE}:
                raise ValueError(f"not a schema: offsets are {offsets!r}")
            rows = [SchemaField(name, code, bool(flag)) for name, code, flag in said["fields"]]
            found = cls(tuple(rows), is_sequence=offsets is not None)
        except (AttributeError, KeyError, TypeError, RecursionError, InvalidRequestError) as error:
            raise ValueError(f"not a schema: {error}") from error
        # The same object in every file: puts compare it with theirs, which is quick then.
        return next((one for one in (MESSAGE_SCHEMA, SEQUENCE_SCHEMA) if one == found), found)


MESSAGE_SCHEMA: Final = Schema(
    (
        SchemaField("offset", "<i8"),
        SchemaField("size", "<u4"),
        SchemaField("queue_id", "<i4"),
    )
)
# Of a log that numbers its messages: Kafka, Pulsar, our own.
SEQUENCE_SCHEMA: Final = Schema(MESSAGE_SCHEMA.fields, is_sequence=True)
# Least and greatest value of a message's fields, both allowed. Any other schema is bounded by its dtypes.
MESSAGE_RANGES: Final = {
    "offset": (0, (1 << 63) - 1),
    "size": (0, (1 << 32) - 1),
    "queue_id": (0, (1 << 31) - 1),
}
# Where the fields of a message lie inside its item, for the kernels that know this schema alone.
MESSAGE_BYTES: Final = MESSAGE_SCHEMA.item_bytes
MESSAGE_OFFSET_POSITION: Final = MESSAGE_SCHEMA.position("offset")
MESSAGE_SIZE_POSITION: Final = MESSAGE_SCHEMA.position("size")
MESSAGE_QUEUE_POSITION: Final = MESSAGE_SCHEMA.position("queue_id")
assert MESSAGE_BYTES == 40


def message_schema(offsets: str) -> Schema:
    """Return the schema of messages whose offsets are `bytes`, positions, or a `sequence` of numbers."""
    return SEQUENCE_SCHEMA if offsets == _SEQUENCE else MESSAGE_SCHEMA


def join_rows(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Return rows of one item dtype as one array; np.concatenate would repack a dtype with gaps."""
    dtype = parts[0].dtype
    plain = np.dtype((np.void, dtype.itemsize))
    return np.concatenate([part.view(plain) for part in parts]).view(dtype)


PARQUET_ROW_SCHEMA: Final = Schema(
    (
        SchemaField("source", "<u4", dictionary=True),
        SchemaField("row_group", "<u4"),
        SchemaField("row", "<u8"),
    )
)
TEXT_LINE_SCHEMA: Final = Schema(
    (
        SchemaField("source", "<u4", dictionary=True),
        SchemaField("size", "<u4"),
        SchemaField("offset", "<i8"),
    )
)
# A line that belongs to a queue as well.
QUEUED_LINE_SCHEMA: Final = Schema((*TEXT_LINE_SCHEMA.fields, SchemaField("queue_id", "<i4")))
# A row of a lake's table: the file by its number in the table's state, the row by its place in the file.
TABLE_ROW_SCHEMA: Final = Schema(
    (
        SchemaField("table_file", "<u4"),
        SchemaField("position", "<u8"),
    )
)
