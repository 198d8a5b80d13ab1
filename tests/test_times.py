from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from tierdex.errors import InvalidRequestError
from tierdex.times import format_time, parse_time, to_ms


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0", 0), ("-1", -1), ("9223372036854775807", (1 << 63) - 1),
        ("1970-01-01T00:00:00Z", 0), ("1970-01-01t00:00:00.001z", 1),
        ("1970-01-01T01:00:00+01:00", 0), ("1969-12-31T23:59:59.999Z", -1),
        ("2023-11-14T22:13:20.123456789Z", 1_700_000_000_123),
    ],
)  # fmt: skip
def test_time_is_read(text, milliseconds):
    assert parse_time(text, field="begin") == milliseconds


@pytest.mark.parametrize(
    "text",
    [
        "", " 1", "1e3", "1.0", "9223372036854775808", "2023-11", "7d", "now", "2023-11-14T22:13:20",
        "2023-02-30T00:00:00Z", "2023-13-01T00:00:00Z", "2023-11-14 22:13:20Z", "0000-01-01T00:00:00Z",
        "2023-11-14T24:00:00Z", "2023-11-14T22:13:20+25:00", "٣", "1" * 5000,
    ],
)  # fmt: skip
def test_what_is_no_time_is_refused_by_name(text):
    with pytest.raises(InvalidRequestError) as caught:
        parse_time(text, field="begin")
    assert caught.value.field == "begin"


def test_time_is_shown_in_utc_and_beyond_the_calendar_as_a_number():
    assert format_time(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert format_time(1 << 62) == str(1 << 62)


@pytest.mark.parametrize(
    ("text", "ago_ms"),
    [
        ("now", 0), ("250ms", 250), ("30s", 30_000), ("5m", 300_000), ("2h", 7_200_000),
        ("-7d", 604_800_000), ("1w", 604_800_000), ("0d", 0),
    ],
)  # fmt: skip
def test_time_before_now_is_read_where_people_write_it(text, ago_ms):
    assert parse_time(text, field="begin", now_ms=lambda: 1_700_000_000_000) == (
        1_700_000_000_000 - ago_ms
    )
    with pytest.raises(InvalidRequestError, match="milliseconds"):
        parse_time(text, field="begin")


@pytest.mark.parametrize("text", ["d", "7", "+7d", "7 d", "7y", "--7d", "7d2h", "1234567890d"])
def test_what_is_no_time_before_now_is_refused_or_a_number(text):
    if text == "7":
        assert parse_time(text, field="begin", now_ms=lambda: 0) == 7
        return
    with pytest.raises(InvalidRequestError, match=r"is no time: .* how long ago \(7d, 2h\)"):
        parse_time(text, field="begin", now_ms=lambda: 0)


def test_day_is_its_first_millisecond_and_as_an_end_its_last():
    first = 1_699_920_000_000
    assert parse_time("2023-11-14", field="begin") == first
    assert parse_time("2023-11-14", field="end", is_end=True) == first + 86_400_000 - 1
    with pytest.raises(InvalidRequestError, match="not a time"):
        parse_time("2023-02-30", field="begin")


def test_datetime_with_a_zone_is_a_time_and_one_without_is_refused():
    moment = datetime(2023, 11, 14, 22, 13, 20, 123_999, tzinfo=UTC)
    assert to_ms(moment, "begin") == 1_700_000_000_123
    there = moment.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert to_ms(there, "begin") == 1_700_000_000_123
    with pytest.raises(InvalidRequestError, match="tzinfo"):
        to_ms(moment.replace(tzinfo=None), "begin")
