import numpy as np
import pyarrow as pa
import pytest

from tierdex.errors import InvalidRequestError
from tierdex.indexfile.columns import ItemColumns, StringColumn

WORDS = ["", "a", "größe", "订单", "x" * 300]


def values_of(column: StringColumn) -> list[str | None]:
    rows = range(len(column))
    valid = column.valid if column.valid is not None else np.ones(len(column), bool)
    return [column.value(row).decode() if valid[row] else None for row in rows]


@pytest.mark.parametrize(
    "values",
    [
        WORDS,
        pa.array(WORDS),
        pa.array(WORDS, pa.large_string()),
        pa.array([word.encode() for word in WORDS], pa.binary()),
        pa.array(WORDS, pa.string_view()),
        pa.array(["skipped", *WORDS, "skipped"]).slice(1, len(WORDS)),
        pa.chunked_array([WORDS[:2], WORDS[2:]]),
        pa.chunked_array([WORDS]),
        pa.array(WORDS).dictionary_encode(),
        pa.array(["skipped", *WORDS]).dictionary_encode().slice(1),
        np.array(WORDS),
        np.array(WORDS, object),
        [word.encode() for word in WORDS],
    ],
    ids=[
        "list", "string", "large_string", "binary", "view", "slice", "chunked", "one_chunk",
        "dictionary", "dictionary_slice", "numpy_text", "numpy_object", "list_of_bytes",
    ],
)  # fmt: skip
def test_every_kind_of_strings_becomes_the_same_column(values):
    assert values_of(StringColumn.from_values(values)) == WORDS


@pytest.mark.parametrize(
    "values",
    [
        ["a", None, "b"],
        pa.array(["x", "a", None, "b"]).slice(1),
        pa.array(["a", None, "b"]).dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([1, 0, 2]), pa.array([None, "a", "b"])),
    ],
    ids=["list", "slice", "dictionary", "dictionary_holds_null"],
)
def test_nulls_become_rows_that_are_not_valid(values):
    assert values_of(StringColumn.from_values(values)) == ["a", None, "b"]


@pytest.mark.parametrize(
    "values", [[], pa.array([], pa.string()), pa.chunked_array([], pa.string()), pa.nulls(0)]
)
def test_empty_column_has_no_rows(values):
    assert len(StringColumn.from_values(values)) == 0


def test_column_of_nulls_has_no_valid_row():
    assert values_of(StringColumn.from_values(pa.nulls(3))) == [None] * 3


def test_arrow_strings_are_not_copied():
    array = pa.array(["a", "b"])
    column = StringColumn.from_values(array)
    assert column.data.ctypes.data == array.buffers()[2].address
    assert column.offsets.ctypes.data == array.buffers()[1].address


@pytest.mark.parametrize(
    "values",
    [[1, 2], pa.array([1.5]), ["a", 1], ["\ud800"], [["a"]], object()],
    ids=[
        "integers",
        "array of doubles",
        "an integer among strings",
        "surrogate",
        "lists",
        "object",
    ],
)
def test_columns_that_hold_no_strings_are_refused(values):
    with pytest.raises(InvalidRequestError):
        StringColumn.from_values(values)


@pytest.mark.parametrize("offsets", [[0, 5], [3, 1], [-1, 2], []], ids=str)
def test_offsets_out_of_bounds_are_refused(offsets):
    with pytest.raises(InvalidRequestError):
        StringColumn(np.array(offsets, np.int32), np.zeros(4, np.uint8))


def test_indices_out_of_bounds_are_refused():
    offsets, data = np.array([0, 1], np.int32), np.zeros(1, np.uint8)
    for index in (-1, 1):
        with pytest.raises(InvalidRequestError):
            StringColumn(offsets, data, indices=np.array([index]))


def make_items(**change) -> ItemColumns:
    values = {
        "strings": StringColumn.from_values(["a", None, "c"]),
        "topics": "t",
        "timestamp": [1, 2, 3],
        "fields": {"size": 7},
    }
    return ItemColumns(**(values | change))


def test_rows_without_a_string_or_masked_are_skipped():
    assert make_items().picked().tolist() == [0, 2]
    assert make_items(valid=np.array([False, True, True])).picked().tolist() == [2]
    assert make_items(strings=StringColumn.from_values(["a"])).picked() is None


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("size", -1, "<u4"),
        ("size", 1 << 32, "<u4"),
        ("size", [1.5, 2.0, 3.0], "<u4"),
        ("size", [1, 2], "<u4"),
        ("size", pa.array([1, None, 3]), "<u4"),
    ],
    ids=["negative", "large", "fractions", "wrong_length", "nulls"],
)
def test_numbers_that_do_not_fit_are_refused_by_name(name, value, code):
    with pytest.raises(InvalidRequestError) as caught:
        make_items(fields={name: value}).column(name, code)
    assert caught.value.field == name


@pytest.mark.parametrize("value", [[1, 2, 3], pa.array([1, 2, 3]), np.array([1, 2, 3], np.uint8)])
def test_numbers_of_any_integer_type_are_taken(value):
    array, stride = make_items(fields={"size": value}).column("size", "<u4")
    assert (array.tolist(), array.dtype, stride) == ([1, 2, 3], np.dtype("<u4"), 4)


def test_scalar_column_has_stride_zero():
    array, stride = make_items().column("size", "<u4")
    assert (array.item(), stride) == (7, 0)
