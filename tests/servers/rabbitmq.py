"""A RabbitMQ server with its stream plugin, of Debian, for the test session."""

from __future__ import annotations

import asyncio
import contextlib
import os

import pytest

from tools.debian import has_programs
from tools.free_port import find_free_port
from tools.server_process import ServerProcess

_PROGRAM = "/usr/lib/rabbitmq/bin/rabbitmq-server"  # Debian's wrapper would become another user
_MACHINE = "+S 1:1 +sbwt none -kernel inet_dist_use_interface {127,0,0,1}"
_SETTINGS = """\
listeners.tcp = none
stream.listeners.tcp.1 = 127.0.0.1:{port}
stream.advertised_host = 127.0.0.1
stream.advertised_port = {port}
"""


class RabbitServer:
    """The server and the name server of its Erlang machine, processes of ours; what tests do to streams."""

    def __init__(self, folder):
        self._folder = folder.absolute()
        self._port = find_free_port(3)
        self._loop = self._producer = None
        self._names = ServerProcess(
            ["epmd", "-address", "127.0.0.1", "-port", str(self._port + 2)], folder / "names", self._port + 2
        )  # fmt: skip
        self._server = ServerProcess([_PROGRAM], self._folder, self._port, self._environment())
        (self._folder / "rabbitmq.conf").write_text(_SETTINGS.format(port=self._port))
        (self._folder / "plugins").write_text("[rabbitmq_stream].")

    def _environment(self):
        folder, port = self._folder, self._port
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "RUNNING_UNDER_SYSTEMD": "1",  # the machine is this process, no child of a shell
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(port + 2),
            "RABBITMQ_DIST_PORT": str(port + 1),
            "RABBITMQ_NODENAME": f"tierdex{port}@localhost",
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": _MACHINE,
        }

    @property
    def address(self):
        return self._server.address

    @property
    def process(self):
        return self

    def start(self):
        self._names.start()
        self._server.start()

    def kill(self):
        if self._loop is not None:  # before: the client leaves a broken connection open
            self._loop.run_until_complete(self._producer.close())
            self._loop.close()
            self._loop = None
        self._server.kill()
        self._names.kill()

    def run(self, work):
        """Run `work(producer)`, a coroutine function, with a client that all tests share."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._producer = self._loop.run_until_complete(self._made_producer())
        return self._loop.run_until_complete(work(self._producer))

    def make_stream(self, name, **settings):
        """Make a stream; a setting is an argument of its queue, as in max_length_bytes=1000."""
        given = {key.replace("_", "-"): value for key, value in settings.items()}
        self.run(lambda producer: producer.create_stream(name, given))

    def publish(self, stream, records):
        """Append records (key, value, headers), and return when they are there."""
        import rstream

        messages = [
            rstream.AMQPMessage(
                body=value,
                properties=key and rstream.Properties(subject=key.decode()),
                application_properties=dict(headers) or None,
            )
            for key, value, headers in records
        ]
        self.publish_messages(stream, messages)

    def publish_messages(self, stream, messages):
        """Append messages of the client's own, or bytes, and return when they are there."""

        async def publish(producer, confirm):
            await producer.send_batch(stream, messages, on_publish_confirm=confirm)

        self._confirmed(stream, publish, len(messages))

    def publish_batch(self, stream, messages, compression_type):
        """Append messages as one entry of a chunk, and return when they are there."""

        async def publish(producer, confirm):
            await producer.send_sub_entry(
                stream, messages, compression_type, on_publish_confirm=confirm
            )

        self._confirmed(stream, publish, 1)

    def _confirmed(self, stream, publish, count):
        async def publish_and_wait(producer):
            await _available(producer, stream)
            confirmed = asyncio.Semaphore(0)
            await publish(producer, lambda _: confirmed.release())
            for _ in range(count):
                await confirmed.acquire()

        self.run(publish_and_wait)

    async def _made_producer(self):
        import rstream

        producer = rstream.Producer(
            "127.0.0.1", self._port, username="guest", password="guest", heartbeat=0
        )  # between two calls its loop stands still, and so would its heartbeats
        await producer.start()
        return producer


async def _available(producer, stream):
    """Wait until a server that began anew has its stream again."""
    from rstream.exceptions import StreamNotAvailable

    while True:
        try:
            return await producer.stream_exists(stream)
        except StreamNotAvailable:
            await asyncio.sleep(0.05)


@contextlib.contextmanager
def running_rabbitmq(folder):
    """Yield the server; skip where it, or its client, cannot be had."""
    pytest.importorskip("rstream", reason="pip install 'tierdex[rabbitmq]'")
    if not has_programs((_PROGRAM, "epmd"), ("rabbitmq-server",)):
        pytest.skip("rabbitmq-server cannot be installed here")
    server = RabbitServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()
