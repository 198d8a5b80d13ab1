"""moto's S3 server in a process of its own: quick, and wrong about other things than radosgw."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time

import pytest

from tests.patience import PATIENCE_S
from tests.servers.s3_server import S3Server
from tools.free_port import find_free_port


@contextlib.contextmanager
def running_moto():
    """Start the server, yield it as an S3Server, end its process."""
    port = find_free_port()
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1"]
    process = subprocess.Popen(
        [*command, "-p", str(port)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_until_it_listens(process, port)
        yield S3Server.at("moto", port)
    finally:
        process.kill()
        process.wait()


def _wait_until_it_listens(process, port) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up:
        if process.poll() is not None:
            pytest.fail(f"moto's server ended with {process.returncode}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    pytest.fail(f"moto's server does not listen on port {port}")
