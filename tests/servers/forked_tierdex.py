"""`tierdex COMMAND` in a process of its own, at the price of a fork: modules and kernels are loaded already.

It is used like `subprocess.Popen` and `subprocess.run`, and runs what `python -m tierdex.app.cli` runs: its
own arguments, environment, working folder, standard streams, threads, locks and signals. What a fork cannot
show is left to tests that start Python: what is imported, kernels that are compiled, memory from its
beginning on.
"""

from __future__ import annotations

import ast
import contextlib
import logging
import os
import select
import signal
import socket
import subprocess
import sys

from tests.torture.fork_server import server


class ForkedTierdex:
    """A running command. `stdout` and `stderr` are text to read from where they are `subprocess.PIPE`."""

    def __init__(self, arguments, *, cwd=None, env=None, stdout=None, stderr=None):
        self.args = ["tierdex", *map(str, arguments)]
        self.returncode = None
        streams, ours = [], []
        for asked, number in ((stdout, 1), (stderr, 2)):
            reading, writing = os.pipe() if asked is subprocess.PIPE else (None, os.dup(number))
            streams.append(writing)
            ours.append(None if reading is None else os.fdopen(reading))
        self.stdout, self.stderr = ours
        told = {"cwd": str(cwd or os.getcwd()), "env": dict(os.environ if env is None else env)}
        try:
            self._child = server().fork(f"{__name__}:run_main", self.args, told, streams=streams)
        finally:
            for stream in streams:
                os.close(stream)
        self.pid = self._child.pid
        self._ended = os.pidfd_open(self.pid)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.wait()
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        self._child.tells.close()

    def poll(self):
        """Return its exit code, None while it runs."""
        return self._end_within(0)

    def wait(self, timeout=None):
        """Return its exit code once it has ended. Raises TimeoutExpired."""
        if self._end_within(timeout) is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode

    def _end_within(self, seconds):
        if self.returncode is None and select.select([self._ended], [], [], seconds)[0]:
            self.returncode = self._child.wait()
            os.close(self._ended)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def terminate(self):
        self.send_signal(signal.SIGTERM)


def run_tierdex(*arguments, **options):
    """Run a command to its end; return what it wrote and its exit code, as `subprocess.run` does."""
    with ForkedTierdex(
        arguments, **options, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        written = {process.stdout: [], process.stderr: []}
        reading = list(written)
        while reading:
            for stream in select.select(reading, [], [])[0]:
                if piece := os.read(stream.fileno(), 1 << 16):
                    written[stream].append(piece)
                else:
                    reading.remove(stream)
        stdout, stderr = (b"".join(pieces).decode() for pieces in written.values())
        return subprocess.CompletedProcess(process.args, process.wait(), stdout, stderr)


def run_main(arguments, told, streams, _):
    """Be the command, in the child."""
    _run_main(arguments, told, dict(enumerate(streams, start=1)))


def _run_main(arguments, told, streams):
    from tierdex.app.cli import main

    logging.disable(logging.NOTSET)
    for number, stream in streams.items():
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(told["cwd"])
    os.environ.clear()
    os.environ.update(told["env"])
    sys.argv = arguments
    code = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(BrokenPipeError):
                stream.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


@contextlib.contextmanager
def tierdex_program(folder):
    """Make a program in `folder` that a shell calls as it calls `tierdex`, and yield its path."""
    program, door = folder / "tierdex", folder / "tierdex.socket"
    program.write_text(_PROGRAM.format(python=sys.executable, door=str(door)))
    program.chmod(0o755)
    with server().fork(f"{__name__}:answer_calls", str(door)) as answering:
        assert answering.told() == b"ready"
        yield program


# What a shell starts: it hands its arguments and streams over, and ends as the command does.
_PROGRAM = """\
#!{python} -SEs
import os, signal, socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
    door.connect({door!r})
    said = repr((sys.argv, {{"cwd": os.getcwd(), "env": dict(os.environ)}}))
    socket.send_fds(door, [said.encode()], [0, 1, 2])
    pid = int(door.recv(99))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: os.kill(pid, number))
    code = int(door.recv(99) or b"137")
sys.exit(code)
"""


def answer_calls(door, telling):
    """Be the process that forks a command, and one that waits for it, at each call of the program."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(door)
        listening.listen()
        telling.send_bytes(b"ready")
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no child of this one is waited for
        while True:
            caller, _ = listening.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                listening.close()
                _answer_call(caller)
            caller.close()


def _answer_call(caller):
    said, streams, _, _ = socket.recv_fds(caller, 1 << 20, 3)
    arguments, told = ast.literal_eval(said.decode())
    pid = os.fork()
    if pid == 0:
        caller.close()
        _run_main(["tierdex", *arguments[1:]], told, dict(enumerate(streams)))
    caller.send(b"%d" % pid)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    caller.send(b"%d" % (code if code >= 0 else 128 - code))
    os._exit(0)
