"""Message IDs with their time inside narrow the times of a batch: whole columns at once.

The same times as of single queries (`requests.id_time`, whose rules these are), without an object an ID.

Depends on requests, indexfile and pyarrow.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tierdex.index_service.requests.id_time import OFF
from tierdex.index_service.requests.lookups import NO_TOPIC
from tierdex.indexfile.layout import KIND_MESSAGE_ID

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.index_service.requests.lookups import Lookups
    from tierdex.settings import Settings

_UUID: Final = (
    "^(?:[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
    "|[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15})$"
)
_ULID: Final = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$"
_SNOWFLAKE: Final = "^[1-9][0-9]{0,18}$"
_DIGITS: Final = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # of base 32; base 16 has the first of its own


def narrow_lookups(
    settings: Settings, lookups: Lookups, texts_of: Callable[[np.ndarray], Any]
) -> Lookups:
    """Return lookups with the times that their message IDs leave, by the settings' forms.

    `texts_of` returns the IDs of lookups, given by their numbers, as a string array.
    """
    forms = _forms(settings, lookups)
    for form in set(forms) - {OFF}:
        rows = np.flatnonzero(np.array(forms) == form)
        lookups = narrowed(lookups, form, settings.id_time_slack, rows, texts_of(rows))
    return lookups


def narrowed(lookups: Lookups, form: str, slack_s: float, rows: np.ndarray, ids: Any) -> Lookups:
    """Return lookups of which `rows` (i8) have the times that their `ids`, a string array, leave."""
    begin, end, slack = lookups.begin.copy(), lookups.end.copy(), round(slack_s * 1000)
    times, has_time = times_of_ids(form, ids)
    rows, times = rows[has_time], times[has_time]
    low, high = np.maximum(begin[rows], times - slack), np.minimum(end[rows], times + slack)
    fits = low <= high  # else the caller's times lie elsewhere, and stay
    begin[rows[fits]], end[rows[fits]] = low[fits], high[fits]
    return replace(lookups, begin=begin, end=end)


def may_narrow(settings: Settings) -> bool:
    """Return whether the settings have any form but `off`."""
    return settings.id_time != OFF or bool(settings.topic_id_time)


def _forms(settings: Settings, lookups: Lookups) -> np.ndarray:
    """Return the form of each lookup's ID, `off` of keys."""
    by_topic = [settings.topic_id_time.get(topic) or settings.id_time for topic in lookups.topics]
    named = np.array([*by_topic, settings.id_time], object)  # the last one: of NO_TOPIC
    forms: np.ndarray = named[lookups.topic_index]
    forms[lookups.kinds != KIND_MESSAGE_ID] = OFF
    return forms


def times_of_ids(form: str, texts: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the time (i8, ms) in each ID, and which IDs (b1) are of the form."""
    if form == "uuidv7":
        texts = pc.utf8_lower(texts)
        of_form = _matches(texts, _UUID)
        digits = pc.replace_substring(texts.filter(pa.array(of_form)), "-", "")
        return _spread(of_form, _number(pc.utf8_upper(digits), 12, 16))
    if form == "ulid":
        texts = pc.utf8_upper(texts)
        of_form = _matches(texts, _ULID)
        return _spread(of_form, _number(texts.filter(pa.array(of_form)), 10, 32))
    of_form = _matches(texts, _SNOWFLAKE)
    numbers = texts.filter(pa.array(of_form)).cast(pa.uint64()).to_numpy(zero_copy_only=False)
    is_signed = numbers < 1 << 63
    of_form[np.flatnonzero(of_form)[~is_signed]] = False
    epoch = int(form.partition(":")[2])
    return _spread(of_form, (numbers[is_signed] >> np.uint64(22)).astype(np.int64) + epoch)


def _matches(texts: Any, pattern: str) -> np.ndarray:
    found: np.ndarray = pc.match_substring_regex(texts, pattern).to_numpy(zero_copy_only=False)
    return found.astype(bool)


def _number(texts: Any, length: int, base: int) -> np.ndarray:
    """Return the number (i8) that the first `length` digits of each text are."""
    head = pc.utf8_slice_codeunits(texts, 0, length).cast(pa.binary()).cast(pa.binary(length))
    letters = np.frombuffer(head.buffers()[1], np.uint8, len(head) * length, head.offset * length)
    values = np.zeros(256, np.int64)
    alphabet = b"0123456789ABCDEF" if base == 16 else _DIGITS
    values[list(alphabet)] = np.arange(base)
    weights = base ** np.arange(length - 1, -1, -1, dtype=np.int64)
    numbers: np.ndarray = values[letters.reshape(len(head), length)] @ weights
    return numbers


def _spread(of_form: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    spread = np.zeros(len(of_form), np.int64)
    spread[of_form] = times
    return spread, of_form


assert NO_TOPIC == -1, "the last form is that of lookups without a topic"
