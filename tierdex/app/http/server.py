"""Runs the HTTP service: starts it where that is safe, and stops it in order.

Stop (SIGTERM, SIGINT): accept no connection; give running requests `stop_timeout`; close the index,
which brings everything received to `disk`; exit 0. If that hangs, a timer ends the process. Entries
at `os` or above are then in the page cache at least, so no acknowledged entry is lost.

Depends on uvicorn, application, certificate, connection, disk_errors and logs. Must not open the index: its
caller does.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import socket
import threading
from contextlib import contextmanager
from ipaddress import ip_address
from typing import TYPE_CHECKING

import uvicorn

from tierdex.app.http.application import create_app
from tierdex.app.http.certificate import Certificate, check_certificate
from tierdex.app.http.connection import Connection
from tierdex.app.logs import route_standard_logging
from tierdex.disk_errors import naming
from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fastapi import FastAPI

    from tierdex.app.http.server_settings import ServerSettings
    from tierdex.app.http.service import Service
    from tierdex.app.keys import KeyFile
    from tierdex.index_service.health import NotReady
    from tierdex.index_service.index import Index
    from tierdex.log_service.message_log import MessageLog
    from tierdex.resolving.message_fetcher import MessageFetcher
    from tierdex.settings import Settings

_HARD_STOP_MARGIN_S = 4.0  # for closing the index
_BACKLOG = 2048
# Of TLS 1.2; those of 1.3 are always on. uvicorn's default leaves the ones without authenticated encryption.
_TLS_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
_TICKS_A_CERTIFICATE_LOOK = 600  # uvicorn ticks ten times a second


def check_exposure(settings: ServerSettings, keys: KeyFile | None) -> None:
    """Refuse to listen beyond this machine without keys. Raises InvalidRequestError."""
    has_keys = (keys is not None and keys.had_keys) or settings.jwt_jwks is not None
    if is_loopback(settings.host) or has_keys or settings.allow_anonymous is not None:
        return
    raise InvalidRequestError(
        f"{settings.host} can be reached from other machines and there are no keys: make a key with "
        "`tierdex keys create --scope admin`, or say --allow-anonymous read|write|admin",
        field="host",
    )


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def serve(
    index: Index | None,
    settings: ServerSettings,
    keys: KeyFile,
    *,
    limits: Settings,
    log: MessageLog | None = None,
    messages: MessageFetcher | None = None,
    announce: Callable[[str], None] = lambda _url: None,
    loading: Callable[[], list[NotReady]] = list,
) -> None:
    """Serve until a signal arrives, then close what is served. Raises OSError when the port is taken.

    `loading` returns why the service is not ready beside what index and log say of themselves.
    """
    app = create_app(
        index, _within_open_files(settings), keys, limits=limits, log=log, messages=messages,
        loading=loading,
    )  # fmt: skip
    serve_app(app, announce=announce)


def serve_app(app: FastAPI, *, announce: Callable[[str], None] = lambda _url: None) -> None:
    """Serve an application of `create_app`, with its owner's middleware, as `serve` does."""
    service: Service = app.state.service
    settings, logger = service.settings, service.logger
    check_exposure(settings, service.keys)
    check_certificate(settings)
    route_standard_logging(logger)
    listener = _listen(settings.host, settings.port)
    url = _url(listener, "http" if settings.tls_cert is None else "https")
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        proxy_headers=False,  # keys identify callers, addresses do not
        ws="none",
        lifespan="on",
        server_header=False,
        http=Connection,
        loop="uvloop",
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
        ssl_ciphers=_TLS_CIPHERS,
        timeout_graceful_shutdown=max(1, round(settings.stop_timeout)),
    )
    config.load()
    server = _Server(config, settings.stop_timeout + _HARD_STOP_MARGIN_S, service)
    keys = 0 if service.keys is None else len(service.keys)
    logger.note("serving", url=url, keys=keys, anonymous=service.anonymous_scope.name.lower())
    announce(url)
    _tune_collector()
    try:
        server.run(sockets=[listener])
    finally:
        if service.messages is not None:
            service.messages.close()  # it reads the log
        if service.own_index is not None:
            service.own_index.close()
        if service.log is not None:
            service.log.close()
        logger.note("stopped")


def _tune_collector() -> None:
    """Exclude the objects of the start from garbage collections, and collect less often.

    A body of ten thousand entries makes as many containers, all freed by reference counts. With the
    default thresholds half the time of a put goes into collections that find nothing.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


def _within_open_files(settings: ServerSettings) -> ServerSettings:
    """Raise the limit of open files; reserve half of it for index files and the store."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * settings.max_connections
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft // 2 >= settings.max_connections:
        return settings
    return settings.model_copy(update={"max_connections": max(1, soft // 2)})


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's algorithm off only for a named protocol; else each answer waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        with naming(f"{host}:{port}"):
            listener.bind((host, port))
            listener.listen(_BACKLOG)  # from here on connections wait instead of being refused
    except OSError:
        listener.close()
        raise
    return listener


def _url(listener: socket.socket, scheme: str) -> str:
    host, port = listener.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


class _Server(uvicorn.Server):
    """A server that returns after a signal, so that the exit code is ours."""

    def __init__(self, config: uvicorn.Config, hard_stop_s: float, service: Service) -> None:
        super().__init__(config)
        self._hard_stop_s = hard_stop_s
        self._service = service
        self._certificate: Certificate | None = None
        if config.ssl is not None:
            self._certificate = Certificate(service.settings, config.ssl, service.logger)

    async def on_tick(self, counter: int) -> bool:
        """Use a certificate that was renewed in its file, for connections from now on."""
        if self._certificate is not None and counter % _TICKS_A_CERTIFICATE_LOOK == 0:
            self._certificate.renew()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer the callers that wait for messages, then stop as uvicorn does."""
        if self._service.arrivals is not None:
            self._service.arrivals.end()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        # Not restored: a second signal must not interrupt the close.
        yield

    def _stop(self, number: int, frame: object) -> None:
        if not self.should_exit:
            watch = threading.Timer(self._hard_stop_s, os._exit, (0,))
            watch.daemon = True
            watch.start()
        self.should_exit = True
