"""Which failed calls a client repeats, and after which pause. Pure, shared by both clients.

Every call is repeated when no connection could be made, since nothing was sent, and when the service
says that the caller asks too often (429), since nothing was looked at; then the pause is as long as it says.
After any other failure a call is repeated if twice does what once does: reads, and puts, since answers leave
out repeated entries. An append is never repeated: its caller looks at the end offset, or passes
`expect_offset`.

Depends on errors and ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2

from tierdex.errors import InvalidRequestError, RateLimitedError, TierdexError, UnavailableError

if TYPE_CHECKING:
    from tierdex.ids import IdSource

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 10.0
_LONGEST_WAIT_S = 120.0  # for a service that says when: to come earlier is in vain


class Retry:
    """The attempts of one call."""

    def __init__(self, attempts: int, *, is_repeatable: bool, ids: IdSource) -> None:
        self._left = attempts - 1
        self._is_repeatable = is_repeatable
        self._ids = ids
        self._pause_s = _FIRST_PAUSE_S

    def pause_after(self, error: Exception) -> float:
        """Return the seconds to wait before the next attempt. Raises the typed error at the end."""
        is_limited = isinstance(error, RateLimitedError)
        is_undone = is_limited or isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
        may_pass = isinstance(error, httpx2.TransportError | UnavailableError)
        if not may_pass or self._left <= 0 or not (is_undone or self._is_repeatable):
            ours = typed(error)
            if ours is error:
                raise error
            raise ours from error
        self._left -= 1
        pause_s = self._pause_s * (0.5 + self._ids.random())
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        if isinstance(error, UnavailableError):  # the service knows better when
            longest_s = _LONGEST_WAIT_S if is_limited else _LONGEST_PAUSE_S
            pause_s = max(pause_s, min(error.retry_after_s, longest_s))
        return pause_s


def typed(error: Exception) -> Exception:
    """Return a TierdexError for an error of the transport; any other error unchanged."""
    if isinstance(error, TierdexError):
        return error
    if isinstance(error, httpx2.InvalidURL):
        return InvalidRequestError(f"cannot be sent: {error}")
    if isinstance(error, httpx2.HTTPError):
        reason = str(error) or type(error).__name__
        return UnavailableError(f"no answer from {_asked(error)}: {reason}{_hint(error)}")
    return error


def _hint(error: httpx2.HTTPError) -> str:
    """Return what to look at when the two ends may not agree on TLS."""
    address = _asked(error)
    if address.startswith("http://") and isinstance(
        error, httpx2.RemoteProtocolError | httpx2.ReadError
    ):
        return " (if the service has a certificate, its address begins with https://)"
    if address.startswith("https://") and "WRONG_VERSION_NUMBER" in str(error):
        return " (the service speaks plain HTTP: its address begins with http://)"
    return ""


def _asked(error: httpx2.HTTPError) -> str:
    """Return whom the request went to, without what a URL may hide in front of the host."""
    try:
        url = error.request.url
    except RuntimeError:  # it went nowhere
        return "the service"
    return f"{url.scheme}://{url.netloc.decode()}"
