"""A service's answers as the classes that the embedded `Index` returns.

Pure: bytes in, values out.

Depends on index_service, log_service and orjson.
"""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter
from typing import Any

import orjson

from tierdex.index_service.answer import (
    Answer,
    Entry,
    Explain,
    FileExplain,
    Hint,
    Histogram,
    KnownTopics,
    LostOffsets,
    Missing,
    Stage,
    TableSeen,
    Unasked,
)
from tierdex.index_service.file_info import FileInfo, NodeInfo, TableInfo, TopicInfo
from tierdex.index_service.forget.receipt import (
    ForgetReceipt,
    ForgottenMessage,
    HeldFile,
    LingeringObject,
    Receipt,
    RewrittenFile,
)
from tierdex.index_service.journey import Journey
from tierdex.index_service.shown_message import ShownMessage
from tierdex.log_service.answer import MissingMessages
from tierdex.log_service.read_policy import ReadExplain

_COMMON = ("topic", "queue_id", "offset", "size", "timestamp", "file_id", "state", "node")
_common_values = itemgetter(*_COMMON)


def read_json(body: bytes) -> dict[str, Any]:
    """Return a JSON object. Raises ValueError and TypeError for anything else."""
    document = orjson.loads(body)
    if not isinstance(document, dict):
        raise TypeError("not an object")
    return document


def read_answer(body: bytes) -> Answer:
    return answer_of(read_json(body))


def read_journey(body: bytes) -> Journey:
    document = read_json(body)
    about = answer_of({**document, "next_cursor": None})
    return Journey(
        document["key"],
        about.entries,
        topics=document["topics"],
        more=document["more"],
        by_arrival=document.get("by_arrival", []),
        complete=about.complete,
        missing=about.missing,
        as_of=about.as_of,
        unasked=about.unasked,
        lost=about.lost,
        restricted=document.get("restricted", False),
    )


def read_histogram(body: bytes) -> Histogram:
    document = read_json(body)
    about = answer_of({**document, "entries": [], "next_cursor": None})
    return Histogram(
        document["begin"], document["end"], document["width_ms"], document["counts"], document["more"],
        about.complete, about.missing, about.as_of, about.unasked,
    )  # fmt: skip


def read_answers(body: bytes) -> list[Answer]:
    return [answer_of(document) for document in read_json(body)["answers"]]


def read_files(body: bytes) -> list[FileInfo]:
    return [file_of(document) for document in read_json(body)["files"]]


def read_nodes(body: bytes) -> list[NodeInfo]:
    nodes = read_json(body)["nodes"]
    return [
        NodeInfo(**{name: document[name] for name in NodeInfo._fields if name in document})
        for document in nodes
    ]


def read_topic_infos(body: bytes) -> list[TopicInfo]:
    return [TopicInfo(**document) for document in read_json(body)["details"]]


def read_known_topics(body: bytes) -> KnownTopics:
    document = read_json(body)
    missing = (Missing(item["file"], item["reason"]) for item in document["missing"])
    return KnownTopics(
        document["topics"], document["as_of"], read_unasked(document), tuple(missing)
    )


def read_receipt(body: bytes) -> Receipt:
    document = read_json(body)
    given: dict[str, Any] = {
        "forgetting": document["forgetting"],
        "time_ms": document["time_ms"],
        "is_complete": document["complete"],
        "waiting": [Missing(each["file"], each["reason"]) for each in document["waiting"]],
        "entries": list(map(_entry, document["entries"])),
        "holding": [_fields(HeldFile, each) for each in document["holding"]],
        "rewritten": [_fields(RewrittenFile, each) for each in document["rewritten"]],
        "lingering": [_fields(LingeringObject, each) for each in document["lingering"]],
        "manifest": document["manifest"],
    }
    if "messages" not in document:  # of an index alone
        return Receipt(**given)
    return ForgetReceipt(
        **given,
        messages=[_fields(ForgottenMessage, each) for each in document["messages"]],
        held_count=document["held_count"],
        elsewhere=document["elsewhere"],
    )


def ended(receipt: Receipt) -> Receipt:
    """Return what a request became that is listed no more: every owner acknowledged, no object holds any."""
    return replace(receipt, is_complete=True, waiting=[], holding=[], lingering=[])


def _fields(kind: Any, document: dict[str, Any]) -> Any:
    return kind(**{name: document[name] for name in kind._fields})


def read_file(body: bytes) -> FileInfo:
    return file_of(read_json(body))


def answer_of(document: dict[str, Any]) -> Answer:
    """Return the answer that a JSON object describes; members of newer services are left out."""
    explain = document.get("explain")
    return Answer(
        lost=tuple(
            LostOffsets(**{name: item[name] for name in LostOffsets._fields})
            for item in document.get("lost") or ()
        ),
        entries=[_entry(entry) for entry in document["entries"]],
        complete=document["complete"],
        missing=[Missing(item["file"], item["reason"]) for item in document["missing"]],
        next_cursor=document["next_cursor"],
        as_of=document["as_of"],
        unasked=read_unasked(document),
        hints=read_hints(document),
        table=_table_seen(document.get("table")),
        explain=None if explain is None else _explain(explain),
    )


def read_unasked(document: dict[str, Any]) -> tuple[Unasked, ...]:
    """Return the nodes that an answer names as not asked; a service of before names none."""
    return tuple(
        Unasked(**{name: item[name] for name in Unasked._fields if name in item})
        for item in document.get("unasked", ())
    )


def _table_seen(document: dict[str, Any] | None) -> TableSeen | None:
    if document is None:
        return None
    told: list[Any] = [document.get(name) for name in TableSeen._fields]
    return TableSeen(*told)


def read_tables(body: bytes) -> list[TableInfo]:
    names = TableInfo._fields
    rows = read_json(body)["tables"]
    return [TableInfo(*(row.get(name) for name in names)) for row in rows]


def read_hints(document: dict[str, Any]) -> tuple[Hint, ...]:
    """Return what a lookup without entries may have meant."""
    return tuple(
        Hint(**{name: item[name] for name in Hint._fields if name in item})
        for item in document.get("hints") or ()
    )


def file_of(document: dict[str, Any]) -> FileInfo:
    return FileInfo(**{name: document[name] for name in FileInfo._fields if name in document})


def _entry(document: dict[str, Any]) -> Entry:
    if len(document) == len(_COMMON):
        return Entry(*_common_values(document))
    given = {name: document[name] for name in Entry._fields if name in document}
    if given.get("message") is not None:
        given["message"] = ShownMessage.from_dict(given["message"])
    return Entry(**given)


def _explain(document: dict[str, Any]) -> Explain:
    known = {name: document[name] for name in Explain.__slots__ if name in document}
    known["stages"] = [Stage(stage["name"], stage["ms"]) for stage in document.get("stages", [])]
    known["files"] = [
        FileExplain(**{name: file[name] for name in FileExplain.__slots__ if name in file})
        for file in document.get("files", [])
    ]
    return Explain(**known)


def read_missing(document: dict[str, Any]) -> tuple[MissingMessages, ...]:
    """Return what a read of messages could not read."""
    return tuple(MissingMessages(m["file"], m["reason"], m["offset"]) for m in document["missing"])


def read_explain(document: dict[str, Any]) -> ReadExplain:
    """Return from where the bytes of messages came."""
    return ReadExplain(**document.get("explain", {}))  # an older service does not say
