"""compatibility-sensitive: a change here changes the file format and needs a second reviewer."""

import numpy as np

from tierdex.fileparts.layout import (
    BLOCK_BYTES,
    DICTIONARY_ENTRY,
    FOOTER,
    FOOTER_MAGIC,
    FORMAT_VERSION,
    PART_ENTRY,
    Part,
)
from tierdex.indexfile import layout


def offsets(dtype: np.dtype) -> dict[str, tuple[int, int]]:
    return {name: (dtype.fields[name][1], dtype.fields[name][0].itemsize) for name in dtype.names}


def test_constants_on_disk_are_what_version_1_says():
    assert FORMAT_VERSION == 1
    assert layout.HEADER_MAGIC == b"TIERDEX1"
    assert FOOTER_MAGIC == b"TDXFOOT1"
    assert layout.BATCH_MAGIC.to_bytes(4, "little") == b"BTCH"
    assert (layout.HEADER_BYTES, BLOCK_BYTES, layout.SCHEMA_POSITION) == (4096, 4096, 128)
    assert (layout.HASH_XXH64_TOPIC_SEEDED, layout.HASH_SEED) == (1, 42)
    assert (layout.KIND_KEY, layout.KIND_MESSAGE_ID) == (0, 1)
    assert (layout.KIND_BIT, layout.TOPIC_MASK) == (1 << 31, (1 << 31) - 1)
    assert {form.name: form.value for form in layout.Form} == {"CHAINED": 1, "COMPACTED": 2}


def test_parts_keep_their_numbers():
    assert [(part.name, part.value) for part in Part][:13] == [
        ("HEADER", 0),
        ("DICTIONARIES", 1),
        ("STATISTICS", 2),
        ("BLOCK_CHECKSUMS", 3),
        ("BATCH", 4),
        ("PART_TABLE", 5),
        ("FOOTER", 6),
        ("HEADER_COPY", 7),
        ("DIRECTORY", 8),
        ("FILTER", 9),
        ("PAGE", 10),
        ("CHECKSUMS", 11),
        ("EXTRA", 12),
    ]


def test_header_keeps_its_offsets():
    assert offsets(layout.HEADER) == {
        "magic": (0, 8),
        "format_version": (8, 2),
        "form": (10, 1),
        "hash_function": (11, 1),
        "crc": (12, 4),
        "uuid": (16, 16),
        "hash_seed": (32, 8),
        "slot_count": (40, 8),
        "item_capacity": (48, 8),
        "row_capacity": (56, 8),
        "created_ms": (64, 8),
        "item_bytes": (72, 4),
        "schema_bytes": (76, 4),
        "reserved": (80, 48),
    }


def test_footer_part_entry_and_dictionary_entry_keep_their_offsets():
    assert offsets(FOOTER) == {
        "magic": (0, 8),
        "format_version": (8, 2),
        "form": (10, 1),
        "reserved": (11, 1),
        "part_count": (12, 4),
        "uuid": (16, 16),
        "item_count": (32, 8),
        "file_bytes": (40, 8),
        "table_position": (48, 8),
        "table_crc": (56, 4),
        "crc": (60, 4),
    }
    assert offsets(PART_ENTRY) == {
        "kind": (0, 4),
        "crc": (4, 4),
        "position": (8, 8),
        "length": (16, 8),
        "detail": (24, 8),
    }
    assert offsets(DICTIONARY_ENTRY) == {
        "dictionary": (0, 1),
        "reserved": (1, 1),
        "length": (2, 2),
    }


def test_batch_record_keeps_its_offsets():
    assert offsets(layout.BATCH_RECORD) == {
        "magic": (0, 4),
        "crc": (4, 4),
        "number": (8, 4),
        "item_count": (12, 4),
        "dictionary_bytes": (16, 4),
        "flags": (20, 4),
        "uuid": (24, 16),
    }


def test_batch_takes_whole_rows_for_record_and_dictionary():
    assert layout.batch_rows(40, 0, 5) == 6
    assert layout.batch_rows(40, 41, 5) == 8
    assert layout.batch_rows(24, 0, 1) == 3


def test_description_has_a_line_for_every_field():
    text = layout.describe()
    for fields in layout.SHARED_STRUCTS.values():
        for field in fields:
            assert f"| `{field.name}` | {field.meaning} |" in text
    assert "| 16 | 16 | V16 | `uuid` |" in text
