"""Messages of a read as JSON, bodies as text or base64, or as an Arrow stream.

In JSON a message whose body or header is not UTF-8 is written in base64 whatever was asked for, and says
so: nothing is replaced or left out. The schema of an Arrow stream has all but the messages in its
metadata, as a JSON object named `answer`.

Depends on arrow_stream, shown_message and log_service.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import orjson

from tierdex.app.http.codecs.arrow_stream import write_stream
from tierdex.errors import without_places
from tierdex.index_service.shown_message import written

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tierdex.log_service.answer import FoundMessages, Message, MissingMessages, ReadAnswer

ANSWER = b"answer"


def messages_document(answer: ReadAnswer, encoding: str) -> dict[str, Any]:
    """Return a read's answer as a JSON object, bodies as `text` where they are, or as `base64`."""
    messages = [message_document(message, encoding) for message in answer.messages]
    return {**_about(answer), "messages": messages}


def found_document(found: FoundMessages, encoding: str) -> dict[str, Any]:
    """Return the messages of a key as a JSON object."""
    document = {
        "messages": [message_document(message, encoding) for message in found],
        "complete": found.complete,
        "missing": _missing(found.missing),
        "next_cursor": found.next_cursor,
        "expired": [place._asdict() for place in found.expired],
        "explain": asdict(found.explain),
        "as_of": found.as_of,
        "unasked": [unasked._asdict() for unasked in found.unasked],
    }
    if found.hints:
        document["hints"] = [hint._asdict() for hint in found.hints]
    return document


def messages_stream(answer: ReadAnswer) -> memoryview:
    """Return a read's answer as an Arrow stream."""
    table = answer.table()
    return write_stream(table.replace_schema_metadata({ANSWER: orjson.dumps(_about(answer))}))


def message_document(message: Message, encoding: str) -> dict[str, Any]:
    """Return one message as a JSON object."""
    values = [message.body, *(value for _, value in message.headers)]
    encoding, texts = written(values, encoding)
    return {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "offset": message.offset,
        "timestamp": message.timestamp,
        "body": texts[0],
        "encoding": encoding,
        "keys": list(message.keys),
        "message_id": message.message_id,
        "headers": [
            {"name": name, "value": value}
            for (name, _), value in zip(message.headers, texts[1:], strict=True)
        ],
        "deliver_at": message.deliver_at,
        "is_forgotten": message.is_forgotten,
    }


def _about(answer: ReadAnswer) -> dict[str, Any]:
    return {
        "topic": answer.topic,
        "queue_id": answer.queue_id,
        "first_offset": answer.first_offset,
        "next_offset": answer.next_offset,
        "begin_offset": answer.begin_offset,
        "end_offset": answer.end_offset,
        "from_begin": answer.from_begin,
        "generation": answer.generation,
        "complete": answer.complete,
        "missing": _missing(answer.missing),
        "explain": asdict(answer.explain),
    }


def _missing(rows: Iterable[MissingMessages]) -> list[dict[str, Any]]:
    return [
        {"file": row.file, "reason": without_places(row.reason), "offset": row.offset}
        for row in rows
    ]
