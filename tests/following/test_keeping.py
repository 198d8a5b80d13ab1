"""Following into a message log: bodies are kept once each, and found by their keys."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import tierdex
from tests.following.memory_log import MemoryLog
from tests.patience import PATIENCE_S
from tierdex.app.cli.commands import make_cli
from tierdex.clock import Bell, ManualClock, SystemClock
from tierdex.following.follow import follow
from tierdex.seams import Seams

clock = SystemClock()
SMALL = {
    "slot_count": 1024, "item_capacity": 65536, "background": False, "node": "here",
    "journal_bytes": 32 << 20, "max_message_bytes": 1 << 20,
}  # fmt: skip


@pytest.fixture
def log(tmp_path):
    with tierdex.MessageLog.open(tmp_path / "data", **SMALL) as log:
        yield log


def run_once(log, source, **wanted):
    wanted = {"keys": ["key"], **wanted}
    return follow(log, source.source(), once=True, seams=Seams.of(ManualClock()), **wanted).run()


def bodies(log, partition=0, topic="orders"):
    return [bytes(each.body) for each in log.reader(topic, partition, visible="os")]


def test_message_is_kept_with_its_key_headers_and_time(log):
    source = MemoryLog((0, 3))
    source.append(3, b'{"id": "A", "also": ["B", "C"]}', b"k", [("region", b"eu")], skip=40)
    source.append(3, None, b"gone")
    status = run_once(log, source, keys=["key", "$.id", "$.also[*]"], message_id="header:region")
    assert status.messages == 2
    for asked in ({"key": "k"}, {"key": "A"}, {"key": "C"}):
        (found,) = log.get("orders", **asked).messages
        assert (found.queue_id, found.offset, found.timestamp) == (3, 0, 1_700_000_000_000)
        assert bytes(found.body) == b'{"id": "A", "also": ["B", "C"]}'
        assert [(name, bytes(value)) for name, value in found.headers] == [
            ("key", b"k"),
            ("region", b"eu"),
        ]
    (by_id,) = log.get(message_id="eu").messages
    assert by_id.offset == 0
    (empty,) = log.get("orders", key="gone").messages
    assert bytes(empty.body) == b""


def test_second_run_goes_on_at_the_position_message(log, tmp_path):
    source = MemoryLog()
    for number in range(10):
        source.append(0, b"%d" % number, b"k", skip=number % 3)
    run_once(log, source)
    (tmp_path / "data" / "following.json").unlink()
    assert run_once(log, source).messages == 0
    source.append(0, b"late", b"k")
    assert run_once(log, source).messages == 1
    assert bodies(log) == [b"%d" % number for number in range(10)] + [b"late"]


def test_body_that_no_log_takes_is_passed_over_and_its_neighbours_are_kept(log):
    source = MemoryLog()
    for body in (b"a", b"x" * (2 << 20), b"b", b"y" * 900_000, b"z" * 900_000):
        source.append(0, body)
    status = run_once(log, source)
    assert (status.messages, status.passed_over) == (5, 1)
    assert [len(body) for body in bodies(log)] == [1, 1, 900_000, 900_000]
    assert run_once(log, source).messages == 0


@pytest.mark.heavy
def test_kill_9_keeps_every_message_once(tmp_path):
    logs, data = tmp_path / "orders", tmp_path / "data"
    logs.mkdir()
    written = 0
    command = [
        sys.executable, "-m", "tierdex.app.cli", "follow", f"folder:{logs}", "-k", "$.id", "--keep",
        "--time", "$.at", "--data", str(data), "--set", "slot_count=4096",
        "--set", "journal_bytes=33554432", "--set", "node=here",
    ]  # fmt: skip

    def grow(count):
        nonlocal written
        with (logs / "a.jsonl").open("a") as file:
            file.writelines(f'{{"id":"k{n}","at":{n}}}\n' for n in range(written, written + count))
        written += count

    grow(3000)
    follower = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    give_up = clock.monotonic() + PATIENCE_S
    while not (data / "following.json").exists():
        grow(50)
        clock.wait(Bell(), 0.02)
        assert follower.poll() is None
        assert clock.monotonic() < give_up
    follower.send_signal(signal.SIGKILL)
    follower.wait()
    subprocess.run([*command, "--once"], check=True, capture_output=True, timeout=PATIENCE_S)
    with tierdex.MessageLog.open(data, read_only=True) as log:
        (queue,) = log.queues("orders")
        kept = bodies(log, queue)
        assert kept == [line.encode() for line in (logs / "a.jsonl").read_text().splitlines()]


def test_messages_are_kept_beside_a_store_that_the_command_names(tmp_path):
    logs, store = tmp_path / "orders", tmp_path / "store"
    logs.mkdir()
    (logs / "a.jsonl").write_text('{"id":"k0","at":0}\n')
    command = [
        "follow", f"folder:{logs}", "-k", "$.id", "--keep", "--once", "--time", "$.at",
        "--data", str(tmp_path / "data"), "--store", str(store), "--set", "slot_count=4096",
        "--set", "journal_bytes=33554432",
    ]  # fmt: skip
    result = CliRunner().invoke(make_cli(), command)
    assert result.exit_code == 0, (result.output, result.exception)
    assert (store / "nodes").is_dir()
    assert not (tmp_path / "data" / "store").exists()
