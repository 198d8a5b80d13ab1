import numpy as np
import pytest

from tierdex.errors import InvalidRequestError
from tierdex.indexfile.schema import MESSAGE_SCHEMA, Schema, SchemaField


def test_message_items_have_forty_bytes_at_fixed_offsets():
    dtype = MESSAGE_SCHEMA.dtype
    assert dtype.itemsize == 40
    assert {name: dtype.fields[name][1] for name in dtype.names} == {
        "key_hash": 0,
        "link": 8,
        "tag": 12,
        "timestamp": 16,
        "offset": 24,
        "size": 32,
        "queue_id": 36,
    }


def test_fields_are_aligned_and_the_item_is_a_multiple_of_eight():
    schema = Schema((SchemaField("flag", "|u1"), SchemaField("row", "<i8")))
    assert (schema.position("flag"), schema.position("row"), schema.item_bytes) == (24, 32, 40)
    assert schema.position("absent") == -1


def test_encoding_gives_the_same_schema_back():
    schema = Schema((SchemaField("source", "<u4", dictionary=True), SchemaField("row", "<i8")))
    assert Schema.decode(schema.encode()) == schema
    assert schema.dictionary_names == ("topic", "source")
    assert not schema.has_end_offsets
    assert MESSAGE_SCHEMA.has_end_offsets


@pytest.mark.parametrize(
    "fields",
    [
        (SchemaField("a", "<i8"), SchemaField("a", "<i8")),
        tuple(SchemaField(f"f{i}", "<i8") for i in range(126)),
    ],
    ids=["same_name_twice", "too_large"],
)
def test_impossible_schema_is_refused(fields):
    with pytest.raises(InvalidRequestError):
        Schema(fields)


@pytest.mark.parametrize(
    ("name", "code", "dictionary"),
    [("topic", "<u4", True), ("Bad", "<u4", False), ("x", "<f8", False), ("x", "<i8", True)],
)
def test_impossible_field_is_refused(name, code, dictionary):
    with pytest.raises(InvalidRequestError):
        SchemaField(name, code, dictionary)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"fields":[["a"]]}',
        b'{"fields":[["a","<f8",0]]}',
        b"\xff",
        b"7",
        b'{"fields":[],"offsets":"sequence"}',
        b'{"fields":[],"offsets":"pages"}',
        b'{"fields":[],"offsets":[]}',
    ],
)
def test_bytes_that_are_no_schema_are_refused(data):
    with pytest.raises(ValueError, match=r".*"):
        Schema.decode(data)


def test_equal_schemas_have_equal_dtypes():
    assert Schema(MESSAGE_SCHEMA.fields).dtype == MESSAGE_SCHEMA.dtype
    assert isinstance(MESSAGE_SCHEMA.dtype, np.dtype)
