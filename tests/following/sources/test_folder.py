"""A folder of growing files: lines that are being written, patterns, files that change under us, kill -9."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request

import pytest

import tierdex
from tests.following.test_follower import offsets, opened
from tests.patience import PATIENCE_S
from tierdex.app.cli.terminal.follow_metrics import follow_metrics
from tierdex.clock import Bell, SystemClock
from tierdex.errors import InvalidRequestError, NotFoundError
from tierdex.following.follow import follow
from tierdex.following.open_source import open_source
from tierdex.resolving.message_fetcher import MessageFetcher

clock = SystemClock()


@pytest.fixture
def logs(tmp_path):
    (tmp_path / "orders").mkdir()
    return tmp_path / "orders"


def run_once(index, logs, options=None, **wanted):
    wanted = {"keys": ["$.id"], "time": "$.at", **wanted}
    return follow(index, f"folder:{logs}", options=options, once=True, **wanted).run()


def test_line_that_is_being_written_waits_for_its_end(tmp_path, logs):
    (logs / "a.jsonl").write_bytes(b'{"id":"1"}\r\n\n{"id":"2"}\n{"id":"thr')
    with opened(tmp_path / "data") as index:
        assert run_once(index, logs).messages == 2
        with (logs / "a.jsonl").open("ab") as file:
            file.write(b'ee"}\n')
        assert run_once(index, logs).messages == 1
        ((_, offset),) = offsets(index, "three")
        data = (logs / "a.jsonl").read_bytes()
        (entry,) = index.query("orders", key="three").entries
        assert data[offset : offset + entry.size] == b'{"id":"three"}'


def test_pattern_gives_named_groups_and_other_lines_are_counted(tmp_path, logs):
    (logs / "app.log").write_text(
        "2024-01-01T00:00:00Z INFO order=A-1 paid\n"
        "  at Trace.java:12\n"
        "2024-01-01T00:00:01Z INFO order=A-2 sent\n"
    )
    pattern = r"^(?P<at>\S+) \S+ order=(?P<order>\S+)"
    with opened(tmp_path / "data") as index:
        status = run_once(
            index, logs, {"files": "*.log", "pattern": pattern},
            keys=["header:order"], time="header:at",
        )  # fmt: skip
        assert status.missing == {"header:order": 1}
        (entry,) = index.query("orders", key="A-2").entries
        assert entry.timestamp == 1_704_067_201_000


def test_folders_below_are_followed_and_other_names_are_not(tmp_path, logs):
    (logs / "eu" / "deep").mkdir(parents=True)
    (logs / "eu" / "deep" / "x.jsonl").write_text('{"id":"in"}\n')
    (logs / "x.txt").write_text('{"id":"out"}\n')
    with opened(tmp_path / "data") as index:
        assert run_once(index, logs).messages == 1
        ((partition, offset),) = offsets(index, "in")
    source = open_source(f"folder:{logs}")
    assert source.partitions() == [partition]
    assert source.place_of(partition, offset) == "eu/deep/x.jsonl, byte 0"


def test_file_that_was_cut_is_read_anew(tmp_path, logs):
    (logs / "a.jsonl").write_text('{"id":"1"}\n{"id":"2"}\n')
    with opened(tmp_path / "data") as index:
        run_once(index, logs)
        (logs / "a.jsonl").write_text('{"id":"3"}\n')
        status = run_once(index, logs)
        assert (status.restarts, status.messages) == (1, 1)
        assert len(offsets(index, "3")) == 1


def test_file_that_is_gone_takes_nothing_with_it(tmp_path, logs):
    (logs / "a.jsonl").write_text('{"id":"1"}\n')
    (logs / "b.jsonl").write_text('{"id":"2"}\n')
    with opened(tmp_path / "data") as index:
        run_once(index, logs)
        (logs / "a.jsonl").unlink()
        assert run_once(index, logs).messages == 0
        assert len(offsets(index, "1")) == 1


def test_line_longer_than_a_block_is_one_record(tmp_path, logs):
    line = json.dumps({"id": "long", "text": "x" * (3 << 20)})
    (logs / "a.jsonl").write_text(line + '\n{"id":"next"}\n')
    with opened(tmp_path / "data") as index:
        assert run_once(index, logs).messages == 2
        (entry,) = index.query("orders", key="long").entries
        assert entry.size == len(line)


def test_what_cannot_be_followed_says_what_to_do(tmp_path, logs):
    with opened(tmp_path / "data") as index:
        with pytest.raises(NotFoundError, match="there is no folder"):
            run_once(index, tmp_path / "none")
        with pytest.raises(InvalidRequestError, match="have no time"):
            follow(index, f"folder:{logs}", keys=["$.id"])
        for options in ({"pattern": "("}, {"pattern": "no group"}, {"speed": "1"}):
            with pytest.raises(InvalidRequestError):
                run_once(index, logs, options)
        for source in ("orders", "ftp://x/y", ":x"):
            with pytest.raises(InvalidRequestError):
                follow(index, source, keys=["key"])


@pytest.mark.heavy
def test_kill_9_at_any_moment_loses_and_doubles_nothing(tmp_path, logs):
    data = tmp_path / "data"
    command = [
        sys.executable, "-m", "tierdex.app.cli", "follow", f"folder:{logs}", "-k", "$.id",
        "-k", "$.also", "--time", "$.at", "--data", str(data), "--set", "slot_count=4096",
        "--set", "item_capacity=3000", "--set", "node=here",
    ]  # fmt: skip
    written = 0

    def grow(count):
        nonlocal written
        with (logs / f"{written % 3}.jsonl").open("a") as file:
            for n in range(written, written + count):
                file.write(f'{{"id":"k{n}","also":"a{n}","at":{1_700_000_000_000 + n}}}\n')
        written += count

    grow(2000)
    for _ in range(1):
        follower = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        give_up = clock.monotonic() + PATIENCE_S
        before = index_files(data)
        while index_files(data) == before:  # until it has done something
            grow(50)
            clock.wait(Bell(), 0.02)
            assert follower.poll() is None
            assert clock.monotonic() < give_up
        follower.send_signal(signal.SIGKILL)
        follower.wait()
    grow(10)
    subprocess.run([*command, "--once"], check=True, capture_output=True, timeout=PATIENCE_S)
    with tierdex.Index.open(data, read_only=True) as index:
        wanted = [(f"{letter}{n}", n) for n in range(written) for letter in "ka"]
        answers = index.query_batch(
            [{"topic": "orders", "key": key} for key, _ in wanted], max_count=10, on_error="fail"
        )
        for (key, number), answer in zip(wanted, answers, strict=True):
            assert [e.timestamp for e in answer.entries] == [1_700_000_000_000 + number], key


def test_metrics_tell_counts_and_lag(tmp_path, logs):
    (logs / "a.jsonl").write_text('{"id":"1"}\n{}\n')
    with opened(tmp_path / "data") as index:
        status = run_once(index, logs)
    with follow_metrics(status, 0) as port:
        text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    for line in (
        'tierdex_follow_messages_total{topic="orders"} 2.0',
        'tierdex_follow_missing_total{selector="$.id",topic="orders"} 1.0',
        'tierdex_follow_waiting{topic="orders"} 0.0',
    ):
        assert line in text
    assert 'tierdex_follow_lag{partition="' in text


def index_files(folder):
    """Return the files of the index and when they were changed."""
    return [(path.name, path.stat().st_mtime_ns) for path in sorted(folder.glob("*/0*"))]


def test_byte_order_mark_hides_no_line_and_is_part_of_none(tmp_path, logs):
    (logs / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"id":"1"}\n{"id":"2"}\n')
    with opened(tmp_path / "data") as index:
        assert run_once(index, logs).unreadable == 0
        (entry,) = index.query("orders", key="1").entries
        assert (entry.offset, entry.size) == (3, 10)
        source = open_source(f"folder:{logs}")
        assert source.fetch(entry.queue_id, 3).value == b'{"id":"1"}'
        assert source.fetch(entry.queue_id, 4) is None
        source.close()
        (logs / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"id":"3"}\n')
        run_once(index, logs)
        assert len(offsets(index, "3")) == 1


def test_what_is_no_file_is_skipped_by_name_and_links_lead_nowhere_twice(tmp_path, logs):
    (logs / "sub").mkdir()
    (logs / "sub" / "a.jsonl").write_text('{"id":"1"}\n')
    (logs / "sub" / "up").symlink_to("..")
    (logs / "now.jsonl").symlink_to("sub/a.jsonl")
    (logs / "gone.jsonl").symlink_to("absent")
    os.mkfifo(logs / "p.jsonl")
    os.mkfifo(logs / "other")
    with opened(tmp_path / "data") as index:
        status = run_once(index, logs)
        assert status.counts()["skipped"] == {
            "p.jsonl": "a pipe",
            "gone.jsonl": "a link to nothing",
        }
        assert len(offsets(index, "1")) == 1


def test_name_that_is_no_text_is_followed_and_told_escaped(tmp_path, logs):
    with open(os.fsencode(logs) + b"/caf\xe9.jsonl", "wb") as file:
        file.write(b'{"id":"1"}\n')
    with opened(tmp_path / "data") as index:
        run_once(index, logs)
        answer = index.query("orders", key="1")
    assert run_again_reads_nothing(tmp_path, logs)
    with MessageFetcher(tmp_path / "data") as messages:
        (entry,) = messages.with_messages(answer, key="1").entries
    assert entry.message.outcome == "shown"
    assert entry.message.where.endswith("caf\\xe9.jsonl, byte 0")


def run_again_reads_nothing(tmp_path, logs):
    with opened(tmp_path / "data") as index:
        return run_once(index, logs).messages == 0
