"""A real `tierdex serve` process for tests: started on a free port, watched, ended by its own id."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.patience import PATIENCE_S
from tests.servers.forked_tierdex import ForkedTierdex

SMALL_FILES = {"slot_count": 1024, "item_capacity": 4096}


class TierdexServer:
    """`address` is (host, port), `lines` what it has written to stderr so far."""

    def __init__(self, process):
        self.process = process
        self.lines = []
        self.url = ""
        for line in process.stderr:
            self.lines.append(line)
            if found := re.match(r"serving on (\S+)", line):
                self.url = found[1]
                break
        self.reader = threading.Thread(target=lambda: self.lines.extend(process.stderr))
        self.reader.start()

    @property
    def address(self):
        host, _, port = self.url.partition("://")[2].partition(":")
        return host, int(port)

    def memory_bytes(self, field="VmRSS"):
        """Return what the process holds now; `VmHWM` is the most it ever did."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"{field}:\s+(\d+) kB", status)[1]) * 1024

    def open_files(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def log(self):
        return [json.loads(line) for line in self.lines if line.startswith("{")]

    def stop(self, number=signal.SIGTERM):
        """End it in order; return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(timeout=PATIENCE_S)
        self.reader.join()
        return code


@contextmanager
def running_tierdex(data, *arguments, environment=None, forked=True, **settings):
    """Serve the folder `data`; yield the TierdexServer. Keywords are settings of service or index.

    A process that is not `forked` starts as a user's does: nothing is loaded before it begins.
    """
    command = ["serve", "--port", "0"]
    command += [] if data is None else ["--data", str(data)]
    for name, value in {**SMALL_FILES, **settings}.items():
        command += ["--set", f"{name}={json.dumps(value)}"]
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TIERDEX_")}
    started = partial(ForkedTierdex, [*command, *arguments])
    if not forked:
        command = [sys.executable, "-m", "tierdex.app.cli", *command, *arguments]
        started = partial(subprocess.Popen, command, text=True)
    with started(stderr=subprocess.PIPE, env={**clean, **(environment or {})}) as process:
        server = TierdexServer(process)
        try:
            yield server
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            server.reader.join()
