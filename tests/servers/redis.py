"""A Redis server of Debian for the test session."""

from __future__ import annotations

import contextlib

import pytest

from tools.debian import has_programs
from tools.free_port import find_free_port
from tools.server_process import ServerProcess


class RedisServer(ServerProcess):
    """The server, with a client for the tests."""

    def __init__(self, folder):
        port = find_free_port()
        folder.mkdir(parents=True, exist_ok=True)
        command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder),
                   "--appendonly", "yes", "--save", ""]  # fmt: skip
        super().__init__(command, folder, port)

    @property
    def client(self):
        import redis

        host, _, port = self.address.partition(":")
        return redis.Redis(host, int(port))


@contextlib.contextmanager
def running_redis(folder):
    """Yield the server; skip where it, or its client, cannot be had."""
    pytest.importorskip("redis", reason="pip install 'tierdex[redis]'")
    if not has_programs(("redis-server",), ("redis-server",)):
        pytest.skip("redis-server cannot be installed here")
    server = RedisServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()
