"""A server of another project as a process of ours: started, waited for, ended by its own id."""

from __future__ import annotations

import signal
import socket
import subprocess
from typing import TYPE_CHECKING

from tierdex.clock import Bell, SystemClock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_START_S = 240.0  # these end only what would never end
_STOP_S = 60.0


class ServerProcess:
    """One process that listens on a port of loopback; its output goes to `folder`/output."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        port: int,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._command = command
        self._output = folder / "output"
        self._port = port
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def process(self) -> ServerProcess:
        """Itself: servers that are more than one process have it, too."""
        return self

    def start(self) -> None:
        """Start it and wait until it takes connections. Raises RuntimeError with the end of its output."""
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True, env=self._environment,
            )  # fmt: skip
        clock = SystemClock()
        give_up = clock.monotonic() + _START_S
        while not self.answers():
            if self._process.poll() is not None or clock.monotonic() > give_up:
                self.kill()
                said = self._output.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{self._command[0]} does not start: {said}")
            clock.wait(Bell(), 0.02)

    def answers(self) -> bool:
        """Say whether it takes connections."""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def kill(self) -> None:
        """End it as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it as its operator would."""
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
