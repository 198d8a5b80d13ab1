"""The extra of a message: message ID, keys, headers, delivery, as tagged items in one run of bytes.

Items stand in the order of their tags, keys and headers in the order that they were given. A message
without any has no extra. Depends on layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tierdex.errors import InvalidRequestError
from tierdex.logfile import layout
from tierdex.logfile.layout import ExtraTag

if TYPE_CHECKING:
    from collections.abc import Sequence


class Target(NamedTuple):
    """Where a held message is delivered to, and the timestamp that it has there (int64 ms)."""

    topic: str
    queue_id: int
    timestamp: int


@dataclass(frozen=True)
class Extra:
    """What a message carries beside its body. `headers` are (name, value)."""

    message_id: str | None = None
    keys: tuple[str, ...] = ()
    headers: tuple[tuple[str, bytes], ...] = ()
    deliver_at: int | None = None
    target: Target | None = None

    def __bool__(self) -> bool:
        return self != NO_EXTRA


NO_EXTRA = Extra()
_ITEM = layout.EXTRA_ITEM_BYTES
# As plain numbers: a member of an enum takes several times as long to compare.
_MESSAGE_ID, _KEY, _HEADER, _DELIVER_AT, _TARGET_TAG = (tag.value for tag in ExtraTag)
_ONCE = frozenset((_MESSAGE_ID, _DELIVER_AT, _TARGET_TAG))
_TIME = np.dtype("<i8")
_HEAD, _TARGET = layout.EXTRA_STRUCT, layout.TARGET_STRUCT
_DELIVER_AT_HEAD = _HEAD.pack(ExtraTag.DELIVER_AT, 0, _TIME.itemsize)


def encode_extra(extra: Extra) -> bytes:
    """Return the bytes of one message's extra. Raises InvalidRequestError for what is too long."""
    items = []
    if extra.message_id is not None:
        items.append(_item(ExtraTag.MESSAGE_ID, "", _text(extra.message_id, "message_id")))
    items += [_item(ExtraTag.KEY, "", _text(key, "keys")) for key in extra.keys]
    items += [_item(ExtraTag.HEADER, name, value) for name, value in extra.headers]
    if extra.deliver_at is not None:
        items.append(deliver_at_item(extra.deliver_at))
    if extra.target is not None:
        items.append(target_item(extra.target))
    return b"".join(items)


def deliver_at_item(deliver_at: int) -> bytes:
    """Return the item that follows all others of an extra, but a target."""
    return _DELIVER_AT_HEAD + deliver_at.to_bytes(_TIME.itemsize, "little", signed=True)


def target_item(target: Target) -> bytes:
    """Return the item that follows all others of an extra."""
    topic = target.topic.encode()
    head = _HEAD.pack(ExtraTag.TARGET, 0, layout.TARGET_BYTES + len(topic))
    return head + _TARGET.pack(target.timestamp, target.queue_id) + topic


def split_target(extra: bytes) -> tuple[bytes, Target]:
    """Return a held message's extra as it is delivered, and its target. Raises ValueError without one."""
    position = 0
    while position + _ITEM <= len(extra):
        tag, name_bytes, value_bytes = _HEAD.unpack_from(extra, position)
        begin = position + _ITEM + name_bytes
        if tag == ExtraTag.TARGET:
            return extra[:position], _target(extra[begin : begin + value_bytes])
        position = begin + value_bytes
    raise ValueError("a held message has no target")


def _target(value: bytes) -> Target:
    if len(value) <= layout.TARGET_BYTES:
        raise ValueError("a target is cut")
    timestamp, queue_id = _TARGET.unpack_from(value)
    return Target(value[layout.TARGET_BYTES :].decode(), queue_id, timestamp)


def _text(value: str, field: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError("is not valid text (lone surrogate)", field=field) from error


def _item(tag: ExtraTag, name: str, value: bytes) -> bytes:
    encoded = _text(name, "headers")
    field = tag.name.lower()
    if len(encoded) > np.iinfo(np.uint8).max:
        raise InvalidRequestError("a name has more than 255 bytes", field=field)
    if len(value) > np.iinfo(np.uint16).max:
        raise InvalidRequestError("has more than 65,535 bytes: put it into the body", field=field)
    item = np.zeros((), layout.EXTRA)
    item["tag"], item["name_bytes"], item["value_bytes"] = tag, len(encoded), len(value)
    return item.tobytes() + encoded + value


def decode_extra(data: bytes) -> Extra:
    """Return what the bytes of an extra say. Raises ValueError for what breaks a rule."""
    message_id: str | None = None
    deliver_at: int | None = None
    target: Target | None = None
    keys, headers = [], []
    position, last = 0, 0
    while position < len(data):
        if position + _ITEM > len(data):
            raise ValueError("an item of an extra is cut")
        tag, name_bytes, value_bytes = layout.EXTRA_STRUCT.unpack_from(data, position)
        begin = position + _ITEM + name_bytes
        position = begin + value_bytes
        once = tag in _ONCE
        if position > len(data) or tag < last + (once and tag == last):
            raise ValueError("an item of an extra is cut or out of order")
        if name_bytes and tag != _HEADER:
            raise ValueError("an item that is no header has a name")
        name, value = data[begin - name_bytes : begin], data[begin:position]
        if tag == _MESSAGE_ID:
            message_id = value.decode()
        elif tag == _KEY:
            keys.append(value.decode())
        elif tag == _HEADER:
            headers.append((name.decode(), value))
        elif tag == _DELIVER_AT and len(value) == _TIME.itemsize:
            deliver_at = int(np.frombuffer(value, _TIME)[0])
        elif tag == _TARGET_TAG:
            target = _target(value)
        else:
            raise ValueError(f"an extra has an item of unknown tag {tag}")
        last = tag
    return Extra(message_id, tuple(keys), tuple(headers), deliver_at, target)


def encode_extras(extras: Sequence[Extra | None]) -> tuple[np.ndarray, np.ndarray]:
    """Return (offsets i8, data u1) of a few messages' extras."""
    encoded = [encode_extra(extra) if extra else b"" for extra in extras]
    offsets = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(one) for one in encoded], out=offsets[1:])
    return offsets, np.frombuffer(b"".join(encoded), np.uint8)
