"""What every connection to another service needs: whom its TLS trusts, and the trace of the current work.

Certificate authorities come from a PEM file, or are the system's. The trace (W3C Trace Context) is taken from
a request and sent on with further ones: the header `traceparent` reads
``00-<trace, 32 hex>-<span, 16 hex>-<flags>``. A program that uses OpenTelemetry needs nothing of this: what
it has as its current span is given on. Any other names the header that it was given itself, for a while:
`with carried_trace(header): client.query(...)`.

Depends on errors.
"""

from __future__ import annotations

import re
import ssl
import sys
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

TRACEPARENT: Final = "traceparent"
_FORM: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)
_carried: ContextVar[str | None] = ContextVar("tierdex_traceparent", default=None)


def trace_id_of(traceparent: str | None) -> str | None:
    """Return the trace's id, 32 hex digits; None for what is no such header."""
    found = None if traceparent is None else _FORM.fullmatch(traceparent)
    return None if found is None else found[1]


def carry_trace(traceparent: str | None) -> None:
    """Set the trace of what this task or thread does from now on; None, or a wrong one: no trace."""
    _carried.set(traceparent if trace_id_of(traceparent) else None)


@contextmanager
def carried_trace(traceparent: str | None) -> Iterator[None]:
    """Set the trace of what the block does."""
    token = _carried.set(traceparent if trace_id_of(traceparent) else None)
    try:
        yield
    finally:
        _carried.reset(token)


def trace_headers() -> dict[str, str]:
    """Return the headers to send with a request, so that its work belongs to the trace of the caller's."""
    headers: dict[str, str] = {}
    if "opentelemetry.trace" in sys.modules:  # a program that does not use it pays nothing
        from opentelemetry import propagate

        propagate.inject(headers)
    carried = _carried.get()
    if carried is not None and TRACEPARENT not in headers:
        headers[TRACEPARENT] = carried
    return headers


def trusting(path: str | None, *, field: str) -> ssl.SSLContext:
    """Return what believes the authorities in the file at `path`; None: the system's.

    Raises InvalidRequestError, which names the argument or setting `field`, for a file that cannot be used.
    """
    try:
        return ssl.create_default_context(cafile=path)
    except OSError as error:
        raise InvalidRequestError(f"{path} cannot be used: {error}", field=field) from error
