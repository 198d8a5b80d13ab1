"""Structured logs: one JSON object a line on stderr, one line a request.

A line holds neither the query string, which contains keys, nor an API key: it names a caller by the
id of the caller's key. Records of the standard library's logging, which the layers below use,
become lines of the same form.

Depends on orjson and documents.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TextIO

import orjson

from tierdex.app.documents import json_default
from tierdex.clock import SystemClock

if TYPE_CHECKING:
    from types import TracebackType

    from tierdex.clock import Clock

_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLogger:
    """Writes events as JSON lines. Safe to share between threads: each line is one write."""

    def __init__(self, stream: Any, clock: Clock) -> None:
        """Write to `stream`, which takes bytes."""
        self._write = stream.write
        self._flush = stream.flush
        self._now_ms = clock.now_ms
        self._lock = threading.Lock()

    def note(self, event: str, **fields: Any) -> None:
        self.put({"event": event, "level": "info", **fields})

    def error(self, event: str, **fields: Any) -> None:
        self.log(logging.ERROR, event, **fields)

    def log(self, level: int, event: str, **fields: Any) -> None:
        """Write one line. The field `exc_info` (an exception, or `sys.exc_info()`) is written in full."""
        fields["event"] = event
        fields["level"] = logging.getLevelName(level).lower()
        cause = fields.pop("exc_info", None)
        if cause is not None:
            fields["exception"] = _traceback_of(cause)
        self.put(fields)

    def put(self, fields: dict[str, Any]) -> None:
        """Write the fields of one line, and add its time to them."""
        fields["time"] = datetime.fromtimestamp(self._now_ms() / 1000, UTC)
        data = orjson.dumps(fields, default=_readable, option=_OPTIONS)
        with self._lock:
            self._write(data)
            self._flush()


_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE | orjson.OPT_UTC_Z


def make_logger(stream: TextIO | None = None) -> JsonLogger:
    """Return a logger that writes JSON lines to `stream` (stderr)."""
    stream = stream or sys.stderr
    return JsonLogger(getattr(stream, "buffer", stream), SystemClock())


def route_standard_logging(logger: JsonLogger, level: int = logging.INFO) -> None:
    """Write records of the standard library's logging as lines of `logger`."""
    root = logging.getLogger()
    root.handlers = [_StructuredHandler(logger)]
    root.setLevel(level)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        quiet = logging.getLogger(name)
        quiet.handlers, quiet.propagate = [], True
        quiet.setLevel(logging.WARNING)


QUIET_THREAD: Final = "tierdex-warm-up"  # what it opens and commits is gone before it ends


class _StructuredHandler(logging.Handler):
    """Passes a record on, with its `extra` fields beside the message."""

    def __init__(self, logger: JsonLogger) -> None:
        super().__init__()
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        if record.threadName == QUIET_THREAD and record.levelno < logging.WARNING:
            return
        fields = {k: v for k, v in vars(record).items() if k not in _STANDARD_FIELDS}
        fields |= {"logger": record.name}
        for name in ("event", "level"):  # taken by our own call
            if name in fields:
                fields[f"{name}_"] = fields.pop(name)
        self._logger.log(
            max(record.levelno, logging.INFO),
            record.getMessage(),
            exc_info=record.exc_info,
            **fields,
        )


def _traceback_of(
    cause: BaseException | tuple[type[BaseException], BaseException, TracebackType],
) -> str:
    error = cause if isinstance(cause, BaseException) else cause[1]
    return "".join(traceback.format_exception(error)).rstrip("\n")


def _readable(value: object) -> Any:
    try:
        return json_default(value)
    except TypeError:
        return str(value)
