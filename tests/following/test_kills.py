"""kill -9 of the follower and of its log's server, in turns, while messages are produced."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

import tierdex
from tests.following.test_follower import offsets
from tests.following.worlds import WORLDS, make_records
from tests.patience import PATIENCE_S
from tierdex.clock import Bell, SystemClock

clock = SystemClock()
SERVED = [name for name, world in WORLDS.items() if world.server != "tmp_path"]


@pytest.mark.heavy
@pytest.mark.parametrize("kind", SERVED)
def test_nothing_is_lost_or_doubled(kind, request, tmp_path):
    server = request.getfixturevalue(WORLDS[kind].server)
    if kind == "kafka":
        server.need_real()
    world, data, sent = WORLDS[kind](server, "t-killed"), tmp_path / "data", 0
    command = [
        sys.executable, "-m", "tierdex.app.cli", "follow", world.address, "-k", "$.id", "--data",
        str(data), "--topic", "t", "--set", "slot_count=4096", "--set", "item_capacity=3000",
        "--set", "node=here",
    ]  # fmt: skip
    command += ["--source-option", "value=v"] if kind == "redis" else []
    for turn in range(3):
        follower = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        for burst in range(4):
            world.append(world.partitions[burst % len(world.partitions)], make_records(500, sent))
            sent += 500
            if turn == 1 and burst == 1:
                server.process.kill()
                clock.wait(Bell(), 0.5)
                server.process.start()
            clock.wait(Bell(), 0.3)
        assert follower.poll() is None
        follower.send_signal(signal.SIGKILL)
        follower.wait()
    subprocess.run([*command, "--once"], check=True, capture_output=True, timeout=PATIENCE_S)
    with tierdex.Index.open(data, read_only=True) as index:
        found = [len(offsets(index, f"k{number}", "t")) for number in range(sent)]
    assert found == [1] * sent
