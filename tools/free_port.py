"""Ports of loopback for servers that want to be told theirs before they start.

A port that is free now may be taken before the server listens: by a connection that goes out, which gets any
port of the system's range, or by another process that looks for a free one. So ports come from below that
range, and each is given once while the process that asked for it lives: a lock on its byte of one file.

Depends on tempfile.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from functools import cache
from pathlib import Path

_FIRST, _END = 12_000, 32_000  # Linux gives 32,768 and more to connections
_given: set[int] = set()


def find_free_port(neighbours: int = 1) -> int:
    """Return a port that is free together with the `neighbours` - 1 behind it.

    No other caller gets one of them until this process has ended. Raises OSError when none is left.
    """
    begin = os.getpid() * neighbours % (_END - _FIRST)  # each process looks elsewhere first
    for port in (*range(_FIRST + begin, _END), *range(_FIRST, _FIRST + begin)):
        wanted = range(port, port + neighbours)
        if _given.isdisjoint(wanted) and all(_is_free(one) and _lock(one) for one in wanted):
            _given.update(wanted)
            return port
    raise OSError(f"no port of 127.0.0.1 from {_FIRST} to {_END} is free")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # of a server that has ended, too
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _lock(port: int) -> bool:
    try:
        fcntl.lockf(_lock_file(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except BlockingIOError:
        return False
    return True


@cache
def _lock_file() -> int:
    """Return the descriptor of the file, which stays open: closing it would end every lock."""
    path = Path(tempfile.gettempdir(), f"tierdex-ports-{os.geteuid()}.lock")
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
