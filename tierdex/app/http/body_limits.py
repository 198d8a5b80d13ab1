"""Limits on request bodies, as ASGI middleware: their size, their speed, and their memory together.

A body is counted while it arrives, chunked or not. All bodies in memory share a budget: above it
requests are refused (503) instead of exhausting the process. A body returns its share when its
request is answered and over, since an error on its way up still holds the bytes.

A body arrives in pieces, and the C library keeps freed pieces while a small object lies behind
them. So each time that enough bodies have ended, the allocator is told to return memory to the
system.

Depends on c_memory, problems, service and codecs.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tierdex.app.c_memory import return_memory
from tierdex.app.http.codecs.arrow_stream import ARROW_STREAM
from tierdex.app.http.problems import HttpRefusalError
from tierdex.app.http.service import header_of
from tierdex.errors import RequestTooLargeError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from tierdex.app.http.server_settings import ServerSettings

# A value of JSON may take many times its bytes in memory: `{},` is 3 bytes there and 72 here.
_JSON_WEIGHT = 8
# A share of the budget: memory is returned after so many bytes of ended bodies. A return takes
# milliseconds; reading so many bytes takes a hundred times longer.
_RETURNED_AFTER = 1 / 4


class BodyLimits:
    """ASGI middleware. It runs on the event loop and needs no lock."""

    def __init__(self, app: ASGIApp, *, settings: ServerSettings, budget: BodyBudget) -> None:
        self._app = app
        self._settings = settings
        self._budget = budget

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        body = _ArrivingBody(scope, receive, self._settings, self._budget)
        try:
            await self._app(scope, body.receive, send)
        finally:
            self._budget.give_back(body.held_bytes)


class BodyBudget:
    """The memory of all bodies of a service. For one thread: the event loop's."""

    def __init__(
        self, most_bytes: int, return_memory: Callable[[], object] = return_memory
    ) -> None:
        self.most_bytes = most_bytes
        self.held_bytes = 0
        self._ended_bytes = 0  # of bodies that ended since memory was returned
        self._return_memory = return_memory

    def give_back(self, held_bytes: int) -> None:
        """End a body that held this many bytes of the budget."""
        self.held_bytes -= held_bytes
        self._ended_bytes += held_bytes
        if self._ended_bytes > self.most_bytes * _RETURNED_AFTER:
            self._ended_bytes = 0
            self._return_memory()


class _ArrivingBody:
    """One request's body. `held_bytes` is its share of the budget."""

    def __init__(
        self, scope: Scope, receive: Receive, settings: ServerSettings, budget: BodyBudget
    ) -> None:
        kind = (header_of(scope, b"content-type") or "").split(";", 1)[0].strip().lower()
        is_json = kind != ARROW_STREAM
        self._most_bytes = settings.max_body_bytes
        if is_json:
            self._most_bytes = min(self._most_bytes, settings.max_json_bytes)
        self._weight = _JSON_WEIGHT if is_json else 1
        declared = header_of(scope, b"content-length") or ""
        self._declared_bytes = int(declared) if declared.isdecimal() else 0
        self._receive = receive
        self._timeout_s = settings.body_timeout
        self._rate = settings.body_rate
        self._budget = budget
        self._began_s: float | None = None  # of the loop's time
        self._bytes = 0
        self._is_whole = False
        self.held_bytes = 0

    async def receive(self) -> Message:
        """Raise RequestTooLargeError, UnavailableError, HttpRefusalError (slow, or cut short)."""
        if self._is_whole:
            return await self._receive()
        if self._declared_bytes > self._most_bytes:
            raise self._too_large()
        try:
            async with asyncio.timeout_at(self._deadline()):
                message = await self._receive()
        except TimeoutError:
            raise HttpRefusalError(
                408,
                f"no byte of the body for {self._timeout_s:g} s, or fewer than {self._rate} a second",
                {"connection": "close"},
            ) from None
        if message["type"] != "http.request":
            raise HttpRefusalError(499, "the body ended early", {"connection": "close"})
        self._admit(len(message.get("body", b"")))
        self._is_whole = not message.get("more_body", False)
        return message

    def _deadline(self) -> float:
        """Return when the next piece must have arrived: a timeout a piece, and a least rate in all."""
        now = asyncio.get_running_loop().time()
        if self._began_s is None:
            self._began_s = now
        return min(now, self._began_s + self._bytes / self._rate) + self._timeout_s

    def _admit(self, size: int) -> None:
        self._bytes += size
        if self._bytes > self._most_bytes:
            raise self._too_large()
        share = self._weight * size
        if self._budget.held_bytes + share > self._budget.most_bytes:
            raise UnavailableError("too many request bodies at one time")
        self._budget.held_bytes += share
        self.held_bytes += share

    def _too_large(self) -> RequestTooLargeError:
        return RequestTooLargeError(f"at most {self._most_bytes} bytes", field="body")
