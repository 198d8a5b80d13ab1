"""Raw bytes to a server and what came back, parsed just far enough to be judged."""

from __future__ import annotations

import re
import socket
from typing import NamedTuple

from tests.patience import PATIENCE_S


class RawAnswer(NamedTuple):
    """`data` is all that arrived; `reset` says that the server broke the connection off."""

    data: bytes
    reset: bool

    @property
    def statuses(self):
        """Return the status of each response; bodies of ours never hold a status line."""
        return [int(found) for found in re.findall(rb"HTTP/1\.1 (\d{3})[ \r]", self.data)]


def send_raw(address, pieces, *, ends="half"):
    """Send the pieces on a connection of their own, then read until the server closes.

    `ends` says how our side ends: `half` closes the sending half, `leave` waits for the server to
    close, `away` closes at once without reading.
    """
    data, reset = bytearray(), False
    with socket.create_connection(address, timeout=PATIENCE_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for piece in pieces:
                connection.sendall(piece)
            if ends == "away":
                return RawAnswer(b"", reset=False)
            if ends == "half":
                connection.shutdown(socket.SHUT_WR)
            while chunk := connection.recv(65536):
                data += chunk
        except OSError as error:
            if isinstance(error, TimeoutError):
                raise
            reset = True  # it did not read all that was sent, which is its right
    return RawAnswer(bytes(data), reset)


class KeptConnection:
    """One well-behaved connection beside the hostile ones."""

    def __init__(self, address, headers=()):
        self._address = address
        self._extra = "".join(f"{line}\r\n" for line in headers)
        self._socket = None

    def get(self, path):
        """Return (status, body) of a GET; connects again where the server had closed."""
        request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{self._extra}\r\n".encode()
        for fresh in (False, True):
            if self._socket is None or fresh:
                self._connect()
            try:
                self._socket.sendall(request)
                return self._read()
            except (ConnectionError, EOFError):
                if fresh:
                    raise
        raise AssertionError("not reached")

    def close(self):
        if self._socket is not None:
            self._socket.close()

    def _connect(self):
        self.close()
        self._socket = socket.create_connection(self._address, timeout=PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _read(self):
        buffer = b""
        while b"\r\n\r\n" not in buffer:
            buffer += self._receive()
        head, _, body = buffer.partition(b"\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)", head.lower())[1])
        while len(body) < length:
            body += self._receive()
        return int(head[9:12]), body

    def _receive(self):
        chunk = self._socket.recv(65536)
        if not chunk:
            raise EOFError
        return chunk
