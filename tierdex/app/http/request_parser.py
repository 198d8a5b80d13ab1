"""httptools' parser for a server that speaks HTTP/1.1 only: it ignores requests to upgrade.

httptools ends a message at a head with `Connection: Upgrade` and leaves its body unread; uvicorn
then drops the bytes that follow. Java's HttpClient sends this header with its first request. So the
body is given to a second parser, which has read the same framing headers.

Depends on httptools.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import httptools

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_FRAMING = frozenset({b"content-length", b"transfer-encoding"})


class RequestParser:
    """The parser that uvicorn calls; it calls the connection back as httptools does."""

    def __init__(self, connection: HttpToolsProtocol) -> None:
        self._connection = connection
        self._framing: list[bytes] = []  # of the newest message
        self._is_head_known = False  # the head being parsed was passed on before
        self._parser = self._new_parser()

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # Bytes after `Connection: close` are parsed and never served.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    # -- called by uvicorn -------------------------------------------------------------------------

    def feed_data(self, data: bytes) -> None:
        """Parse more bytes. Raises HttpParserError."""
        while True:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]
                if self._framing:
                    self._parser, self._is_head_known = self._new_parser(), True
                    head = b"".join([b"POST / HTTP/1.1\r\n", *self._framing, b"\r\n"])
                    data = head + data
                if not data:
                    return
            else:
                return

    def should_upgrade(self) -> bool:
        return False

    def should_keep_alive(self) -> bool:
        return bool(self._parser.should_keep_alive())

    def get_http_version(self) -> str:
        return str(self._parser.get_http_version())

    def get_method(self) -> bytes:
        return bytes(self._parser.get_method())

    # -- called by httptools -----------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if not self._is_head_known:
            self._framing = []
            self._connection.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._is_head_known:
            self._connection.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_head_known:
            if name.lower() in _FRAMING:
                self._framing.append(b"%b: %b\r\n" % (name, value))
            self._connection.on_header(name, value)

    def on_headers_complete(self) -> None:
        if not self._is_head_known:
            self._connection.on_headers_complete()
        self._is_head_known = False

    def on_body(self, body: bytes) -> None:
        self._connection.on_body(body)

    def on_message_complete(self) -> None:
        if not (self._framing and self._parser.should_upgrade()):  # else its body is still to come
            self._connection.on_message_complete()
