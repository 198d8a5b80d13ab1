"""One plain request at work, and its answer: what h11 would write, in one write for head and body.

An answer says its length, or it ends with its connection. Depends on uvicorn.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, RequestResponseCycle

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

_WITHOUT_BODY = (204, 304)
# As h11: a line break in a value would begin a header, or an answer, of somebody else's making.
_FIELDS = re.compile(rb"(?:[-!#$%&'*+.^_`|~0-9A-Za-z]++: [^\x00\r\n]*+\r\n)*+")


class PlainCycle(RequestResponseCycle):
    """Serves one request on a connection that h11 has no part in until the answer is complete."""

    _head = b""  # kept until some of the body is there
    _owed_bytes: int | None = 0  # of the body; None: as many as come

    def start(self, loop: asyncio.AbstractEventLoop, app: Any, tasks: set[Any]) -> None:
        """Run the application for this request; its task is in `tasks` as long as it runs."""
        self._task = loop.create_task(self._run(app, tasks))
        tasks.add(self._task)

    async def _run(self, app: Any, tasks: set[Any]) -> None:
        try:
            await self.run_asgi(app)
        finally:
            tasks.discard(
                self._task
            )  # here, not by a callback: that would be one more turn of the loop

    def take(self, piece: bytes, *, more: bool) -> None:
        """Hand the application some of the body; `more` says that it is not the last."""
        self.body = self.body + piece if self.body else piece  # type: ignore[assignment]
        self.more_body = more
        self.message_event.set()

    def whole_body(self) -> bytes | None:
        """Return the body, as far as nobody took it, if the end of it is here; else None."""
        if self.more_body or self.disconnected or not self.message_event.is_set():
            return None
        self.message_event.clear()
        body, self.body = bytes(self.body), bytearray()
        return body

    async def send(self, message: Any) -> None:
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if not self.response_started:
            self.response_started = True
            self._head = self._make_head(message["status"], message.get("headers", ()))
            return
        if self.response_complete:
            raise RuntimeError("an answer went on after its end")
        self._write(message.get("body", b""), more=message.get("more_body", False))

    def _make_head(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        """Return the answer's head, and remember how its body ends."""
        fields = [*self.default_headers, *headers]
        named = dict(fields)
        length = named.get(b"content-length")
        if status in _WITHOUT_BODY:
            self._owed_bytes = 0
        elif length is not None:
            self._owed_bytes = int(length)
        else:
            self._owed_bytes = None
            self.keep_alive = False
        if named.get(b"connection") == b"close":
            self.keep_alive = False
        elif not self.keep_alive:
            fields.append((b"connection", b"close"))
        block = b"".join([b"%b: %b\r\n" % field for field in fields])
        if not _FIELDS.fullmatch(block):
            raise RuntimeError("a header of the answer is not legal")
        return b"HTTP/1.1 %d %b\r\n%b\r\n" % (status, STATUS_PHRASES[status], block)

    def _write(self, body: bytes, *, more: bool) -> None:
        if self._owed_bytes is not None:
            self._owed_bytes -= len(body)
            if self._owed_bytes < 0 or (self._owed_bytes and not more):
                raise RuntimeError("an answer is not as long as it says")
        self.transport.write(b"".join((self._head, body)) if self._head else body)
        self._head = b""
        if more:
            return
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()
