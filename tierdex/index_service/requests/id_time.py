"""Message IDs with their time inside: they narrow the times of their own lookup.

::

    uuidv7      017f22e2-79b0-7cc3-98c4-dc0c0c07398f   48 bits of milliseconds, then version 7
    ulid        01ARZ3NDEKTSV4RRFFQ69G5FAV             48 bits of milliseconds, in base 32
    snowflake   1541815603606036480                    milliseconds since the given epoch, then 22 bits

The time of an ID is when it was made; an entry's time is what its writer put. So the range is widened by
`id_time_slack` on both sides, and nothing narrows unless a setting or a query asks for it. An ID that is not
of the form, and a range of the caller's that lies elsewhere, stay as they are.

Depends on errors.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from tierdex.settings import Settings

OFF: Final = "off"
_UUID: Final = re.compile(
    r"[0-9a-f]{8}(-?)[0-9a-f]{4}\1(7)[0-9a-f]{3}\1[89ab][0-9a-f]{3}\1[0-9a-f]{12}"
)
_ULID: Final = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
_BASE32: Final = {letter: n for n, letter in enumerate("0123456789ABCDEFGHJKMNPQRSTVWXYZ")}
_SNOWFLAKE: Final = re.compile(r"[1-9][0-9]{0,18}")
_EPOCH: Final = re.compile(r"snowflake:(0|[1-9][0-9]{0,14})")
_SNOWFLAKE_BITS: Final = 63


class Narrowed(NamedTuple):
    """The times (inclusive ms) that a lookup is narrowed to, by an ID of `form`."""

    form: str
    begin: int
    end: int


def check_form(form: object, field: str = "id_time") -> str:
    """Return a form's name, `off` among them. Raises InvalidRequestError."""
    if isinstance(form, str) and (form in (OFF, "uuidv7", "ulid") or _EPOCH.fullmatch(form)):
        return form
    raise InvalidRequestError("must be off, uuidv7, ulid or snowflake:EPOCH_MS", field=field)


def time_of_id(form: str, message_id: str) -> int | None:
    """Return the time (ms) in an ID; None: it is not of the form."""
    if form == "uuidv7":
        text = message_id.lower()
        return int(text.replace("-", "")[:12], 16) if _UUID.fullmatch(text) else None
    if form == "ulid":
        text = message_id.upper()
        if not _ULID.fullmatch(text):
            return None
        time = 0
        for letter in text[:10]:
            time = time << 5 | _BASE32[letter]
        return time
    if not _SNOWFLAKE.fullmatch(message_id) or int(message_id) >> _SNOWFLAKE_BITS:
        return None
    return (int(message_id) >> 22) + int(form.partition(":")[2])


def narrow(
    settings: Settings,
    topic: object,
    message_id: object,
    times: tuple[object, object],
    id_time: object = None,
) -> Narrowed | None:
    """Return the times of a lookup by message ID, given its own (None: any); None: they stay.

    `id_time` None stands for the settings' form of the topic. Raises InvalidRequestError.
    """
    if id_time is None:
        own = settings.topic_id_time.get(topic) if isinstance(topic, str) else None
        id_time = own or settings.id_time
    form = check_form(id_time)
    if form == OFF or not isinstance(message_id, str):
        return None
    time = time_of_id(form, message_id)
    begin, end = times
    if time is None or not all(each is None or type(each) is int for each in times):
        return None  # of another form; or the query says what is wrong with its times
    slack = round(settings.id_time_slack * 1000)
    low, high = time - slack, time + slack
    if type(begin) is int:
        low = max(low, begin)
    if type(end) is int:
        high = min(high, end)
    return Narrowed(form, low, high) if low <= high else None
