"""The live record of an owner in the store: that it lives, and how far it has published.

It is part of the node's hint, which is one small object that is overwritten in place::

    hint {checkpoint, number, live: {epoch, owner, published_through, time_ms, ...}}

`published_through` (ms, see store_time) means: every entry that this owner acknowledged before is in a
file that the manifest lists at `number`. It holds together with that number only, which is why both
lie in one object. A record of another epoch or owner than the manifest's newest is an owner's who lost
the node: it says nothing.

Depends on file_row only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tierdex.lifecycle.manifests.file_row import Uuid

_TIME_MAX = 1 << 63
_URL_MAX = 2048


class OwnerAddress(NamedTuple):
    """Where the owner that a node's manifest names at `number` says that it serves; `owner` is hex."""

    node: str
    epoch: int
    owner: str
    number: int
    url: str


class LiveRecord(NamedTuple):
    """One owner's record. Times are int64 ms; `time_ms` is the owner's time, `clock_ms` its clock."""

    epoch: int
    owner: Uuid
    published_through: int
    time_ms: int
    clock_ms: int
    skew_ms: int | None  # how far its clock was ahead of the store's; None: not known
    interval_ms: int  # until the next record, at the latest
    is_closed: bool = False  # nothing is acknowledged after `time_ms`
    holds_unpublished: bool = False
    advertise_url: str | None = None  # where it answers for what is not published yet


def pack_live(live: LiveRecord) -> dict[str, Any]:
    """Return a record as plain JSON values."""
    return {**live._asdict(), "owner": live.owner.hex()}


def unpack_live(packed: Any) -> LiveRecord:
    """Return what was packed; unknown fields are ignored. Raises ValueError, KeyError, TypeError."""
    skew, url = packed["skew_ms"], packed.get("advertise_url")
    owner = bytes.fromhex(packed["owner"])
    if len(owner) != 16 or not (url is None or (isinstance(url, str) and len(url) <= _URL_MAX)):
        raise ValueError("owner or url")
    return LiveRecord(
        epoch=_whole(packed["epoch"], 0),
        owner=owner,
        published_through=_whole(packed["published_through"], 0),
        time_ms=_whole(packed["time_ms"], 0),
        clock_ms=_whole(packed["clock_ms"]),
        skew_ms=None if skew is None else _whole(skew),
        interval_ms=_whole(packed["interval_ms"], 1),
        is_closed=_truth(packed.get("is_closed", False)),
        holds_unpublished=_truth(packed.get("holds_unpublished", False)),
        advertise_url=url,
    )


def _whole(value: object, least: int = -_TIME_MAX) -> int:
    if type(value) is not int or not least <= value < _TIME_MAX:
        raise ValueError(f"not a time: {value!r}")
    return value


def _truth(value: object) -> bool:
    if type(value) is not bool:
        raise TypeError(f"neither true nor false: {value!r}")
    return value
