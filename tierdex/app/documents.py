"""Answers, entries and files as JSON objects; HTTP and command line show the same field names.

Depends on index_service.
"""

from __future__ import annotations

from dataclasses import asdict, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from tierdex.index_service.answer import Entry
from tierdex.index_service.file_info import FileInfo

if TYPE_CHECKING:
    from tierdex.index_service.answer import Answer
    from tierdex.log_service.answer import LogFileInfo

FILE_FIELDS = (
    "file_id", "state", "begin", "min_time", "max_time", "item_count", "slot_count", "bytes", "node",
    "kind", "dead_items",
)  # fmt: skip


def file_document(file: Any) -> dict[str, Any]:
    """Return a file's fields, the public ones first; enums as their value."""
    if isinstance(file, dict):
        fields = file
    elif hasattr(file, "to_dict"):
        fields = file.to_dict()
    elif hasattr(file, "_asdict"):
        fields = file._asdict()
    elif is_dataclass(file) and not isinstance(file, type):
        fields = asdict(file)
    else:
        fields = {name: getattr(file, name) for name in FILE_FIELDS}
    return {
        name: value.value if isinstance(value, Enum) else value for name, value in fields.items()
    }


def log_file_document(file: LogFileInfo) -> dict[str, Any]:
    """Return a file of the message log with the fields of an index file: its messages are its items."""
    return FileInfo(
        file.file_id, file.state, file.begin, file.min_time, file.max_time, file.message_count, 0,
        file.bytes, file.file_id.partition("-")[2], file.sealed_at, None, file.reason, kind="log",
        published_at=file.published_at,
    ).to_dict()  # fmt: skip


def answer_document(answer: Answer) -> dict[str, Any]:
    """Return an answer as `Answer.to_dict` does, faster for entries of the message schema."""
    document: dict[str, Any] = {
        "entries": [_entry_document(entry) for entry in answer.entries],
        "complete": answer.complete,
        "missing": [missing.to_dict() for missing in answer.missing],
        "next_cursor": answer.next_cursor,
        "as_of": answer.as_of,
        "unasked": [unasked._asdict() for unasked in answer.unasked],
    }
    if answer.explain is not None:
        document["explain"] = answer.explain.to_dict()
    if answer.lost:
        document["lost"] = [lost._asdict() for lost in answer.lost]
    if answer.hints:
        document["hints"] = [hint._asdict() for hint in answer.hints]
    if answer.table is not None:
        document["table"] = answer.table._asdict()
    return document


def _entry_document(entry: Entry) -> dict[str, Any]:
    if entry[_COMMON:] == _NOTHING_MORE:
        return dict(zip(_COMMON_NAMES, entry, strict=False))
    return entry.to_dict()


_COMMON = 8  # the fields that every entry has come first
_COMMON_NAMES = Entry._fields[:_COMMON]
_NOTHING_MORE = (None,) * (len(Entry._fields) - _COMMON)


def json_default(value: object) -> Any:
    """Convert a value that orjson does not know: numpy numbers, enums, named tuples; bytes as hex."""
    if isinstance(value, Enum):
        return value.value
    if hasattr(value, "_asdict"):
        return value._asdict()
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if hasattr(value, "item"):
        return value.item()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple | set | frozenset):
        return list(value)
    raise TypeError(f"{type(value).__name__} is not JSON")
