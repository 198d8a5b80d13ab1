"""Columns as times: the usual spellings, nothing wraps, and what is not understood is told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import ROUND_FLOOR, Context, Decimal
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierdex.errors import InvalidRequestError
from tierdex.text_times import (
    RowError,
    ms_of_ticks,
    readable_times,
    times_of_column,
    times_of_texts,
)
from tierdex.times import parse_time

TEN = 1_709_287_200_000  # 2024-03-01T10:00:00Z
END_OF_9999 = 253_402_300_799_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LEAST = -(1 << 63)


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2024-03-01 10:00:00,123", TEN + 123), ("2024-03-01T10:00:00,123Z", TEN + 123),
        ("2024-03-01 10:00:00 +0000", TEN), ("2024-03-01 12:00:00 +02:00", TEN),
        ("2024-03-01T10:00:00 UTC", TEN), ("2024-03-01 10:00:00 gmt", TEN), ("2024-03-01t10:00:00 z", TEN),
        ("2024-03-01T11+01", TEN),
        ("01/Mar/2024:10:00:00 +0000", TEN), ("Fri, 01 Mar 2024 10:00:00 GMT", TEN),
        ("1-mar-2024 10:00:00.5z", TEN + 500),
        ("2024-03-01 12:00:00.25 +0200 CEST", TEN + 250),
        ("20240301T100000Z", TEN), ("20240301 100000", TEN), ("2024/03/01 10:00:00", TEN),
        ("2024-03-01T10:00", TEN), ("20240301.0", TEN - 36_000_000), ("2.0240301E7", TEN - 36_000_000),
        ("20240301", TEN - 36_000_000), ("202403011000", TEN), ("20240301100000", TEN),
        ("20240301100000123", TEN + 123), ("20240301100000.9", TEN + 900),
        ("20240301100000.98765", TEN + 987),
        ("1.7092872E9", TEN), ("1.7092872e+12", TEN), ("+1709287200", TEN), ("1709287200.9996", TEN + 999),
        ("1709287200." + "9" * 60, TEN + 999), ("1709287200000.9", TEN), ("1709287200000000000", TEN),
        ("2024-03-01T10:00:00.9996Z", TEN + 999), ("2024-03-01T10:00:00.9999999999Z", TEN + 999),
        ("9999-12-31T23:59:59Z", END_OF_9999),
        ("0001-01-01T00:00:00Z", -62_135_596_800_000), ("253402300799", END_OF_9999),
        ("253402300799000", END_OF_9999), ("253402300799000000", END_OF_9999),
        ("32503680000000", 32_503_680_000_000), ("-1", -1000), ("-0.0001", -1), ("-1.5E0", -1500),
        ("1969-12-31T23:59:59.9995Z", -1),
    ],
)  # fmt: skip
def test_usual_spelling_is_understood_alone_and_beside_others(text, time):
    assert times_of_texts(pa.array([text]), "UTC").tolist() == [time]
    column = pa.array(["2024-03-01T10:00:00Z", None, f" {text} ", "1709287200"])
    stamps, is_time = readable_times(column, "UTC")
    assert (stamps[is_time].tolist(), is_time.tolist()) == (
        [TEN, time, TEN],
        [True, False, True, True],
    )


@pytest.mark.parametrize(
    "text",
    [
        "", "yesterday", "2023-02-30", "2024-13-01T00:00:00Z", "2024-03-01T24:00:00Z",
        "2024-03-01T10:60:00Z", "2024-03-01T10:00:60Z", "2024-03-01T10:00:00+24:00", "0000-01-01T00:00:00Z",
        "10000-01-01", "10:00:00", "01/03/2024", "Mar  1 10:00:00", "01/Foo/2024:10:00:00 +0000",
        "31/Feb/2024:10:00:00 +0000", "2024-03-01 10:00:00 CEST", "1e30", "1e999999", "9223372036854775808",
        str(LEAST), "NaN",
        "0x10", "٣", "1_000", "--1",
        "2024-03-01Z", "2024-03-01T10:00:00.Z", "2024-0301",
    ],
)  # fmt: skip
def test_what_is_not_understood_is_told_and_never_a_number(text):
    column = pa.array(["2024-03-01T10:00:00Z", text, "1709287200"])
    assert readable_times(column, "UTC")[1].tolist() == [True, False, True]
    with pytest.raises(RowError, match="not understood") as caught:
        times_of_texts(column, "UTC")
    assert caught.value.row == 1


@pytest.mark.parametrize(
    "text", ["20240301", "20240301100000", "2024-03-01T10:00:00", "2024-03-01"]
)
def test_local_time_without_a_zone_asks_for_it(text):
    with pytest.raises(RowError, match="--timezone") as caught:
        times_of_texts(pa.array(["2024-03-01T10:00:00Z", text]), None)
    assert caught.value.row == 1


moments = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))  # noqa: DTZ001
zones = st.sampled_from(["UTC", "America/New_York", "Asia/Kolkata", "Europe/Lisbon"])


@given(
    st.lists(st.tuples(moments, st.sampled_from(["T", " "]), st.sampled_from([".", ","]))), zones,
    st.sampled_from(["", "Z", " UTC", "+05:30", " -0800"]),
)  # fmt: skip
def test_columns_of_written_times_are_what_the_calendar_says(written, zone, offset):
    texts = [
        f"{moment.year:04}-{moment:%m-%d}{blank}{moment:%H:%M:%S}{point}{moment.microsecond:06}7{offset}"
        for moment, blank, point in written
    ]
    minutes = {"+05:30": 330, " -0800": -480}.get(offset, 0)
    expected = []
    for moment, _, _ in written:
        utc = moment - timedelta(minutes=minutes)
        if not offset:
            utc = moment - (ZoneInfo(zone).utcoffset(moment) or timedelta())
        expected.append((utc - EPOCH.replace(tzinfo=None)) // timedelta(milliseconds=1))
    assert times_of_texts(pa.array(texts, pa.string()), zone).tolist() == expected


def by_size(number):
    size = abs(number)
    factor = 1000 if size < 10**11 else 1 if size < 10**14 else Decimal("0.001")
    factor = Decimal("0.000001") if size >= 10**17 else factor
    return int(Context(prec=100).multiply(number, Decimal(factor)).to_integral_value(ROUND_FLOOR))


@given(st.lists(st.integers(10**9 - 50, 10**10 - 1), min_size=1), st.integers(0, 10**7 - 1))
def test_fractions_of_an_epoch_are_cut_alike_in_texts_and_numbers(seconds, fraction):
    texts = [f"{second}.{fraction:07}" for second in seconds]
    expected = [by_size(Decimal(text)) for text in texts]
    assert times_of_texts(pa.array(texts), None).tolist() == expected
    doubles = [float(text) for text in texts]
    shortest = [by_size(Decimal(repr(double))) for double in doubles]
    assert times_of_column(pa.array(doubles), None).tolist() == shortest


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@given(st.integers(LEAST + 1, (1 << 63) - 1))
def test_times_of_arrow_never_wrap(unit, ticks):
    per = {"s": 1000, "ms": 1, "us": Decimal("0.001"), "ns": Decimal("0.000001")}[unit]
    time = int(
        (Context(prec=60).multiply(Decimal(ticks), Decimal(per))).to_integral_value(ROUND_FLOOR)
    )
    column = pa.array([0, ticks], pa.int64()).view(pa.timestamp(unit, "UTC"))
    if abs(ticks) > ((1 << 63) - 1) // 1000 and unit == "s":
        with pytest.raises(RowError) as caught:
            times_of_column(column, None)
        assert caught.value.row == 1
    else:
        assert times_of_column(column, None).tolist() == [0, time]


def test_least_integer_is_no_time_in_any_column():
    for unit in ("s", "ms", "us", "ns"):
        with pytest.raises(RowError):
            ms_of_ticks(np.array([0, LEAST]), unit)
    for column in (pa.array([0, LEAST]), pa.array([0, 2**64 - 1], pa.uint64())):
        with pytest.raises(RowError, match="no time") as caught:
            times_of_column(column, None)
        assert caught.value.row == 1


def test_dates_in_digits_are_dates_in_columns_of_numbers():
    column = pa.array([20240301, 1709287200, 20240301100000])
    assert times_of_column(column, "UTC").tolist() == [TEN - 36_000_000, TEN, TEN]
    assert times_of_column(column.cast(pa.float64()), "UTC").tolist() == [
        TEN - 36_000_000,
        TEN,
        TEN,
    ]


def test_local_times_beyond_the_calendar_are_told_by_their_row():
    column = pa.array([0, END_OF_9999 + 1000]).view(pa.timestamp("ms"))
    with pytest.raises(RowError, match="9999") as caught:
        times_of_column(column, "Europe/Berlin")
    assert caught.value.row == 1


def test_date_and_time_in_digits_is_refused_where_milliseconds_are_asked_for():
    with pytest.raises(InvalidRequestError, match="date and a time in digits"):
        parse_time("20240301100000", field="begin")
