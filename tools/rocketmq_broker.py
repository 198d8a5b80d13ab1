"""A real RocketMQ 5 broker with its tiered store, which takes messages and says where they are.

It runs in a network of its own: the port of its high availability, the one behind `listenPort`, is bound to
all interfaces whatever `bindAddress` says.

Maven fetches its jars; TieredBroker.java beside the POM runs name server, broker and producer in one
process. The tiered store writes files (its POSIX provider: the default one keeps 10,000 bytes in memory),
and uploads its index files by its own code.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tools import own_network
from tools.free_port import find_free_port
from tools.maven import JarsUnavailableError, fetch_jars, run_tool

SOURCES = Path(__file__).with_name("rocketmq")
TOPIC = "orders"
_RUN_S = 1800.0  # it ends only what would never end
_CONFIG = """\
brokerClusterName=cluster
brokerName=broker-a
brokerId=0
brokerIP1=127.0.0.1
bindAddress=127.0.0.1
listenPort={port}
namesrvAddr=127.0.0.1:{namesrv}
storePathRootDir={root}
storePathCommitLog={root}/commitlog
mappedFileSizeCommitLog=67108864
mappedFileSizeConsumeQueue=6000000
diskMaxUsedSpaceRatio=99
waitTimeMillsInSendQueue=60000
osPageCacheBusyTimeOutMills=60000
autoCreateTopicEnable=false
messageStorePlugIn=org.apache.rocketmq.tieredstore.TieredMessageStore
tieredStorageLevel=FORCE
tieredBackendServiceProvider=org.apache.rocketmq.tieredstore.provider.PosixFileSegment
tieredStoreFilePath={root}/tiered
tieredStoreIndexFileMaxHashSlotNum=5000
tieredStoreIndexFileMaxIndexNum={items}
tieredStoreGroupCommitTimeout=500
"""
_QUIET = "<configuration><root level='OFF'/></configuration>"


class Place(NamedTuple):
    """Where the broker's own queryMessage says that a key's message lies."""

    key: str
    queue_id: int
    offset: int
    size: int
    queue_offset: int


class TieredRun(NamedTuple):
    """The broker's folder after it ended, and a place for each key."""

    root: Path
    places: list[Place]


def run_tiered_broker(folder: Path, count: int, *, items: int = 20_000) -> TieredRun:
    """Send `count` messages through a broker, ask it for each, end it.

    `items` is the capacity of an index file. Raises JarsUnavailableError, RuntimeError with its output.
    """
    jars = fetch_jars(SOURCES / "pom.xml", "rocketmq")
    classes, root = folder / "classes", folder / "store"
    (folder / "home").mkdir(parents=True)
    source = SOURCES / "TieredBroker.java"
    run_tool(["javac", "-nowarn", "-cp", f"{jars}/*", "-d", str(classes), str(source)])
    namesrv, port = find_free_port(), find_free_port(3)  # the broker takes neighbours as well
    config, places, quiet = folder / "broker.conf", folder / "places", folder / "quiet.xml"
    config.write_text(_CONFIG.format(port=port + 2, namesrv=namesrv, root=root, items=items))
    quiet.write_text(_QUIET)
    done = subprocess.run(
        [
            sys.executable, str(Path(own_network.__file__)),
            "java", "-Xmx1g", "-XX:TieredStopAtLevel=1", f"-Duser.home={folder}",
            f"-Drmq.logback.configurationFile={quiet}", f"-Drocketmq.home.dir={folder / 'home'}",
            "-cp", f"{classes}:{jars}/*", "TieredBroker", str(folder / "home"), str(namesrv),
            str(port + 2), str(config), str(count), str(places),
        ],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_RUN_S, check=False,
    )  # fmt: skip
    if done.returncode == own_network.REFUSED:
        raise JarsUnavailableError(done.stderr.strip())
    if done.returncode or not done.stdout.rstrip().endswith("ended"):
        raise RuntimeError(
            f"the broker did not end well: {done.stdout[-1500:]}{done.stderr[-1500:]}"
        )
    rows = [line.split() for line in places.read_text().splitlines()]
    return TieredRun(root, [Place(row[0], *map(int, row[1:])) for row in rows])
