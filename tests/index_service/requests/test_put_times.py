"""A number that looks like seconds is refused by every put and append; a time that says so is taken."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from tierdex import MessageLog
from tierdex.errors import InvalidRequestError
from tierdex.value_rules import INT64_MAX, INT64_MIN

LIKE_SECONDS = (1_000_000_000, 1_700_000_000, 9_999_999_999)
OTHERS = (INT64_MIN, -1_700_000_000, 0, 7, 999_999_999, 10_000_000_000, INT64_MAX)
FEBRUARY_MS = 2_678_400_000
FEBRUARY = datetime(1970, 2, 1, tzinfo=UTC)
PLACE = {"queue_id": 0, "offset": 1, "size": 2}


@pytest.fixture
def put(index):
    """Return a put whose kernel is loaded, so that it decides."""
    index.put(topic="t", key="first", **PLACE, timestamp=5)

    def put(time, level="os", key="k"):
        index.put(topic="t", key=key, **PLACE, timestamp=time, durability=level)
        return index.query("t", key=key).entries[0].timestamp

    return put


@pytest.mark.parametrize("level", ["received", "os", "disk"])
def test_a_put_refuses_seconds_with_a_hint_and_takes_all_else(put, level):
    for seconds in LIKE_SECONDS:
        with pytest.raises(InvalidRequestError, match=f"{seconds}000") as refusal:
            put(seconds, level)
        assert refusal.value.field == "timestamp"
    for time in OTHERS:
        assert put(time, level, key=f"k{time}") == time
    for meant in ("1970-02-01", "1970-02-01T00:00:00Z", FEBRUARY):
        assert put(meant, level, key=str(meant)) == FEBRUARY_MS


def columns(times):
    return [list(times), np.array(times, np.int64), pa.array(times, pa.int64())]


def test_a_batch_refuses_seconds_by_row(index):
    for seconds in LIKE_SECONDS:
        for times in columns([1_700_000_000_000, seconds, 10_000_000_000]):
            with pytest.raises(InvalidRequestError, match=f"{seconds}000") as refusal:
                index.put_batch(topic="t", keys=list("abc"), **PLACE, timestamp=times)
            assert refusal.value.field == "entries[1].timestamp"
        with pytest.raises(InvalidRequestError, match="looks like seconds"):
            index.put_batch(topic="t", keys=list("abc"), **PLACE, timestamp=seconds)
        with pytest.raises(InvalidRequestError, match="looks like seconds") as refusal:
            index.put_batch(topic="t", keys=["a", "b"], **PLACE, timestamp=[FEBRUARY, seconds])
        assert refusal.value.field == "entries[1].timestamp"
    assert index.query("t", key="a").entries == []
    for times in columns(OTHERS):
        index.put_batch(topic="t", keys=[str(t) for t in OTHERS], **PLACE, timestamp=times)
    for time in OTHERS:
        assert {e.timestamp for e in index.query("t", key=str(time)).entries} == {time}


@pytest.mark.parametrize(
    "times",
    [
        ["1970-02-01T00:00:00Z", FEBRUARY],
        np.array([FEBRUARY_MS] * 2, "datetime64[ms]"),
        pa.array([FEBRUARY_MS] * 2, pa.timestamp("ms")),
        pa.array([FEBRUARY_MS // 1000] * 2, pa.timestamp("s", "UTC")),
        "1970-02-01",
        FEBRUARY,
    ],
    ids=["list", "numpy", "arrow", "arrow-zone", "text", "datetime"],
)
def test_columns_of_times_mean_what_they_say(index, times):
    index.put_batch(topic="t", keys=["a", "b"], **PLACE, timestamp=times)
    assert [index.query("t", key=k).entries[0].timestamp for k in "ab"] == [FEBRUARY_MS] * 2


def test_a_log_refuses_seconds_and_takes_what_says_it_is_a_time(tmp_path):
    with MessageLog.open(
        tmp_path / "log", journal_bytes=1 << 20, max_message_bytes=1 << 16, background=False,
        disk_reserve_bytes=0,
    ) as log:  # fmt: skip
        log.append(topic="t", queue_id=0, body=b"first", timestamp=5)
        for seconds in LIKE_SECONDS:
            with pytest.raises(InvalidRequestError, match=f"{seconds}000") as refusal:
                log.append(topic="t", queue_id=0, body=b"", timestamp=seconds)
            assert refusal.value.field == "timestamp"
            with pytest.raises(InvalidRequestError, match="looks like seconds") as refusal:
                log.append_batch(topic="t", queue_id=0, body=[b"", b""], timestamp=[0, seconds])
            assert refusal.value.field == "messages[1].timestamp"
        meant = (*OTHERS, FEBRUARY, "1970-02-01")
        for time in meant:
            log.append(topic="t", queue_id=0, body=b"", timestamp=time)
        log.append_batch(
            topic="t", queue_id=0, body=[b"", b""],
            timestamp=pa.array([FEBRUARY_MS] * 2, pa.timestamp("ms")),
        )  # fmt: skip
        found = [message.timestamp for message in log.read("t", 0, 0, max_count=100).messages]
    assert found == [5, *OTHERS, *[FEBRUARY_MS] * 4]
