"""The extra of a message: message ID, keys, headers, delivery time, as tagged items in one run of bytes.

Items stand in the order of their tags, keys and headers in the order that they were given. A message
without any has no extra. Depends on layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tierdex.errors import InvalidRequestError
from tierdex.logfile import layout
from tierdex.logfile.layout import ExtraTag

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Extra:
    """What a message carries beside its body. `headers` are (name, value)."""

    message_id: str | None = None
    keys: tuple[str, ...] = ()
    headers: tuple[tuple[str, bytes], ...] = ()
    deliver_at: int | None = None

    def __bool__(self) -> bool:
        return self != NO_EXTRA


NO_EXTRA = Extra()
_TAG, _NAME, _VALUE = (layout.places(layout.EXTRA)[n] for n in ("tag", "name_bytes", "value_bytes"))
_ITEM = layout.EXTRA_ITEM_BYTES
_TIME = np.dtype("<i8")


def encode_extra(extra: Extra) -> bytes:
    """Return the bytes of one message's extra. Raises InvalidRequestError for what is too long."""
    items = []
    if extra.message_id is not None:
        items.append(_item(ExtraTag.MESSAGE_ID, "", _text(extra.message_id, "message_id")))
    items += [_item(ExtraTag.KEY, "", _text(key, "keys")) for key in extra.keys]
    items += [_item(ExtraTag.HEADER, name, value) for name, value in extra.headers]
    if extra.deliver_at is not None:
        items.append(_item(ExtraTag.DELIVER_AT, "", np.array(extra.deliver_at, _TIME).tobytes()))
    return b"".join(items)


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
    keys, headers = [], []
    position, last = 0, 0
    while position < len(data):
        if position + _ITEM > len(data):
            raise ValueError("an item of an extra is cut")
        head = np.frombuffer(data[position : position + _ITEM], layout.EXTRA)[0]
        tag, name_bytes, value_bytes = (int(value) for value in head.item())
        begin = position + _ITEM + name_bytes
        position = begin + value_bytes
        once = tag in {ExtraTag.MESSAGE_ID, ExtraTag.DELIVER_AT}
        if position > len(data) or tag < last + (once and tag == last):
            raise ValueError("an item of an extra is cut or out of order")
        if name_bytes and tag != ExtraTag.HEADER:
            raise ValueError("an item that is no header has a name")
        name, value = data[begin - name_bytes : begin], data[begin:position]
        if tag == ExtraTag.MESSAGE_ID:
            message_id = value.decode()
        elif tag == ExtraTag.KEY:
            keys.append(value.decode())
        elif tag == ExtraTag.HEADER:
            headers.append((name.decode(), value))
        elif tag == ExtraTag.DELIVER_AT and len(value) == _TIME.itemsize:
            deliver_at = int(np.frombuffer(value, _TIME)[0])
        else:
            raise ValueError(f"an extra has an item of unknown tag {tag}")
        last = tag
    return Extra(message_id, tuple(keys), tuple(headers), deliver_at)


def encode_extras(extras: Sequence[Extra | None]) -> tuple[np.ndarray, np.ndarray]:
    """Return (offsets i8, data u1) of a few messages' extras."""
    encoded = [encode_extra(extra) if extra else b"" for extra in extras]
    offsets = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(one) for one in encoded], out=offsets[1:])
    return offsets, np.frombuffer(b"".join(encoded), np.uint8)
