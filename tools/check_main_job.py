"""Runs `make run` as a newcomer does: starts it, asks it for one flight, ends it with Ctrl-C.

It leaves `./data` behind, as a newcomer's run does: what is tested afterwards must not mind. Needs the
standard library alone, since there is no environment yet.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import urllib.request

_READY_S = 900.0  # the environment is made first, and on a slow machine 61 kernels are compiled
_END_S = 120.0
_FLIGHT = "/v1/messages?topic=UA&key=UA1545&max_count=2"


def main() -> int:
    port = _free_port()
    command = ["make", "run", f"ARGS=--port {port}"]
    # A process group of its own: a terminal's Ctrl-C reaches make and the service alike.
    job = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    threading.Thread(target=_pass_on, args=(job, lines), daemon=True).start()
    try:
        _wait_for("serving on ", lines, _READY_S)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{_FLIGHT}", timeout=60) as answer:
            messages = json.load(answer)["messages"]
        os.killpg(job.pid, signal.SIGINT)
        _wait_for(
            '"event":"stopped"', lines, _END_S
        )  # make itself ends by the signal, whatever the job did
        job.wait(_END_S)
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
    if len(messages) != 2 or not all(each["body"].startswith("2013,") for each in messages):
        print(f"make run: two flights of UA1545 were expected: {messages}")
        return 1
    print("make run: served two flights of UA1545 and ended in order")
    return 0


def _pass_on(job: subprocess.Popen[str], lines: queue.SimpleQueue[str | None]) -> None:
    assert job.stdout is not None
    for line in job.stdout:
        sys.stdout.write(line)
        lines.put(line)
    lines.put(None)


def _wait_for(text: str, lines: queue.SimpleQueue[str | None], patience_s: float) -> None:
    """Read the output until a line holds a text. Raises TimeoutError, ChildProcessError."""
    line: str | None = ""
    while line is None or text not in line:
        try:
            line = lines.get(timeout=patience_s)
        except queue.Empty:
            raise TimeoutError(f"make run said nothing for {patience_s:.0f} s") from None
        if line is None:
            raise ChildProcessError(f"make run ended before it said {text!r}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
