"""One OpenTelemetry span for each request, if `trace_spans` is set (extra `tierdex[otel]`).

The API alone records nothing: the process is started by `opentelemetry-instrument`, or its program sets a
provider, and that decides where spans go. A span has the method, the route as declared (no keys, no query),
the status, and the caller's kind. Questions to peers belong to it.

Depends on opentelemetry, rights and errors.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from opentelemetry.trace import Span

    from tierdex.app.rights import Caller

_SERVER_FAULT = 500


class Spans:
    """Makes the spans of one service."""

    def __init__(self, version: str) -> None:
        """Raises InvalidRequestError without the extra."""
        try:
            from opentelemetry import propagate, trace
        except ImportError as error:
            raise InvalidRequestError("pip install 'tierdex[otel]'", field="trace_spans") from error
        self._trace = trace
        self._extract = propagate.extract
        self._tracer = trace.get_tracer("tierdex", version)

    @contextmanager
    def of_request(self, method: str, scope: Mapping[str, Any]) -> Iterator[Span]:
        """Yield the span of one request, a child of the caller's."""
        carrier = {str(n, "latin-1"): str(v, "latin-1") for n, v in scope["headers"]}
        with self._tracer.start_as_current_span(
            method,
            context=self._extract(carrier),
            kind=self._trace.SpanKind.SERVER,
            attributes={"http.request.method": method, "url.scheme": scope.get("scheme", "http")},
            record_exception=False,  # its text may hold a key
            set_status_on_exception=False,
        ) as span:
            yield span

    def trace_id(self, span: Span) -> str | None:
        """Return the id of the span's trace; None when no provider records."""
        context = span.get_span_context()
        return f"{context.trace_id:032x}" if context.is_valid else None

    def end(self, span: Span, name: str, status: int, caller: Caller) -> None:
        """Record the outcome of the request; `name` is method and route."""
        span.update_name(name)
        span.set_attributes(
            {
                "http.route": name.partition(" ")[2],
                "http.response.status_code": status,
                "tierdex.caller": caller.kind,
            }
        )
        if status >= _SERVER_FAULT:
            span.set_status(self._trace.StatusCode.ERROR)
