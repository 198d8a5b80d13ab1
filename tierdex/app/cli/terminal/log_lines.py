"""Warnings of lower layers as lines on stderr: the message and its fields.

::

    messages were gone before they were read: partition=orders[0] begin=120 end=400

A service has its own form (app/logs.py).

Depends on nothing.
"""

from __future__ import annotations

import logging
from typing import Final

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def show_warnings_with_fields() -> None:
    """Write unhandled warnings with their fields, which Python's default handler omits."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_Line())


class _Line(logging.Formatter):
    """`message: name=value ...`, and the traceback where there is one."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        fields = [
            f"{name}={value}" for name, value in vars(record).items() if name not in _STANDARD
        ]
        return ": ".join(each for each in (record.message, " ".join(fields)) if each)
