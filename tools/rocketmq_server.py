"""`python -m tools.rocketmq_server FOLDER`: a name server and a broker of RocketMQ, as users start them.

They run in a network of their own, because a broker binds the port behind its own to all interfaces whatever
it is told; relays make them reachable at 127.0.0.1. Maven fetches their jars.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tierdex.clock import Bell, SystemClock
from tools import network_relay, own_network
from tools.free_port import find_free_port
from tools.maven import JarsUnavailableError, fetch_jars

if TYPE_CHECKING:
    from collections.abc import Sequence

POM = Path(__file__).with_name("rocketmq") / "pom.xml"
_clock = SystemClock()
_START_S = 180.0
_NEIGHBOURS = 4  # ports that a broker takes: two before its own, and the one behind
_NAMESRV = "org.apache.rocketmq.namesrv.NamesrvStartup"
_BROKER = "org.apache.rocketmq.broker.BrokerStartup"
_ADMIN = "org.apache.rocketmq.tools.command.MQAdminStartup"
_NAMESRV_CONFIG = "listenPort={port}\nbindAddress=127.0.0.1\n"
# The timer's files are not flushed, and metrics early: a broker spins until the time of the first comes.
_BROKER_CONFIG = """\
brokerClusterName=cluster
brokerName={name}
brokerId=0
brokerIP1=127.0.0.1
bindAddress=127.0.0.1
listenPort={port}
namesrvAddr=127.0.0.1:{namesrv}
storePathRootDir={root}
storePathCommitLog={root}/commitlog
mappedFileSizeCommitLog=1048576
mappedFileSizeConsumeQueue=60000
maxHashSlotNum=5000
maxIndexNum=20000
diskMaxUsedSpaceRatio=99
waitTimeMillsInSendQueue=60000
osPageCacheBusyTimeOutMills=60000
autoCreateTopicEnable=false
transientStorePoolEnable=false
timerFlushIntervalMs=600000
transactionMetricFlushInterval=500
"""
# A request that no server knows, in a frame of the remoting protocol: length, length of the header, header.
_HEADER = b'{"code":0,"language":"OTHER","version":453,"opaque":1,"flag":0,"extFields":{}}'
_QUESTION = b"".join(n.to_bytes(4, "big") for n in (4 + len(_HEADER), len(_HEADER))) + _HEADER
_QUIET = "<configuration><root level='OFF'/></configuration>"


class RocketServer:
    """A name server and a broker or two. `address` is the name server's."""

    def __init__(
        self,
        folder: Path,
        *,
        jars: Sequence[Path] = (),
        java: Sequence[str] = (),
        reached: Sequence[int] = (),
        **settings: object,
    ) -> None:
        """`settings` are the broker's, `jars` are instead of its own, `java` options of Java.

        Ports of this machine that are `reached` are at 127.0.0.1 for the broker, too. Raises
        JarsUnavailableError where the servers cannot run.
        """
        self.folder = folder
        self._broker_jars = jars
        self._options = java
        self._reached = reached
        self._jars = [fetch_jars(POM, "rocketmq") / "*"]
        self.namesrv = find_free_port()
        first = find_free_port(2 * _NEIGHBOURS)
        self.ports = {"broker-a": first + 2, "broker-b": first + 2 + _NEIGHBOURS}
        self.address = f"127.0.0.1:{self.namesrv}"
        self.settings = settings
        self.processes: dict[str, subprocess.Popen[str]] = {}
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "quiet.xml").write_text(_QUIET)
        (folder / "namesrv.conf").write_text(_NAMESRV_CONFIG.format(port=self.namesrv))

    def address_of(self, broker: str = "broker-a") -> str:
        """Return where a broker is, or will be."""
        return f"127.0.0.1:{self.ports[broker]}"

    def start(self) -> None:
        """Start all but broker-b. Raises JarsUnavailableError, RuntimeError."""
        inside, outside = [], []
        for port in (self.namesrv, *self.ports.values()):
            path, server = str(self.folder / f"{port}.socket"), f"127.0.0.1:{port}"
            inside += [path, server]
            outside += [server, path]
        for port in self._reached:
            path, server = str(self.folder / f"{port}.socket"), f"127.0.0.1:{port}"
            inside += [server, path]
            outside += [path, server]
        relay = [sys.executable, str(Path(network_relay.__file__))]
        own = [sys.executable, str(Path(own_network.__file__))]
        self._start("inside", [*own, *relay, *inside])
        self._start("outside", [*relay, *outside])
        self.start_namesrv()
        self.start_broker()

    def start_namesrv(self) -> None:
        """Start the name server, which remembers nothing."""
        config = str(self.folder / "namesrv.conf")
        self._java("namesrv", ["-Xmx200m", *self._options], _NAMESRV, ["-c", config])
        self._wait_for(self.namesrv)

    def start_broker(self, name: str = "broker-a") -> None:
        """Start a broker on its folder; wait until it listens."""
        config = self.folder / f"{name}.conf"
        text = _BROKER_CONFIG.format(
            name=name, port=self.ports[name], namesrv=self.namesrv, root=self.folder / name
        )
        config.write_text(text + "".join(f"{k}={v}\n" for k, v in self.settings.items()))
        options = ["-Xmx400m", "-XX:MaxDirectMemorySize=200m", *self._options]
        self._java(name, options, _BROKER, ["-c", str(config)], self._broker_jars)
        self._wait_for(self.ports[name])

    def kill_broker(self, name: str = "broker-a") -> None:
        """End a broker as a crash does."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def end_broker(self, name: str = "broker-a") -> None:
        """End a broker as its operator does."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGTERM)
        process.wait()

    def admin_command(self, *arguments: str) -> list[str]:
        """Return the command line of the unmodified mqadmin."""
        return self._command([f"-Drocketmq.namesrv.addr={self.address}"], _ADMIN, arguments)

    def admin(self, *arguments: str) -> str:
        """Run mqadmin and return what it said."""
        command = self.admin_command(*arguments)
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_START_S
        )
        return done.stdout + done.stderr

    def kill(self) -> None:
        """End everything; the folder stays."""
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.communicate()  # closes its pipes
        self.processes.clear()

    def run_java(self, source: Path, *arguments: str) -> str:
        """Run a program of one file beside the servers, and return its output. Raises RuntimeError."""
        command = self._command([], str(source), arguments)
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_START_S
        )
        if done.returncode:
            raise RuntimeError(f"{source.name} failed: {done.stdout[-1000:]}{done.stderr[-2000:]}")
        return done.stdout

    def _java(
        self,
        name: str,
        options: Sequence[str],
        main: str,
        arguments: Sequence[str],
        jars: Sequence[Path] = (),
    ) -> None:
        command = self._command(options, main, arguments, jars)
        with (self.folder / f"{name}.out").open("w") as output:
            self.processes[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, text=True,
                env={**os.environ, "ROCKETMQ_HOME": str(self.folder)},
            )  # fmt: skip

    def _command(
        self,
        options: Sequence[str],
        main: str,
        arguments: Sequence[str],
        jars: Sequence[Path] = (),
    ) -> list[str]:
        inside = self.processes["inside"].pid
        return [
            "nsenter", "-t", str(inside), "-n",
            "java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Duser.home={self.folder}",
            f"-Drmq.logback.configurationFile={self.folder / 'quiet.xml'}",
            f"-Drocketmq.home.dir={self.folder}", *options,
            "-cp", ":".join(map(str, jars or self._jars)), main, *arguments,
        ]  # fmt: skip

    def _start(self, name: str, command: Sequence[str]) -> None:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        if process.stdout.readline() != "ready\n":
            said = process.stderr.read().strip()
            self.kill()
            raise JarsUnavailableError(f"no network of its own: {said}")
        self.processes[name] = process

    def _wait_for(self, port: int) -> None:
        """Wait until a server answers at a port: a relay takes connections for one that is not there yet."""
        give_up = _clock.monotonic() + _START_S
        while _clock.monotonic() < give_up:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as client:
                client.sendall(_QUESTION)
                if client.recv(1):  # whatever it says
                    return
            for name, process in self.processes.items():
                if process.poll() is not None and (self.folder / f"{name}.out").exists():
                    said = (self.folder / f"{name}.out").read_text()[-1500:]
                    raise RuntimeError(f"the {name} ended: {said}")
            _clock.wait(Bell(), 0.1)
        raise RuntimeError(f"nothing listens at port {port}")


def main() -> None:
    """Run until Ctrl-C or SIGTERM."""
    server = RocketServer(Path(sys.argv[1]).absolute())
    server.start()
    print(f"name server at {server.address}", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        signal.pause()
    server.kill()


if __name__ == "__main__":
    main()
