"""The certificate of a service that speaks HTTPS: read again when its file changes.

A renewed certificate serves the connections that begin after it was read. One that cannot be used (half
written, a key that does not fit) changes nothing; the log tells of it, and it is looked at again.

Depends on errors and logs.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from pathlib import Path

    from tierdex.app.http.server_settings import ServerSettings
    from tierdex.app.logs import JsonLogger


def check_certificate(settings: ServerSettings) -> None:
    """Raise InvalidRequestError for a certificate, or key, that cannot be used."""
    if settings.tls_cert is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_cert, settings.tls_key)
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        raise InvalidRequestError(
            f"{settings.tls_cert} and {settings.tls_key} cannot be used: {error}", field="tls_cert"
        ) from error


class Certificate:
    """The files of one certificate, and the TLS context that uses them."""

    def __init__(
        self, settings: ServerSettings, context: ssl.SSLContext, logger: JsonLogger
    ) -> None:
        """`context` has the files' present content."""
        assert settings.tls_cert is not None
        assert settings.tls_key is not None
        self._paths = (settings.tls_cert, settings.tls_key)
        self._context = context
        self._logger = logger
        self._seen = self._stamps()

    def renew(self) -> None:
        """Use the files if they changed."""
        stamps = self._stamps()
        if stamps == self._seen:
            return
        try:
            self._context.load_cert_chain(*self._paths)
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            self._logger.error("certificate not renewed", error=str(error))
            return
        self._seen = stamps
        self._logger.note("certificate renewed")

    def _stamps(self) -> list[tuple[int, int] | None]:
        return [_stamp(path) for path in self._paths]


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()  # of what a link points to: Kubernetes exchanges links
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
