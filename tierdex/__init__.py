"""Tierdex: a random-index key lookup service for message logs, and a log of messages.

The public names are loaded when first used, so that `import tierdex` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tierdex.client.remote import AsyncClient, Client
    from tierdex.index_service.answer import Answer, Entry
    from tierdex.index_service.index import Index
    from tierdex.log_service.message_log import MessageLog

__version__ = "0.1.0"
__all__ = [
    "Answer",
    "AsyncClient",
    "Client",
    "Entry",
    "Index",
    "MessageLog",
    "__version__",
    "errors",
]

_HOMES = {
    "Answer": "tierdex.index_service.answer",
    "AsyncClient": "tierdex.client.remote",
    "Client": "tierdex.client.remote",
    "Entry": "tierdex.index_service.answer",
    "Index": "tierdex.index_service.index",
    "MessageLog": "tierdex.log_service.message_log",
}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("tierdex.errors")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
