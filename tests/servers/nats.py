"""A NATS server with JetStream, of Debian, for the test session."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from tools.debian import has_programs
from tools.free_port import find_free_port
from tools.server_process import ServerProcess


class NatsServer(ServerProcess):
    """The server, and what tests do to its streams."""

    def __init__(self, folder, config=None):
        """`config` is the text of its configuration file."""
        port = find_free_port()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "nats.conf").write_text(config or "")
        command = [
            "nats-server",
            "-c",
            str(folder / "nats.conf"),
            "-js",
            "-sd",
            str(folder / "js"),
            "-a",
            "127.0.0.1",
            "-p",
            str(port),
        ]
        super().__init__(command, folder, port)

    def run(self, work, **login):
        """Run `work(jetstream)`, a coroutine function, on a connection of its own."""
        import nats

        async def connected():
            connection = await nats.connect(f"nats://{self.address}", **login)
            try:
                return await work(connection.jetstream())
            finally:
                await connection.close()

        return asyncio.run(connected())


@contextlib.contextmanager
def running_nats(folder):
    """Yield the server; skip where it, or its client, cannot be had."""
    pytest.importorskip("nats", reason="pip install 'tierdex[nats]'")
    if not has_programs(("nats-server",), ("nats-server",)):
        pytest.skip("nats-server cannot be installed here")
    server = NatsServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()
