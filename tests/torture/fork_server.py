"""Real processes at the price of a fork: children of one process that has everything loaded, and no thread.

::

    this process  --"run tests.torture.writers:write_until_killed"-->  fork server  --fork-->  child
                  <------------- what it tells, over a pipe -------------------------------------'
    server().fork(...) -> Child: `tells` to read from, `pid` to send signals to, `wait()` for its end

A child is a whole process: its own memory, threads, files and locks, killed by the kernel. It dies with
the fork server, which ends with this process.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import traceback
from multiprocessing.connection import Connection
from pathlib import Path

from tests.patience import PATIENCE_S

_MESSAGE_BYTES = 1 << 16
_PR_SET_PDEATHSIG = 1  # <sys/prctl.h>
_LIBC = ctypes.CDLL(None, use_errno=True)
# Threads that libraries start when they are loaded: numpy's algebra, Arrow's memory pool.
_NO_THREADS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
_running = {}


def server():
    """Return this process's fork server, started when first asked for."""
    if os.getpid() not in _running:
        _running[os.getpid()] = ForkServer()
        atexit.register(_running[os.getpid()].stop)
    return _running[os.getpid()]


class ForkServer:
    """Starts children and reaps them. Not safe to share between threads."""

    def __init__(self):
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(PATIENCE_S)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.torture.fork_server", str(theirs.fileno())],
            pass_fds=[theirs.fileno()], env=os.environ | _NO_THREADS,
        )  # fmt: skip
        theirs.close()
        assert self._answer() == {"ready": True}

    def fork(self, function, *arguments, streams=()):
        """Run `module:name` with (arguments..., a Connection to tell us things) in a child.

        Copies of the descriptors `streams` are another argument, before the Connection.
        """
        receiving, sending = os.pipe()
        request = json.dumps({"run": function, "arguments": arguments}, default=str).encode()
        socket.send_fds(self._socket, [request], [sending, *streams])
        os.close(sending)
        return Child(self, self._answer()["pid"], Connection(receiving, writable=False))

    def wait(self, pid, options=0):
        """Return the status of a child that ended (or, with WUNTRACED, stopped)."""
        self._socket.send(json.dumps({"wait": pid, "options": options}).encode())
        return self._answer()["status"]

    def stop(self):
        self._socket.close()
        self._process.kill()
        self._process.wait()

    def _answer(self):
        try:
            message = self._socket.recv(_MESSAGE_BYTES)
        except TimeoutError:
            message = b""
        if not message:  # the next case gets another one
            _running.pop(os.getpid(), None)
            self.stop()
            raise AssertionError("the fork server is gone, or waits for a child that does not end")
        return json.loads(message)


class Child:
    """One process. `tells` ends with EOFError once the process is dead."""

    def __init__(self, server, pid, tells):
        self.server, self.pid, self.tells = server, pid, tells

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.pid is not None:
            with contextlib.suppress(OSError):  # the server is gone, and its children with it
                self.signal(signal.SIGKILL)
                self.wait()
        self.tells.close()

    def signal(self, number):
        os.kill(self.pid, number)

    def wait(self):
        """Return the status of its end: negative for a signal. One that is stopped goes on."""
        while os.WIFSTOPPED(status := self.server.wait(self.pid, os.WUNTRACED)):
            self.signal(signal.SIGCONT)
        self.pid = None
        return os.waitstatus_to_exitcode(status)

    def wait_stopped(self):
        """Wait until it is stopped or has ended; say whether it is stopped."""
        status = self.server.wait(self.pid, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            return True
        self.pid = None
        return False

    def is_stopped(self):
        """Say, without waiting, whether it is stopped now; one whose end was seen is not."""
        if self.pid is None:
            return False
        state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2]
        return state.startswith("T")

    def told(self, timeout=PATIENCE_S):
        """Return the next thing it tells. Raises EOFError at its end, AssertionError when late."""
        assert self.tells.poll(timeout), "the child says nothing"
        return self.tells.recv_bytes()

    def all_told(self):
        """Yield what it still tells until it is dead."""
        with contextlib.suppress(EOFError, ConnectionResetError):
            while True:
                yield self.tells.recv_bytes()


def _serve(connection):
    from tests.torture import preload

    logging.disable(logging.CRITICAL)
    preload.load_everything()
    threads = [Path(task, "comm").read_text() for task in Path("/proc/self/task").iterdir()]
    assert len(threads) == 1, f"a forked process must not inherit a thread: {threads}"
    gc.collect()
    gc.freeze()
    connection.send(b'{"ready": true}')
    while True:
        message, descriptors, _, _ = socket.recv_fds(connection, _MESSAGE_BYTES, 3)
        if not message:
            return
        request = json.loads(message)
        if "run" in request:
            pid = os.fork()
            if pid == 0:
                connection.close()
                _run(request, *descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            answer = {"pid": pid}
        else:
            answer = {"status": os.waitpid(request["wait"], request["options"])[1]}
        connection.send(json.dumps(answer).encode())


def _run(request, descriptor, *streams):
    """Be the child; never return."""
    status = 1
    try:
        _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        module, _, name = request["run"].partition(":")
        function = getattr(importlib.import_module(module), name)
        with Connection(descriptor, readable=False) as telling:
            function(*request["arguments"], *([list(streams)] if streams else []), telling)
        status = 0
    except BaseException:  # noqa: BLE001 -- the parent learns it from the status and the text
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
