"""A server in a network of its own is reached from inside, and from nowhere else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools import own_network

_PROGRAM = """
import socket
server = socket.socket()
server.bind(("0.0.0.0", 0))
server.listen()
socket.create_connection(("127.0.0.1", server.getsockname()[1])).close()
print(server.getsockname()[1], flush=True)
input()
"""


def test_port_of_all_interfaces_is_reached_from_inside_only():
    command = [sys.executable, own_network.__file__, sys.executable, "-c", _PROGRAM]
    with subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, text=True) as process:
        port = process.stdout.readline()
        if not port and process.wait() == own_network.REFUSED:
            pytest.skip(f"cannot mount a network of its own: {process.stderr.read()}")
        interfaces = Path(f"/proc/{process.pid}/net/dev").read_text()
        process.communicate("\n")
    assert int(port)
    names = {line.partition(":")[0].strip() for line in interfaces.splitlines()[2:]}
    assert "lo" in names
    assert not {name for name in names if name.startswith(("eth", "en", "wl"))}
    assert process.returncode == 0
