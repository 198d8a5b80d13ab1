"""A request's body, read with a limit while it arrives.

The limit holds for chunked bodies too, a slow sender is ended, and all bodies in memory at one time
share a budget, so that many large requests are refused (503) instead of exhausting the process.
Compressed bodies are refused: they could unfold to any size.

Depends on starlette.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tierdex.app.arrow_stream import ARROW_STREAM
from tierdex.app.headers import find_header
from tierdex.app.problems import HttpRefusalError
from tierdex.errors import InvalidRequestError, RequestTooLargeError, UnavailableError

if TYPE_CHECKING:
    from starlette.requests import Request

    from tierdex.app.server_settings import ServerSettings


JSON = "application/json"
# An ASGI extension of our own server: `take` gives the body when the end of it is there, else None.
WHOLE_BODY = "tierdex.whole_body"
# A value of JSON may take many times its bytes in memory: `{},` is 3 bytes there and 72 here.
_JSON_WEIGHT = 8


class BodyReader:
    """Reads bodies within the limits. Lives on the event loop: no lock is needed."""

    def __init__(self, settings: ServerSettings) -> None:
        self._max_bytes = settings.max_body_bytes
        self._max_json_bytes = min(settings.max_body_bytes, settings.max_json_bytes)
        self._budget_bytes = settings.max_bodies_bytes
        self._timeout_s = settings.body_timeout
        self._rate = settings.body_rate
        self._held_bytes = 0

    @property
    def held_bytes(self) -> int:
        return self._held_bytes

    def holding(self) -> _HeldBody:
        """Give the bytes read inside back to the budget at the end."""
        return _HeldBody(self)

    def give_back(self, size: int) -> None:
        self._held_bytes -= size

    async def read(self, request: Request, held: _HeldBody) -> bytes | bytearray:
        """Return the whole body. Raises RequestTooLargeError, UnavailableError, HttpRefusalError."""
        encoding = find_header(request.scope, b"content-encoding")
        if encoding is not None and encoding.strip().lower() != b"identity":
            raise HttpRefusalError(
                415, "compressed bodies are not read here", {"accept-encoding": "identity"}
            )
        is_json = media_type(request) != ARROW_STREAM
        max_bytes = self._max_json_bytes if is_json else self._max_bytes
        weight = _JSON_WEIGHT if is_json else 1
        declared = find_header(request.scope, b"content-length") or b"0"
        if declared.isdigit() and int(declared) > max_bytes:
            raise _too_large(max_bytes)
        extension = request.scope.get("extensions", {}).get(WHOLE_BODY)
        whole: bytes | None = None if extension is None else extension["take"]()
        if whole is not None:  # nothing to wait for
            self._admit(whole, 0, held, max_bytes, weight)
            return whole
        body = bytearray()
        began = asyncio.get_running_loop().time()
        try:
            # One timer for the whole body, set again for each piece of it.
            async with asyncio.timeout_at(began + self._timeout_s) as limit:
                while True:
                    message = await request.receive()
                    if message["type"] != "http.request":
                        raise _left_early()
                    piece = message.get("body", b"")
                    self._admit(piece, len(body), held, max_bytes, weight)
                    body += piece
                    if not message.get("more_body", False):
                        return body
                    now = asyncio.get_running_loop().time()
                    deadline = began + self._timeout_s + len(body) / self._rate
                    limit.reschedule(min(now + self._timeout_s, deadline))
        except TimeoutError:
            raise HttpRefusalError(
                408,
                f"no byte of the body for {self._timeout_s:g} s, or fewer than {self._rate} a second",
                {"connection": "close"},
            ) from None

    def _admit(
        self, piece: bytes, before: int, held: _HeldBody, max_bytes: int, weight: int
    ) -> None:
        """Hold a piece behind `before` bytes, if the body may still grow and the budget covers it."""
        if before + len(piece) > max_bytes:
            raise _too_large(max_bytes)
        if self._held_bytes + weight * len(piece) > self._budget_bytes:
            raise UnavailableError("too many request bodies at one time")
        self._held_bytes += weight * len(piece)
        held.size += weight * len(piece)


def _left_early() -> HttpRefusalError:
    return HttpRefusalError(499, "the body ended early", {"connection": "close"})


def _too_large(max_bytes: int) -> RequestTooLargeError:
    return RequestTooLargeError(f"at most {max_bytes} bytes", field="body")


class _HeldBody:
    """How many bytes of the budget one request holds."""

    __slots__ = ("_reader", "size")

    def __init__(self, reader: BodyReader) -> None:
        self._reader = reader
        self.size = 0

    def __enter__(self) -> _HeldBody:
        return self

    def __exit__(self, *_raised: object) -> None:
        self._reader.give_back(self.size)


def media_type(request: Request) -> str:
    """Return the body's media type without parameters, lower case, empty when not given."""
    given = find_header(request.scope, b"content-type") or b""
    return given.decode("latin-1").split(";", 1)[0].strip().lower()


def refuse_media_type(given: str, accepted: tuple[str, ...]) -> HttpRefusalError:
    return HttpRefusalError(
        415, f"{given or 'a body without a media type'} is not read here: send {', '.join(accepted)}",
        {"accept": ", ".join(accepted)},
    )  # fmt: skip


async def refuse_body(reader: BodyReader, request: Request) -> None:
    """Allow no body but an empty one or `{}`, with the media type that no form of a page can send."""
    kind = media_type(request)
    if kind != JSON:
        raise refuse_media_type(kind, (JSON,))
    with reader.holding() as held:
        body = await reader.read(request, held)
    if bytes(body).strip() not in (b"", b"{}"):
        raise InvalidRequestError("this request takes no body", field="body")
