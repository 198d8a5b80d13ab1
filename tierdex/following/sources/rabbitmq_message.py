"""Messages of RabbitMQ streams: AMQP 1.0, or bytes that are none, as a key, a value and headers.

::

    subject, else the routing key that it was published with      key, and no header
    data; a value or a sequence as JSON                            value
    properties (message-id, ...), annotations, application         headers; the application's come last
      properties

Bytes that are no AMQP 1.0 are a value as they are: whatever comes can be indexed by what can be read of it.

Depends on key_texts, records, orjson and rstream.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

import orjson
from rstream import amqp_decoder

from tierdex.key_texts import float_text

if TYPE_CHECKING:
    from tierdex.following.records import Headers

_SECTIONS: Final = range(0x70, 0x79)  # header to footer, each "described" by 00 53 and its number
_SUBJECT: Final = "subject"
_ROUTING_KEY: Final = "x-routing-key"
_PROPERTIES: Final = (
    "message-id", "user-id", "to", _SUBJECT, "reply-to", "correlation-id", "content-type",
    "content-encoding", "absolute-expiry-time", "creation-time", "group-id", "group-sequence",
    "reply-to-group-id",
)  # fmt: skip


class Parted(NamedTuple):
    """A message in its parts."""

    key: bytes | None
    value: bytes | None
    headers: Headers


def part(data: bytes) -> Parted:
    """Return the parts of a message as its stream has it."""
    if len(data) < 4 or data[:2] != b"\x00\x53" or data[2] not in _SECTIONS:
        return Parted(None, data, ())
    try:
        message: Any = amqp_decoder(data)
        named = _named(message)
        key = named.pop(_SUBJECT, None)
        if key is None:
            key = named.pop(_ROUTING_KEY, None)
        headers = [(name, _bytes(value)) for name, value in named.items()]
        headers += [
            (_text(name), _bytes(value))
            for name, value in (message.application_properties or {}).items()
            if value is not None
        ]
        return Parted(None if key is None else _bytes(key), _value_of(message), headers)
    except Exception:  # noqa: BLE001 - bytes that only begin like a message, damaged in any way
        return Parted(None, data, ())


def _named(message: Any) -> dict[str, Any]:
    """Return the properties that AMQP names, and what the broker noted, where there is one."""
    named = dict(zip(_PROPERTIES, message.properties or (), strict=False))
    for name, value in (message.message_annotations or {}).items():
        named[_text(name)] = value
    return {name: value for name, value in named.items() if value is not None}


def _value_of(message: Any) -> bytes | None:
    if message.body is not None:
        return bytes(message.body)
    found = message.sequence if message.sequence is not None else message.value
    return None if found is None else _bytes(found)


def _bytes(value: Any) -> bytes:
    """Return text and bytes as they are, numbers and UUIDs as keys, anything else as JSON would write it."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, float):
        value = float_text(value) or str(value)
    if isinstance(value, UUID | Decimal):
        value = format(value, "f") if isinstance(value, Decimal) else str(value)
    return value.encode() if isinstance(value, str) else orjson.dumps(_plain(value), default=str)


def _plain(value: Any) -> Any:
    """Return a value of AMQP with texts for the bytes in it, as JSON wants them."""
    if isinstance(value, dict):
        return {_text(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return _text(value) if isinstance(value, bytes) else value


def _text(value: Any) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
