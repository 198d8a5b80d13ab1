"""A request's body, read with a limit while it arrives.

The limit holds for chunked bodies too, a slow sender is ended, and all bodies in memory at one time
share a budget, so that many large requests are refused (503) instead of exhausting the process.
Compressed bodies are refused: they could unfold to any size.

Depends on starlette, anyio.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio

from tierdex.app.problems import HttpRefusalError
from tierdex.errors import InvalidRequestError, RequestTooLargeError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from starlette.requests import Request

    from tierdex.app.server_settings import ServerSettings


class BodyReader:
    """Reads bodies within the limits. Lives on the event loop: no lock is needed."""

    def __init__(self, settings: ServerSettings) -> None:
        self._max_bytes = settings.max_body_bytes
        self._budget_bytes = settings.max_bodies_bytes
        self._timeout_s = settings.body_timeout
        self._held_bytes = 0

    @property
    def held_bytes(self) -> int:
        return self._held_bytes

    @contextmanager
    def holding(self) -> Iterator[_HeldBody]:
        """Give the bytes read inside back to the budget at the end."""
        held = _HeldBody()
        try:
            yield held
        finally:
            self._held_bytes -= held.size

    async def read(self, request: Request, held: _HeldBody) -> bytearray:
        """Return the whole body. Raises RequestTooLargeError, UnavailableError, HttpRefusalError."""
        encoding = request.headers.get("content-encoding", "identity")
        if encoding.strip().lower() != "identity":
            raise HttpRefusalError(
                415, "compressed bodies are not read here", {"accept-encoding": "identity"}
            )
        declared = request.headers.get("content-length", "0")
        if declared.isdigit() and int(declared) > self._max_bytes:
            self._refuse()
        body = bytearray()
        chunks = request.stream()
        while True:
            chunk = await self._next_chunk(chunks)
            if chunk is None:
                return body
            if len(body) + len(chunk) > self._max_bytes:
                self._refuse()
            if self._held_bytes + len(chunk) > self._budget_bytes:
                raise UnavailableError("too many request bodies at one time")
            self._held_bytes += len(chunk)
            held.size += len(chunk)
            body += chunk

    async def _next_chunk(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        try:
            with anyio.fail_after(self._timeout_s):
                return await anext(chunks, None)
        except TimeoutError:
            raise HttpRefusalError(
                408, f"no byte of the body for {self._timeout_s:g} s", {"connection": "close"}
            ) from None

    def _refuse(self) -> None:
        raise RequestTooLargeError(f"at most {self._max_bytes} bytes", field="body")


class _HeldBody:
    """How many bytes of the budget one request holds."""

    def __init__(self) -> None:
        self.size = 0


def media_type(request: Request) -> str:
    """Return the body's media type without parameters, lower case, empty when not given."""
    return request.headers.get("content-type", "").split(";", 1)[0].strip().lower()


def refuse_media_type(given: str, accepted: tuple[str, ...]) -> HttpRefusalError:
    return HttpRefusalError(
        415, f"{given or 'a body without a media type'} is not read here: send {', '.join(accepted)}",
        {"accept": ", ".join(accepted)},
    )  # fmt: skip


async def refuse_body(reader: BodyReader, request: Request) -> None:
    """Allow no body but an empty one or `{}`."""
    with reader.holding() as held:
        body = await reader.read(request, held)
    if bytes(body).strip() not in (b"", b"{}"):
        raise InvalidRequestError("this request takes no body", field="body")
