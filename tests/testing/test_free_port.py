"""A port is given once: to no other caller in this process, and to no other process while this one lives."""

from __future__ import annotations

import socket
import subprocess
import sys

from tools.free_port import _is_free, find_free_port

ASKS_FROM_THERE_ON = """
import sys
from tools import free_port
free_port._FIRST = int(sys.argv[1])
free_port.os.getpid = lambda: 0  # begin with the first
print(free_port.find_free_port(3))
"""


def found_by_another_process(first: int) -> int:
    command = [sys.executable, "-c", ASKS_FROM_THERE_ON, str(first)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_no_two_calls_get_the_same_port():
    ports = [find_free_port(3) for _ in range(20)]
    taken = [port + n for port in ports for n in range(3)]
    assert len(set(taken)) == len(taken)


def test_another_process_gets_none_of_ours():
    first = find_free_port(2)
    assert found_by_another_process(first - 1) > first + 1


def test_port_at_which_somebody_listens_is_not_free():
    port = find_free_port()
    assert _is_free(port)
    with socket.create_server(("127.0.0.1", port)):
        assert not _is_free(port)
