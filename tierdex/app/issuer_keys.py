"""The public keys of a token issuer (JWKS), cached so that its outage or forged tokens cause no harm.

::

    age of the keys   0 ------- 5 min ------------------- 24 h
    a known key       used      used, and read again      refused: 503
    an unknown one    read again, at most once in 10 s; then 401, or 503 while the issuer cannot be read

A key that the issuer took back is known here until the next read. One thread reads at a time; callers of
known keys do not wait for it.

Not PyJWT's `PyJWKClient`: it drops its keys when they are old and the issuer is down, and reads them again
for every unknown name, which a caller makes up.

Depends on httpx2, orjson, joserfc and errors.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

import httpx2
import orjson

from tierdex.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from joserfc.jwk import KeySet

    from tierdex.app.logs import JsonLogger
    from tierdex.clock import Clock

_FRESH_S: Final = 300.0
_KEPT_S: Final = 86_400.0
_PAUSE_S: Final = 10.0
_TIMEOUT_S: Final = 5.0
_LONGEST_BYTES: Final = 1 << 20
_KINDS: Final = ("RSA", "EC", "OKP")  # a key that is shared with the issuer (`oct`) proves nothing


class IssuerKeys:
    """The keys of one issuer. Safe to share between threads."""

    def __init__(self, read: Callable[[], bytes], clock: Clock, logger: JsonLogger) -> None:
        """`read` returns the document of keys, or raises; nothing is read yet."""
        self._read = read
        self._clock = clock
        self._logger = logger
        self._reading = threading.Lock()
        self._keys: KeySet | None = None
        self._read_at = 0.0
        self._tried_at: float | None = None
        self._failed = False

    def keys_for(self, kid: str | None) -> KeySet:
        """Return the keys, among them that of a token if the issuer has it. Raises UnavailableError."""
        known = self._knows(kid)
        if not known or self._age_s() >= _FRESH_S:
            # One thread waits for the issuer; the others go on, but for the first, who have nothing yet.
            if self._reading.acquire(blocking=self._keys is None):
                try:
                    self._read_again(kid)
                finally:
                    self._reading.release()
            elif not known:
                raise UnavailableError("the keys of the tokens' issuer are being read")
            known = self._knows(kid)
        keys = self._keys
        if keys is None or self._age_s() >= _KEPT_S or (self._failed and not known):
            raise UnavailableError("the keys of the tokens' issuer cannot be read at present")
        return keys

    def _read_again(self, kid: str | None) -> None:
        """Read the keys, unless another thread did meanwhile, or it was tried a moment ago."""
        if self._knows(kid) and self._age_s() < _FRESH_S:
            return
        now = self._clock.monotonic()
        if self._tried_at is not None and now - self._tried_at < _PAUSE_S:
            return
        self._tried_at = now
        try:
            self._keys = _key_set(self._read())
        except Exception as error:  # noqa: BLE001 - whatever an issuer answers, its keys of before hold
            self._failed = True
            self._logger.error("keys of the token issuer not read", error=str(error))
            return
        self._read_at = self._clock.monotonic()
        self._failed = False

    def _knows(self, kid: str | None) -> bool:
        keys = self._keys
        return keys is not None and (kid is None or any(key.kid == kid for key in keys))

    def _age_s(self) -> float:
        return self._clock.monotonic() - self._read_at


def reader_of(url: str) -> Callable[[], bytes]:
    """Return what reads the document at an `https://` or `file://` URL."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return Path(url2pathname(parts.path)).read_bytes
    return lambda: _fetch(url)


def _fetch(url: str) -> bytes:
    """Raises HTTPError, ValueError. A redirect is not followed: it could lead to another's keys."""
    with httpx2.stream("GET", url, timeout=_TIMEOUT_S, follow_redirects=False) as response:
        if response.status_code != 200:
            raise ValueError(f"{url} answered {response.status_code}")
        body = b""
        for part in response.iter_bytes():
            body += part
            if len(body) > _LONGEST_BYTES:
                raise ValueError(f"{url} answers more than {_LONGEST_BYTES} bytes")
    return body


def _key_set(document: bytes) -> KeySet:
    from joserfc.jwk import KeySet

    found: Any = orjson.loads(document)["keys"]
    usable = [key for key in found if key.get("kty") in _KINDS and key.get("use", "sig") == "sig"]
    return KeySet.import_key_set({"keys": usable})
