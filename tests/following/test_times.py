"""Times of followed messages: understood, or counted; never 1970."""

from __future__ import annotations

import json

import pytest

import tierdex
from tests.following.memory_log import MemoryLog
from tests.following.test_follower import SMALL, opened, run_once
from tierdex.following.follow import follow

TEN = 1_709_287_200_000


def follow_lines(index, folder, *rows):
    folder.mkdir(exist_ok=True)
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return follow(index, f"folder:{folder}", once=True, keys=["$.id"], time="$.at").run()


@pytest.mark.parametrize(
    "text",
    ["2024-03-01 10:00:00,123 UTC", "1.709287200123E9", "20240301100000123", 1709287200.1239],
)
def test_usual_spelling_is_the_time_of_a_line(tmp_path, text):
    with opened(tmp_path / "data") as index:
        status = follow_lines(index, tmp_path / "orders", {"id": "A", "at": text})
        (entry,) = index.query("orders", key="A").entries
        assert (entry.timestamp, status.untimed) == (TEN + 123, 0)


def test_line_whose_time_is_not_understood_makes_no_entry_and_is_counted(tmp_path):
    rows = [{"id": "A", "at": "soon"}, {"id": "B", "at": TEN}, {"id": "A", "at": -(1 << 63)}]
    with opened(tmp_path / "data") as index:
        status = follow_lines(index, tmp_path / "orders", *rows)
        assert (status.untimed, status.entries) == (2, 1)
        assert index.query("orders", key="A").entries == []
        assert index.query("orders", key="B").entries[0].timestamp == TEN


def test_line_without_a_time_has_that_of_its_file(tmp_path):
    with opened(tmp_path / "data") as index:
        status = follow_lines(index, tmp_path / "orders", {"id": "A"})
        (entry,) = index.query("orders", key="A").entries
        changed = (tmp_path / "orders" / "a.jsonl").stat().st_mtime_ns // 1_000_000
        assert (entry.timestamp, status.untimed) == (changed, 1)


def test_message_of_a_log_with_times_keeps_its_own(tmp_path):
    log = MemoryLog([0])
    log.append(0, b'{"at":"soon"}', key=b"a")
    with opened(tmp_path / "data") as index:
        status = run_once(index, log, time="$.at")
        assert (status.untimed, status.entries) == (1, 1)


def test_kept_message_has_the_time_that_it_says(tmp_path):
    with tierdex.MessageLog.open(tmp_path / "data", **SMALL) as log:
        follow_lines(log, tmp_path / "orders", {"id": "A", "at": "2024-03-01 10:00:00,5"})
        (message,) = log.get("orders", key="A").messages
        assert message.timestamp == TEN + 500
