"""The rules of a valid entry: one place for every API.

::

    topic                   1 to 255 bytes of UTF-8, no control characters
    key, message ID         1 to `max_key_bytes` bytes of UTF-8; an entry has at least one of both
    queue_id, offset, size  integers within MESSAGE_RANGES; fields of another schema within their dtypes
    timestamp               any int64, milliseconds; no number that looks like seconds (decision 0080)

A single put is checked value by value (`put`), a batch column by column (`put_columns`); HTTP's models
declare the same ranges, and the kernels of direct puts compare with them and leave the rest to `put`.
Queries are held to the same rules of topics, keys and times. Every refusal is an InvalidRequestError
that names the field as the caller wrote it.

Single values are held to `value_rules`, which a message log has in common. Depends on errors, schema and
value_rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tierdex.errors import InvalidRequestError
from tierdex.indexfile.schema import MESSAGE_RANGES
from tierdex.value_rules import INT64_MAX as INT64_MAX
from tierdex.value_rules import INT64_MIN as INT64_MIN
from tierdex.value_rules import MAX_TOPIC_BYTES as MAX_TOPIC_BYTES
from tierdex.value_rules import check_integer as check_integer
from tierdex.value_rules import check_key as check_key
from tierdex.value_rules import check_topic as check_topic
from tierdex.value_rules import missing as missing
from tierdex.value_rules import out_of_range as out_of_range
from tierdex.value_rules import wrong_length as wrong_length

if TYPE_CHECKING:
    from tierdex.indexfile.schema import SchemaField


def range_of(field: SchemaField) -> tuple[int, int]:
    """Return the least and the greatest value of a location field; a dictionary field has none."""
    limits = np.iinfo(field.code)
    return MESSAGE_RANGES.get(field.name, (int(limits.min), int(limits.max)))


def check_location(name: str, value: object) -> int:
    """Return a legal `queue_id`, `offset` or `size` of a message."""
    return check_integer(value, name, *MESSAGE_RANGES[name])


def no_name(field: str) -> InvalidRequestError:
    """Return the refusal of an entry that no lookup could find."""
    return InvalidRequestError("give at least one key or a message ID", field=field)


def check_places(only: object) -> tuple[tuple[int, int], ...]:
    """Check [queue, offset] pairs. Raises InvalidRequestError."""
    if not isinstance(only, list | tuple) or not all(
        isinstance(each, list | tuple) and len(each) == 2 for each in only
    ):
        raise InvalidRequestError("must be a list of [queue_id, offset]", field="only")
    return tuple(
        (
            check_integer(queue, f"only[{i}][0]", 0, INT64_MAX),
            check_integer(offset, f"only[{i}][1]", 0, INT64_MAX),
        )
        for i, (queue, offset) in enumerate(only)
    )


def check_sources(sources: object) -> tuple[str, ...]:
    """Check names of files of rows. Raises InvalidRequestError."""
    given = [sources] if isinstance(sources, str) else sources
    if not isinstance(given, list | tuple) or not given:
        raise InvalidRequestError("must be a list of files, one at least", field="sources")
    if not all(isinstance(each, str) and each for each in given):
        raise InvalidRequestError("must be paths or URLs as entries name them", field="sources")
    return tuple(dict.fromkeys(given))
