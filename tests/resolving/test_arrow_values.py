"""Rows of Arrow as JSON: what Python's types cannot hold, what stands twice, what no reader may change."""

from __future__ import annotations

import datetime
import decimal
import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierdex.resolving.arrow_values import json_of_row

INFINITY = (1 << 63) - 1
TEN_THOUSAND_YEARS = datetime.timedelta(days=3_650_000)
FIRST = datetime.datetime.fromisoformat("0001-01-02")  # its offset must fit, too
LAST = datetime.datetime.fromisoformat("9999-12-30")


def shown(column):
    """Return one value as a row of a table shows it."""
    (member,) = json.loads(json_of_row(pa.table([column], names=["x"]))).values()
    return member


def integers(kind, *values, width=None):
    return pa.array(values, width or pa.int64()).cast(kind)


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (integers(pa.timestamp("us"), INFINITY), "+294247-01-10T04:00:54.775807"),
        (integers(pa.timestamp("us"), -INFINITY - 1), "-290308-12-21T19:59:05.224192"),
        (integers(pa.timestamp("s"), INFINITY), "+292277026596-12-04T15:30:07"),
        (integers(pa.timestamp("ns", "UTC"), 1709287200123456789),
         "2024-03-01T10:00:00.123456789+00:00"),
        (integers(pa.timestamp("ms", "Europe/Berlin"), 1720000000000), "2024-07-03T11:46:40+02:00"),
        (integers(pa.timestamp("us", "Mars/Base"), 1), "1970-01-01T00:00:00.000001+00:00[Mars/Base]"),
        (integers(pa.timestamp("us", "Europe/Berlin"), INFINITY),
         "+294247-01-10T04:00:54.775807+00:00[Europe/Berlin]"),
        (integers(pa.timestamp("s", "-03:30"), 0), "1969-12-31T20:30:00-03:30"),
        (integers(pa.date32(), 1 << 24, width=pa.int32()), "+47904-06-17"),
        (integers(pa.date32(), -719529, width=pa.int32()), "-0001-12-31"),
        (integers(pa.time64("us"), 90_000_000_000), "90000000000 us"),
        (integers(pa.time64("ns"), 1), "00:00:00.000000001"),
        (integers(pa.duration("ns"), 1500000001), "0:00:01.500000001"),
        (integers(pa.duration("s"), -1), "-1 day, 23:59:59"),
        (pa.array([decimal.Decimal("-1E-18")], pa.decimal256(76, 20)), "-0.00000000000000000100"),
        (pa.array([b"\xff\x00"]), "/wA="),
        (pa.array([b"plain"], pa.large_binary()), "plain"),
        (pa.array([b"a\xff"]).view(pa.string()), "a\\xff"),
        (pa.array([b"\x01" * 16], pa.uuid()), "01010101-0101-0101-0101-010101010101"),
        (pa.array(["paid"]).dictionary_encode(), "paid"),
        (pa.array(["x"], pa.string_view()), "x"),
        (pa.array([None], pa.timestamp("us")), None),
    ],
    ids=str,
)  # fmt: skip
def test_value_that_python_cannot_hold_is_shown_in_its_own_words(column, text):
    assert shown(column) == text


def test_numbers_keep_their_digits_and_nan_is_no_null():
    table = pa.table(
        {
            "short": pa.array([0.1], pa.float32()), "half": pa.array(np.array([0.1], np.float16)),
            "nan": [float("nan")], "below": [-float("inf")], "big": pa.array([2**64 - 1], pa.uint64()),
        }
    )  # fmt: skip
    assert json_of_row(table) == (
        b'{"short":0.1,"half":0.1,"nan":NaN,"below":-Infinity,"big":18446744073709551615}'
    )


def test_what_stands_twice_is_shown_twice():
    struct = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    pairs = pa.array([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int32()))
    table = pa.table([pa.array(["first"]), pa.array(["second"]), struct, pairs], names=list("nnsm"))
    assert json_of_row(table) == (
        b'{"n":"first","n":"second","s":{"a":1,"a":2},"m":[["k",1],["k",2]]}'
    )


@given(
    st.datetimes(FIRST, LAST),
    st.dates(),
    st.times(),
    st.timedeltas(-TEN_THOUSAND_YEARS, TEN_THOUSAND_YEARS),
    st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", None]),
)  # fmt: skip
def test_times_that_python_holds_are_shown_as_python_shows_them(at, day, clock, span, zone):
    if zone is not None:
        at = at.replace(tzinfo=datetime.UTC)
    moment = pa.array([at], pa.timestamp("us", zone))
    assert shown(moment) == moment[0].as_py().isoformat()
    assert shown(pa.array([day], pa.date32())) == day.isoformat()
    assert shown(pa.array([clock], pa.time64("us"))) == clock.isoformat()
    assert shown(pa.array([span], pa.duration("us"))) == str(span)


def test_lists_and_structs_are_shown_whole():
    sink = io.BytesIO()
    row = {"tags": ["a", None], "at": {"x": 1, "y": {"z": "deep"}}, "none": None, "empty": []}
    pq.write_table(pa.Table.from_pylist([row]), sink)
    read = pq.read_table(io.BytesIO(sink.getvalue()))
    assert json.loads(json_of_row(read)) == row
    assert json.loads(json_of_row(pa.table({"f": pa.array([[1, 2]], pa.list_(pa.int8(), 2))}))) == {
        "f": [1, 2]
    }
