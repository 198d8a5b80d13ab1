"""RocketMQ's message store and Kafka's log, in a process of their own: see java/LogPeers.java.

Maven fetches the jars, by its own settings; where it or Java is not here, the peers are left out, with a
message. One process a peer, so that neither warms the other's code.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from tools.maven import JarsUnavailableError, fetch_jars, run_tool

SOURCES = Path(__file__).parent / "java"


class PeerUnavailableError(Exception):
    """The peer cannot run here, and why."""


def build() -> str:
    """Fetch the jars and compile the harness; return the class path. Raises PeerUnavailableError."""
    try:
        jars = fetch_jars(SOURCES / "pom.xml", "log-peers")
        classes = jars.with_name("classes")
        run_tool(["javac", "-cp", f"{jars}/*", "-d", str(classes), str(SOURCES / "LogPeers.java")])
    except JarsUnavailableError as error:
        raise PeerUnavailableError(str(error)) from error
    return f"{classes}:{jars}/*"


class JavaLog:
    """One peer: `rocketmq`, `rocketmq-rocksdb` or `kafka`. Close it."""

    def __init__(
        self, class_path: str, kind: str, folder: Path, queues: int, *, sync: bool
    ) -> None:
        folder.mkdir(parents=True)
        with (folder.parent / f"{folder.name}.err").open("w") as errors:
            self._process = subprocess.Popen(
                ["java", "-Xmx4g", f"-Duser.home={folder.parent}", "-cp", class_path, "LogPeers"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
                cwd=folder.parent,
            )  # fmt: skip
        self._queues = queues
        try:
            self._ask(f"open {kind} {folder} {queues} {str(sync).lower()}")
        except BaseException:
            self._end()
            raise

    def single(self, in_flight: int, count: int, size: int) -> float:
        """Return the seconds of one append, `in_flight` of them waiting at any time."""
        return self._ask(f"single {in_flight} {count} {size}") / count

    def batch(self, calls: int, messages: int, size: int) -> float:
        """Return the seconds of one message, in calls of so many."""
        return self._ask(f"batch {calls} {messages} {size}") / (calls * messages)

    def tail(self, reads: int) -> float:
        """Return the seconds of one read of the last 10 messages of a queue."""
        self._ask("settle")
        return self._ask(f"tail {reads}") / reads

    def close(self) -> None:
        try:
            self._ask("close")
        finally:
            self._end()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _ask(self, line: str) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        assert self._process.stdout is not None
        while answer := self._process.stdout.readline():
            word, _, rest = answer.partition(" ")
            if word == "ok":
                return int(rest.split()[1]) * 1e-9
            if word == "error":
                raise PeerUnavailableError(rest.strip()[:200])
        raise PeerUnavailableError("the process ended")
