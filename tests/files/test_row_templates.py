"""Templates, times and queues by column."""

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierdex.errors import InvalidRequestError
from tierdex.files.row_templates import Template, milliseconds, queue_numbers
from tierdex.text_times import RowError, check_timezone

NOON = 1_700_000_000_000  # 2023-11-14T22:13:20Z


def template(text):
    return Template.parse(text, field="key")


def times(values, timezone=None, kind=None):
    return milliseconds(template("t"), pa.table({"t": pa.array(values, kind)}), timezone).tolist()


def test_template_joins_columns_and_text():
    table = pa.table({"carrier": ["UA", "AA"], "flight": [1545, 7]})
    assert template("{carrier}-{flight:04}!").evaluate(table).to_pylist() == [
        "UA-1545!",
        "AA-0007!",
    ]


def test_template_cuts_a_column():
    assert template("{t:.4}").evaluate(pa.table({"t": ["2013-01", "x"]})).to_pylist() == [
        "2013",
        "x",
    ]


def test_template_with_a_null_or_empty_column_is_null():
    table = pa.table({"a": ["x", "", None, "y"], "b": ["1", "2", "3", "4"]})
    assert template("{a}{b}").evaluate(table).to_pylist() == ["x1", None, None, "y4"]
    assert template("a").evaluate(table).to_pylist() == ["x", None, None, "y"]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([7, 8]),
        pa.array([7, 8], pa.uint8()),
        pa.array([7.0, 8.0]),
        pa.array(["7", "8"]).dictionary_encode(),
        pa.array(["7", "8"], pa.large_string()),
        pa.array([b"7", b"8"]),
        pa.chunked_array([["7"], ["8"]]),
    ],
    ids=["int", "uint8", "float", "dictionary", "large", "binary", "chunked"],
)
def test_any_plain_column_is_a_key(column):
    assert template("k").evaluate(pa.table({"k": column})).to_pylist() == ["7", "8"]


def test_column_of_lists_is_no_key():
    with pytest.raises(InvalidRequestError, match="not plain values"):
        template("k").evaluate(pa.table({"k": [[1], [2]]}))


@pytest.mark.parametrize("text", ["{a", "a}", "{}", "{a!r}", "{a:x}"])
def test_broken_template_is_refused(text):
    with pytest.raises(InvalidRequestError, match="key: .*not a template"):  # noqa: RUF043
        template(text)


@pytest.mark.parametrize(
    "value",
    [
        "1700000000",
        "1700000000000",
        "1700000000000000",
        "1700000000000000000",
        "1700000000.000",
        "2023-11-14T22:13:20Z",
        "2023-11-14t22:13:20z",
        "2023-11-14 22:13:20.000+00:00",
        "2023-11-14T23:13:20+0100",
        " 2023-11-15T03:43:20.000000000+05:30 ",
        1700000000,
        1700000000000,
        1700000000.0,
        datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
    ],
)
def test_time_is_understood(value):
    assert times([value]) == [NOON]


def test_times_of_several_kinds_may_stand_in_one_column():
    assert times(["1700000000", "2023-11-14T22:13:20Z", "1700000000.5", "2023-11-14"], "UTC") == [
        NOON,
        NOON,
        NOON + 500,
        1_699_920_000_000,
    ]


def test_time_before_the_epoch_is_understood():
    assert times(["1969-12-31T23:59:59.999Z", "-1"]) == [-1, -1000]


@pytest.mark.parametrize("value", ["2023-11-14T22:13:20", datetime(2023, 11, 14, 22, 13, 20)])  # noqa: DTZ001
def test_naive_time_is_in_the_timezone(value):
    assert times([value], "America/New_York") == [NOON + 5 * 3_600_000]


def test_date_is_the_timezone_s_midnight():
    assert times([date(2023, 7, 1)], "Europe/Berlin") == [1_688_162_400_000]


def test_naive_time_without_a_timezone_is_refused():
    with pytest.raises(RowError, match="--timezone") as caught:
        times(["2023-11-14T22:13:20Z", "2023-11-14T22:13:20"])
    assert caught.value.row == 1


@given(st.lists(st.datetimes(datetime(1950, 1, 1), datetime(2040, 1, 1)), min_size=1))  # noqa: DTZ001
def test_naive_times_are_what_zoneinfo_says(moments):
    zone = ZoneInfo("America/New_York")
    expected = [
        (moment.replace(tzinfo=zone) - datetime(1970, 1, 1, tzinfo=UTC))
        // (datetime.resolution * 1000)
        for moment in moments
    ]
    assert times([moment.isoformat() for moment in moments], "America/New_York") == expected


@pytest.mark.parametrize(
    "bad", ["yesterday", "2023-13-01T00:00:00Z", "99999999999999999999", None, ""]
)
def test_bad_time_is_named_by_its_row(bad):
    values = ["1700000000"] * 9
    values[6] = bad
    with pytest.raises(RowError) as caught:
        times(values, "UTC")
    assert caught.value.row == 6


def test_unknown_timezone_is_refused():
    with pytest.raises(InvalidRequestError, match="timezone"):
        check_timezone("Mars/Olympus")


def test_queue_is_a_number_or_a_name_with_one():
    table = pa.table({"q": ["2", "0"], "airport": ["LGA", "EWR"]})
    assert queue_numbers(template("q"), table, None).tolist() == [2, 0]
    names = {"EWR": 0, "LGA": 2}
    assert queue_numbers(template("airport"), table, names).tolist() == [2, 0]


@pytest.mark.parametrize("names", [None, {"EWR": 0}])
def test_queue_without_a_number_is_named_by_its_row(names):
    table = pa.table({"q": ["0", "JFK"] if names is None else ["EWR", "JFK"]})
    with pytest.raises(RowError, match="JFK") as caught:
        queue_numbers(template("q"), table, names)
    assert caught.value.row == 1
