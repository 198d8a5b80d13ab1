"""A TCP relay before one service: passes on, delays, damages, hangs or refuses, as it is told.

What others know is the relay's address: the service behind it may die and come back on another port.
"""

from __future__ import annotations

import contextlib
import socket
import threading

MODES = ("pass", "slow", "wrong", "hang", "cut")
_PIECE = 65_536
_SLOW_S = 0.15  # for each piece of an answer


class Relay:
    """Listens on loopback until `close`. `mode` and `target` (host, port) may change at any time."""

    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.mode, self.target = "pass", None
        self._open, self._lock, self._closing = set(), threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self):
        self._closing.set()
        self._listener.close()
        self.drop_connections()

    def drop_connections(self):
        """Cut what is open."""
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _accept(self):
        while not self._closing.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, near):
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._counted(near))
            if self.mode == "cut" or self.target is None:
                return
            try:
                far = socket.create_connection(self.target, timeout=5)
            except OSError:
                return
            far.settimeout(None)
            stack.enter_context(self._counted(far))
            back = threading.Thread(target=self._copy, args=(far, near, True), daemon=True)
            back.start()
            self._copy(near, far, False)
            back.join()

    @contextlib.contextmanager
    def _counted(self, connection):
        with self._lock:
            self._open.add(connection)
        try:
            yield
        finally:
            with self._lock:
                self._open.discard(connection)
            connection.close()

    def _copy(self, source, target, is_answer):
        with contextlib.suppress(OSError):
            while piece := source.recv(_PIECE):
                mode = self.mode
                if mode == "cut":
                    break
                if is_answer and mode == "hang":
                    while self.mode == "hang" and not self._closing.wait(0.02):
                        pass
                if is_answer and mode == "slow":
                    self._closing.wait(_SLOW_S)
                if is_answer and mode == "wrong":
                    piece = _damaged(piece)
                target.sendall(piece)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


def _damaged(piece):
    """Return the piece with one byte of its second half altered: of a body, most of the time."""
    altered = bytearray(piece)
    altered[len(piece) - 1 - len(piece) // 5] ^= 0x11
    return bytes(altered)
