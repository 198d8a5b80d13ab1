"""The plug-in of RocketMQ's broker: the unmodified mqadmin and Java client find what only Tierdex knows."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.following.worlds import Sent
from tests.patience import PATIENCE_S
from tests.servers.rocketmq import running_rocketmq
from tests.servers.tierdex_server import running_tierdex
from tierdex.clock import Bell, SystemClock
from tools.free_port import find_free_port
from tools.maven import JarsUnavailableError, fetch_jars
from tools.rocketmq_plugin import compile_plugin
from tools.rocketmq_server import POM

FIND_BY_KEY = Path(__file__).with_name("FindByKey.java")
BROKERS = {"5.3.3": POM, "5.5.0": POM.with_name("pom-5.5.0.xml")}  # of which the jars come
PLUGIN = "tierdex.rocketmq.TierdexMessageStore"
clock = SystemClock()


@pytest.fixture(params=BROKERS)
def broker(request, tmp_path):
    """A broker with the plug-in, and the port at which it looks for Tierdex."""
    try:
        jars = fetch_jars(BROKERS[request.param], f"rocketmq-{request.param}")
        plugin = compile_plugin(request.param, jars, tmp_path / "classes")
    except JarsUnavailableError as error:
        pytest.skip(f"needs a real RocketMQ broker, which needs Maven, Java and a network: {error}")
    port = find_free_port()
    with running_rocketmq(
        tmp_path / "rocketmq", jars=[plugin, jars / "*"], reached=[port], messageStorePlugIn=PLUGIN,
        tierdexUrl=f"http://127.0.0.1:{port}", tierdexTimeoutMs=5000, tierdexPauseMs=100,
        tierdexArchive="true" if "kept" in request.node.name else "false",
        fileReservedTime=0 if "kept" in request.node.name else 72, cleanResourceInterval=500,
    ) as topics:  # fmt: skip
        yield topics, port


def sent(count, first=0, padding=0):
    return [
        Sent(
            b"k%d SKU-1" % n, b'{"id": %d}' % n + b" " * padding, (("UNIQ_KEY", b"UNIQUE-%d" % n),)
        )
        for n in range(first, first + count)
    ]


def follow(topics, name, data, *more):
    address = f"rocketmq://{topics.address}/{name}"
    subprocess.run(
        [sys.executable, "-m", "tierdex.app.cli", "follow", address, "--once", "--data", str(data),
         "--set", "node=here", *more],
        check=True, capture_output=True, timeout=PATIENCE_S,
    )  # fmt: skip


def by_key(topics, name, key):
    """Return the places that mqadmin tells of a key: (queue, offset)."""
    said = topics.process.admin("queryMsgByKey", "-n", topics.address, "-t", name, "-k", key)
    rows = [line.split() for line in said.splitlines() if line[:1] not in ("#", "")]
    return sorted(
        (int(row[1]), int(row[2])) for row in rows if len(row) == 3 and "".join(row[1:]).isdigit()
    )


@pytest.mark.heavy
def test_messages_that_the_broker_index_has_no_more_are_found(broker, tmp_path):
    topics, port = broker  # it started, and Tierdex was not there
    topics.make_topic("orders", 2)
    topics.send("orders", 0, sent(20))
    topics.send("orders", 1, sent(5, 20))
    assert by_key(topics, "orders", "k7") == [(0, 7)]  # by its own index
    follow(topics, "orders", tmp_path / "data")
    restart_without_index(topics)
    assert by_key(topics, "orders", "k7") == []
    anonymous = ("--port", str(port), "--allow-anonymous", "read")
    with running_tierdex(tmp_path / "data", *anonymous) as service:
        assert by_key(topics, "orders", "k7") == [(0, 7)]
        assert len(by_key(topics, "orders", "SKU-1")) == 25
        said = topics.process.admin(
            "queryMsgByUniqueKey", "-n", topics.address, "-t", "orders", "-i", "UNIQUE-22"
        )
        assert "Queue ID:            1" in said, said
        java = topics.process.run_java(FIND_BY_KEY, topics.address, "orders", "k21")
        assert '1 1 {"id": 21}' in java
        assert by_key(topics, "orders", "k99") == []
        topics.send("orders", 1, sent(1, 30))  # newer than what Tierdex knows
        wait_until(lambda: by_key(topics, "orders", "k30") == [(1, 5)])
        assert len(by_key(topics, "orders", "SKU-1")) == 26
        service.stop(signal.SIGKILL)
    assert by_key(topics, "orders", "k7") == []
    assert by_key(topics, "orders", "k30") == [(1, 5)]
    topics.process.kill_broker()
    topics.process.start_broker()
    wait_until(lambda: by_key(topics, "orders", "k30") == [(1, 5)])
    with running_tierdex(tmp_path / "data", *anonymous):
        wait_until(lambda: by_key(topics, "orders", "k7") == [(0, 7)])
        assert len(by_key(topics, "orders", "SKU-1")) == 26  # none twice


@pytest.mark.heavy
@pytest.mark.parametrize("broker", ["5.3.3"], indirect=True)
def test_kept_messages_are_shown_when_the_broker_has_them_no_more(broker, tmp_path):
    topics, port = broker
    topics.make_topic("orders", 1)
    topics.send("orders", 0, sent(5))
    for first in range(10, 60):
        topics.send("orders", 0, sent(1, first, padding=90_000))
    follow(topics, "orders", tmp_path / "data", "--keep")
    topics.delete_old_files()
    wait_until(lambda: topics.first_of("orders", 0) > 5)
    restart_without_index(topics)
    assert by_key(topics, "orders", "k3") == []
    arguments = ("--port", str(port), "--allow-anonymous", "message")
    with running_tierdex(tmp_path / "data", *arguments):
        assert by_key(topics, "orders", "k3") == [(0, 3)]
        said = topics.process.admin(
            "queryMsgByUniqueKey", "-n", topics.address, "-t", "orders", "-i", "UNIQUE-3"
        )
        assert "Keys:                [k3 SKU-1]" in said, said
        assert '{"id": 3}' in topics.process.run_java(FIND_BY_KEY, topics.address, "orders", "k3")
        topics.send("orders", 0, sent(1, 70))  # kept by the broker alone
        wait_until(lambda: len(by_key(topics, "orders", "SKU-1")) == 56)


def restart_without_index(topics):
    topics.process.end_broker()
    shutil.rmtree(topics.process.folder / "broker-a" / "index")
    topics.process.start_broker()
    wait_until(lambda: topics.is_registered("orders"))


def wait_until(is_so):
    give_up = clock.monotonic() + PATIENCE_S
    while True:
        with contextlib.suppress(OSError):
            if is_so():
                return
        assert clock.monotonic() < give_up
        clock.wait(Bell(), 0.5)
