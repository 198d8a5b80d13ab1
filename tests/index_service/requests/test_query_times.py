from __future__ import annotations

import pytest

from tierdex.errors import InvalidRequestError
from tierdex.times import parse_time


@pytest.mark.parametrize("name", ["begin", "end"])
def test_query_refuses_times_that_look_like_seconds_with_a_hint(index, name):
    place = {"queue_id": 0, "offset": 1, "size": 2}
    index.put(topic="t", keys=["a"], **place, timestamp=1_700_000_000_000)
    index.query("t", key="a")  # from here on memory alone answers
    asks = (
        lambda seconds: index.query("t", key="a", **{name: seconds}),
        lambda seconds: index.query_batch([{"topic": "t", "key": "a", name: seconds}]),
        lambda seconds: parse_time(str(seconds), field=name),
    )
    for ask in asks:
        for seconds in (1_700_000_000, 1_000_000_000, 9_999_999_999):
            with pytest.raises(InvalidRequestError, match=f"{seconds}000") as refusal:
                ask(seconds)
            assert refusal.value.field.endswith(name)
        for milliseconds in (999_999_999, 10_000_000_000, -1_700_000_000):
            ask(milliseconds)


def test_expire_refuses_seconds(index):
    with pytest.raises(InvalidRequestError, match="looks like seconds"):
        index.expire(before=1_700_000_000)
