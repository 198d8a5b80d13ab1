from __future__ import annotations

import pytest

from tierdex.app.times import format_time, parse_time
from tierdex.errors import InvalidRequestError


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
        "", " 1", "1e3", "1.0", "9223372036854775808", "2023-11-14", "2023-11-14T22:13:20",
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
