"""Structured logs: one JSON object a line on stderr, one line a request.

The query string is never logged (it holds keys), nor are API keys: a caller is its key's id. Lines
of the layers below, which use the standard library's logging, come out in the same form.

Depends on structlog, orjson.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, TextIO

import orjson
import structlog

from tierdex.app.documents import json_default

if TYPE_CHECKING:
    from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def make_logger(stream: TextIO | None = None) -> FilteringBoundLogger:
    """Return a logger that writes JSON lines to `stream` (stderr)."""
    logger: FilteringBoundLogger = structlog.wrap_logger(
        structlog.BytesLogger(_binary(stream or sys.stderr)),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            structlog.processors.format_exc_info,
            _render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        context_class=dict,
        cache_logger_on_first_use=True,
    )
    return logger.bind()


def route_standard_logging(logger: FilteringBoundLogger, level: int = logging.INFO) -> None:
    """Let records of the standard library's logging come out as lines of `logger`."""
    root = logging.getLogger()
    root.handlers = [_StructuredHandler(logger)]
    root.setLevel(level)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        quiet = logging.getLogger(name)
        quiet.handlers, quiet.propagate = [], True
        quiet.setLevel(logging.WARNING)


class _StructuredHandler(logging.Handler):
    """Hands a record on, its `extra` fields beside the message."""

    def __init__(self, logger: FilteringBoundLogger) -> None:
        super().__init__()
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        fields = {k: v for k, v in vars(record).items() if k not in _STANDARD_FIELDS}
        if record.exc_info:
            fields["exc_info"] = record.exc_info
        self._logger.log(
            max(record.levelno, logging.INFO), record.getMessage(), logger=record.name, **fields
        )


def _render(_logger: WrappedLogger, _method: str, event: EventDict) -> bytes:
    return orjson.dumps(event, default=_readable, option=orjson.OPT_NON_STR_KEYS)


def _readable(value: object) -> Any:
    try:
        return json_default(value)
    except TypeError:
        return str(value)


def _binary(stream: TextIO) -> Any:
    return stream.buffer if hasattr(stream, "buffer") else stream
