"""Every kind of column is taken, every bad value refused by the name of its row and field."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tierdex.errors import InvalidRequestError, RequestTooLargeError
from tierdex.index_service.ingest.item_columns import items_of_columns
from tierdex.index_service.requests.put_columns import make_entry_columns
from tierdex.indexfile.schema import MESSAGE_SCHEMA, Schema, SchemaField
from tierdex.settings import load_settings

SETTINGS = load_settings(max_key_bytes=10, max_batch_entries=5)
NOT_UTF8 = pa.array([b"a", b"\xff"], pa.binary())


def make(schema=MESSAGE_SCHEMA, **given):
    """Make columns of two entries; `given` replaces or adds values."""
    values = {
        "topic": "t", "keys": ["a", "b"], "message_id": None, "timestamp": [1, 2],
        "queue_id": 0, "offset": [3, 4], "size": 5,
    } | given  # fmt: skip
    fixed = {name: values.pop(name) for name in ("topic", "keys", "message_id", "timestamp")}
    return make_entry_columns(SETTINGS, schema, **fixed, fields=values)


def chunked(*chunks, kind=None):
    return pa.chunked_array([pa.array(chunk, kind) for chunk in chunks], kind)


STRINGS = [
    ["a", "b"],
    ("a", "b"),
    np.array(["a", "b"]),
    np.array(["a", "b"], object),
    pa.array(["a", "b"]),
    pa.array(["a", "b"], pa.large_string()),
    pa.array(["a", "b"], pa.string_view()),
    pa.array(["a", "b"]).dictionary_encode(),
    chunked(["a"], ["b"], kind=pa.string()),
    chunked(["a", "b"], kind=pa.string()),
    chunked(["a"], [], ["b"], kind=pa.string()).dictionary_encode(),
    pa.array(["x", "a", "b"])[1:],
]


@pytest.mark.parametrize("keys", STRINGS, ids=lambda keys: str(getattr(keys, "type", type(keys))))
def test_strings_of_every_kind_are_taken(keys):
    assert make(keys=keys).keys.to_pylist() == ["a", "b"]
    columns = make(topic=keys)
    rows = [0, 0] if columns.topic_index is None else columns.topic_index.tolist()
    assert [columns.topics[row] for row in rows] == ["a", "b"]


INTEGERS = [
    [3, 4],
    (3, 4),
    np.array([3, 4]),
    np.array([3, 4], np.uint64),
    np.array([3, 4], np.int8),
    np.array([9, 3, 9, 4])[1::2],
    [np.int32(3), np.uint8(4)],
    pa.array([3, 4]),
    pa.array([3, 4], pa.uint16()),
    chunked([3], [4], kind=pa.int64()),
    chunked([3], [], [4], kind=pa.int32()),
]


@pytest.mark.parametrize(
    "offset", INTEGERS, ids=lambda value: str(getattr(value, "type", type(value)))
)
def test_integers_of_every_kind_are_taken(offset):
    found = make(offset=offset).fields["offset"]
    assert found.tolist() == [3, 4]
    assert found.dtype == np.int64


def test_single_values_stand_for_every_row():
    columns = make(keys="k", offset=7, timestamp=9)
    assert columns.count == 1
    columns = make(message_id=["m", "n"], keys="k", offset=7, timestamp=9)
    assert columns.keys.to_pylist() == ["k", "k"]
    assert columns.fields["offset"].tolist() == [7, 7]
    assert columns.timestamp.tolist() == [9, 9]


@pytest.mark.parametrize(
    "timestamp",
    [
        pa.array([1001, -1], pa.timestamp("ms")),
        pa.array([1_001_999, -1], pa.timestamp("us")),
        pa.array([1_001_000_000, -1], pa.timestamp("ns", tz="UTC")),
        np.array([1001, -1], "datetime64[ms]"),
        np.array([1_001_000, -1], "datetime64[us]"),
        chunked([1001], [-1], kind=pa.timestamp("ms")),
    ],
)
def test_timestamps_become_milliseconds_rounded_down(timestamp):
    assert make(timestamp=timestamp).timestamp.tolist() == [1001, -1]


def test_seconds_become_milliseconds():
    assert make(timestamp=pa.array([1, 2], pa.timestamp("s"))).timestamp.tolist() == [1000, 2000]


@pytest.mark.parametrize(
    "empty", [[], pa.array([], pa.string()), chunked(kind=pa.string()), np.array([], str)]
)
def test_an_empty_batch_is_no_entries(empty):
    assert make(keys=empty, timestamp=[], offset=[]).count == 0
    assert make(topic=empty, keys=[], timestamp=[], offset=[]).count == 0


def test_a_row_needs_a_key_or_a_message_id():
    columns = make(keys=["a", None], message_id=[None, "m"])
    assert columns.keys.to_pylist() == ["a", None]
    assert columns.message_ids.to_pylist() == [None, "m"]


LISTS = [["a", "b"], None, "c"]


@pytest.mark.parametrize(
    "keys",
    [
        LISTS, tuple(LISTS), pa.array([["a", "b"], None, ["c"]]),
        pa.chunked_array([[["a", "b"]], [None, ["c"]]], pa.list_(pa.large_string())),
    ],
    ids=["list", "tuple", "arrow", "chunks"],
)  # fmt: skip
def test_a_row_may_have_a_list_of_keys(keys):
    columns = make(keys=keys, message_id=[None, "m", None], timestamp=[1, 2, 3], offset=[4, 5, 6])
    assert columns.keys.to_pylist() == ["a", "b", "c"]
    assert columns.key_offsets.tolist() == [0, 2, 2, 3]
    assert list(columns.items_before()) == [0, 3, 4, 6]
    of_keys, of_ids = items_of_columns(columns, 1, 2)
    assert of_keys.timestamp.tolist() == [3]
    assert of_keys.fields["offset"].tolist() == [6]
    assert of_ids.timestamp.tolist() == [2, 3]


DICTIONARY_OF_NULL = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["t", None]))
OUT_OF_BOUNDS = pa.DictionaryArray.from_arrays(pa.array([0, 7]), pa.array(["t"]), safe=False)
NOT_UTF8_STRINGS = pa.StringArray.from_buffers(2, NOT_UTF8.buffers()[1], NOT_UTF8.buffers()[2])

REFUSED = [
    ({"keys": ["a", ""]}, "entries[1].key"),
    ({"keys": ["a", "x" * 11]}, "entries[1].key"),
    ({"keys": [["a"], ["b", "x" * 11]]}, "entries[1].keys[1]"),
    ({"keys": [["a"], ["b", None]]}, "entries[1].keys[1]"),
    ({"keys": [["a"], ["b", 7]]}, "entries[1].keys[1]"),
    ({"keys": [["a"], []]}, "entries[1].keys"),
    ({"keys": [["a"], None]}, "entries[1].keys"),
    ({"keys": pa.array([[1], [2]])}, "entries[0].keys[0]"),
    ({"keys": ["a", None]}, "entries[1].key"),
    ({"keys": ["a", 7]}, "entries[1].key"),
    ({"keys": ["a", "\ud800"]}, "entries[1].key"),
    ({"keys": np.array(["a", 7], object)}, "entries[1].key"),
    ({"keys": pa.array([1, 2])}, "entries[0].key"),
    ({"keys": 7}, "entries[0].key"),
    ({"keys": 1.5}, "entries[0].key"),
    ({"keys": NOT_UTF8_STRINGS}, "entries[1].key"),
    ({"keys": chunked(["a"], [None], kind=pa.string())}, "entries[1].key"),
    ({"keys": None}, "entries[0].key"),
    ({"keys": ["a", "b", "c"]}, None),
    ({"keys": object()}, "key"),
    ({"message_id": ["m", ""]}, "entries[1].message_id"),
    ({"message_id": True}, "entries[0].message_id"),
    ({"topic": ["t", ""]}, "entries[1].topic"),
    ({"topic": ["t", None]}, "entries[1].topic"),
    ({"topic": ["t", "a\n"]}, "entries[1].topic"),
    ({"topic": ["t", "x" * 256]}, "entries[1].topic"),
    ({"topic": "a\0"}, "topic"),
    ({"topic": None}, "entries[0].topic"),
    ({"topic": 5}, "entries[0].topic"),
    ({"topic": b"t"}, "entries[0].topic"),
    ({"topic": DICTIONARY_OF_NULL}, "entries[1].topic"),
    ({"topic": NOT_UTF8_STRINGS}, "entries[1].topic"),
    ({"offset": [1, -1]}, "entries[1].offset"),
    ({"offset": [1, 1 << 63]}, "entries[1].offset"),
    ({"offset": [1, True]}, "entries[1].offset"),
    ({"offset": [1, 2.0]}, "entries[1].offset"),
    ({"offset": [1, "2"]}, "entries[1].offset"),
    ({"offset": [1, None]}, "entries[1].offset"),
    ({"offset": pa.array([1, None])}, "entries[1].offset"),
    ({"offset": chunked([1], [None], kind=pa.int64())}, "entries[1].offset"),
    ({"offset": np.array([1, 1 << 63], np.uint64)}, "entries[1].offset"),
    ({"offset": np.array([-1, -5])}, "entries[0].offset"),
    ({"offset": np.array([1.0, 2.0])}, "offset"),
    ({"offset": np.array([[1], [2]])}, "offset"),
    ({"offset": pa.array([1.0, 2.0])}, "offset"),
    ({"offset": 2.5}, "entries[0].offset"),
    ({"offset": None}, "entries[0].offset"),
    ({"size": 1 << 32}, "entries[0].size"),
    ({"size": [1, 1 << 32]}, "entries[1].size"),
    ({"queue_id": [0, 1 << 31]}, "entries[1].queue_id"),
    ({"timestamp": [1, 1 << 63]}, "entries[1].timestamp"),
    ({"timestamp": None}, "entries[0].timestamp"),
    ({"timestamp": pa.array([1, None], pa.timestamp("ms"))}, "entries[1].timestamp"),
    ({"timestamp": pa.array([0, 1 << 60], pa.timestamp("s"))}, "entries[1].timestamp"),
    ({"timestamp": np.array([1, "NaT"], "datetime64[ms]")}, "entries[1].timestamp"),
    ({"colour": 1}, "colour"),
]


@pytest.mark.parametrize(
    ("given", "field"), REFUSED, ids=[f"{i}-{f}" for i, (_, f) in enumerate(REFUSED)]
)
def test_a_bad_value_is_refused_by_row_and_field(given, field):
    with pytest.raises(InvalidRequestError) as caught:
        make(**given)
    assert field is None or caught.value.field == field


def test_a_dictionary_whose_indices_lead_outside_is_refused():
    for given in ({"topic": OUT_OF_BOUNDS}, {"keys": OUT_OF_BOUNDS}):
        with pytest.raises(InvalidRequestError):
            make(**given)


def test_a_missing_field_is_required():
    with pytest.raises(InvalidRequestError) as caught:
        make_entry_columns(
            SETTINGS, MESSAGE_SCHEMA, topic="t", keys="k", message_id=None, timestamp=1, fields={}
        )
    assert caught.value.field == "entries[0].offset"  # the first of the schema


def test_too_many_entries_are_refused():
    with pytest.raises(RequestTooLargeError):
        make(keys=["k"] * 6, timestamp=0, offset=0)


def test_fields_of_an_open_schema_are_bounded_by_their_types():
    schema = Schema((SchemaField("source", "<u4", dictionary=True), SchemaField("row", "<u8")))
    given = {"topic": "t", "keys": ["a", "b"], "message_id": None, "timestamp": 0}
    top = (1 << 64) - 1
    fields = {"source": ["f", "g"], "row": [0, top]}
    columns = make_entry_columns(SETTINGS, schema, **given, fields=fields)
    assert columns.fields["row"].tolist() == [0, top]
    assert columns.fields["source"][0] == ["f", "g"]
    for bad, field in (
        ({"source": ["f", None], "row": 0}, "entries[1].source"),
        ({"source": NOT_UTF8_STRINGS, "row": 0}, "entries[1].source"),
        ({"source": "f", "row": [0, -1]}, "entries[1].row"),
    ):
        with pytest.raises(InvalidRequestError) as caught:
            make_entry_columns(SETTINGS, schema, **given, fields=bad)
        assert caught.value.field == field
