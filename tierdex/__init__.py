"""Tierdex: a random-index key lookup service for message logs, and a log of messages.

The public names are loaded when first used, so that `import tierdex` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tierdex import errors
    from tierdex.client.remote import AsyncClient, Client
    from tierdex.column_types import (
        ArrayColumn,
        ArrowColumn,
        Bodies,
        Body,
        HeaderLists,
        Headers,
        Integers,
        KeyLists,
        Lookup,
        Texts,
        Times,
    )
    from tierdex.following.follow import follow
    from tierdex.ids import __version__
    from tierdex.index_service.answer import (
        Answer,
        Entry,
        Explain,
        Histogram,
        KnownTopics,
        Missing,
        TableSeen,
        Unasked,
    )
    from tierdex.index_service.file_info import FileInfo, NodeInfo, TableInfo, TopicInfo
    from tierdex.index_service.forget.receipt import ForgetReceipt, Receipt
    from tierdex.index_service.health import NotReady
    from tierdex.index_service.index import Index
    from tierdex.index_service.ingest.disk_budget import DiskRoom
    from tierdex.index_service.journey import Journey
    from tierdex.index_service.shown_message import ShownMessage
    from tierdex.log_service.answer import (
        AppendReceipt,
        FoundMessages,
        LogFileInfo,
        Message,
        ReadAnswer,
        TimerHour,
    )
    from tierdex.log_service.append.commit import PendingAppend, PendingBatch
    from tierdex.log_service.message_log import MessageLog
    from tierdex.log_service.read.queue_reader import QueueReader
    from tierdex.settings import Settings
    from tierdex.times import Time
    from tierdex.value_rules import Durability, Keys, OnError, ReadPolicyName

__all__ = [
    "Answer",
    "AppendReceipt",
    "ArrayColumn",
    "ArrowColumn",
    "AsyncClient",
    "Bodies",
    "Body",
    "Client",
    "DiskRoom",
    "Durability",
    "Entry",
    "Explain",
    "FileInfo",
    "ForgetReceipt",
    "FoundMessages",
    "HeaderLists",
    "Headers",
    "Histogram",
    "Index",
    "Integers",
    "Journey",
    "KeyLists",
    "Keys",
    "KnownTopics",
    "LogFileInfo",
    "Lookup",
    "Message",
    "MessageLog",
    "Missing",
    "NodeInfo",
    "NotReady",
    "OnError",
    "PendingAppend",
    "PendingBatch",
    "QueueReader",
    "ReadAnswer",
    "ReadPolicyName",
    "Receipt",
    "Settings",
    "ShownMessage",
    "TableInfo",
    "TableSeen",
    "Texts",
    "Time",
    "TimerHour",
    "Times",
    "TopicInfo",
    "Unasked",
    "__version__",
    "errors",
    "follow",
]

_HOMES = {
    "tierdex.client.remote": ("AsyncClient", "Client"),
    "tierdex.column_types": (
        "ArrayColumn", "ArrowColumn", "Bodies", "Body", "HeaderLists", "Headers", "Integers", "KeyLists",
        "Lookup", "Texts", "Times",
    ),
    "tierdex.following.follow": ("follow",),
    "tierdex.ids": ("__version__",),
    "tierdex.index_service.answer": (
        "Answer", "Entry", "Explain", "Histogram", "KnownTopics", "Missing", "TableSeen", "Unasked",
    ),
    "tierdex.index_service.file_info": ("FileInfo", "NodeInfo", "TableInfo", "TopicInfo"),
    "tierdex.index_service.health": ("NotReady",),
    "tierdex.index_service.index": ("Index",),
    "tierdex.index_service.journey": ("Journey",),
    "tierdex.index_service.forget.receipt": ("ForgetReceipt", "Receipt"),
    "tierdex.index_service.shown_message": ("ShownMessage",),
    "tierdex.index_service.ingest.disk_budget": ("DiskRoom",),
    "tierdex.log_service.answer": (
        "AppendReceipt", "FoundMessages", "LogFileInfo", "Message", "ReadAnswer", "TimerHour",
    ),
    "tierdex.log_service.message_log": ("MessageLog",),
    "tierdex.log_service.append.commit": ("PendingAppend", "PendingBatch"),
    "tierdex.log_service.read.queue_reader": ("QueueReader",),
    "tierdex.settings": ("Settings",),
    "tierdex.times": ("Time",),
    "tierdex.value_rules": ("Durability", "Keys", "OnError", "ReadPolicyName"),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:  # a checker would take every name for one of the package's

    def __getattr__(name: str) -> Any:
        if name == "errors":
            return import_module("tierdex.errors")
        if name in _HOME_OF:
            return getattr(import_module(_HOME_OF[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
