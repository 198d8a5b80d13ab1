"""The types of single values in bodies and parameters, with the rules that openapi.yaml shows of them.

Depends on pydantic, clock, times, schema and value_rules.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from tierdex.clock import SystemClock
from tierdex.errors import InvalidRequestError
from tierdex.indexfile.schema import MESSAGE_RANGES
from tierdex.times import AGO_PATTERN, DATE_PATTERN, RFC3339_PATTERN, parse_time
from tierdex.value_rules import (
    INT64_MAX,
    INT64_MIN,
    SECONDS,
)

TOPIC_SCHEMA: Final[dict[str, Any]] = {
    "type": "string",
    "minLength": 1,
    "maxLength": 255,
    "pattern": r"^[^\x00-\x1f\x7f-\x9f]+$",
    "description": "1 to 255 bytes of UTF-8, no control characters",
}
KEY_SCHEMA: Final[dict[str, Any]] = {
    "type": "string",
    "minLength": 1,
    "maxLength": 4096,
    "description": "at most `max_key_bytes` bytes of UTF-8",
}
TIME_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [
        {"type": "integer", "format": "int64", "minimum": INT64_MIN, "maximum": INT64_MAX},
        {
            "type": "string",
            "pattern": RFC3339_PATTERN,
            "description": "RFC 3339 with an offset",
        },
        {"type": "string", "pattern": DATE_PATTERN, "description": "a day in UTC"},
    ]
}
ASKED_TIME_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [
        *TIME_SCHEMA["anyOf"],
        {
            "type": "string",
            "pattern": AGO_PATTERN,
            "description": "before now: `7d` and `-7d` are a week ago; not beside a `cursor`",
        },
    ]
}


def _milliseconds(value: Any, **how: Any) -> Any:
    try:
        return parse_time(value, field="", **how) if isinstance(value, str) else value
    except InvalidRequestError as error:
        raise PydanticCustomError("time", "{reason}", {"reason": error.detail}) from None


def given_time(value: Any) -> Any:
    """Return milliseconds of a text that says when something was; a number may not look like seconds."""
    if type(value) is int and value in SECONDS:
        value = str(value)  # which says what is wrong
    return _milliseconds(value)


def asked_time(value: Any) -> Any:
    """Return milliseconds of a text that says where a range begins: before now, too."""
    return _milliseconds(value, now_ms=SystemClock().now_ms)


def asked_end(value: Any) -> Any:
    """Return milliseconds of a text that says where a range ends: a day ends with its last one."""
    return _milliseconds(value, now_ms=SystemClock().now_ms, is_end=True)


def _location_field(name: str, number_format: str) -> Any:
    lowest, highest = MESSAGE_RANGES[name]
    return Field(strict=True, ge=lowest, le=highest, json_schema_extra={"format": number_format})


Topic = Annotated[str, WithJsonSchema(TOPIC_SCHEMA)]
Key = Annotated[str, WithJsonSchema(KEY_SCHEMA)]
Int64 = Annotated[
    int, Field(strict=True, ge=INT64_MIN, le=INT64_MAX, json_schema_extra={"format": "int64"})
]
Time = Annotated[Int64, BeforeValidator(given_time), WithJsonSchema(TIME_SCHEMA)]
AskedTime = Annotated[Int64, BeforeValidator(asked_time), WithJsonSchema(ASKED_TIME_SCHEMA)]
AskedEnd = Annotated[Int64, BeforeValidator(asked_end), WithJsonSchema(ASKED_TIME_SCHEMA)]
QueueId = Annotated[int, _location_field("queue_id", "int32")]
Offset = Annotated[int, _location_field("offset", "int64")]
Size = Annotated[int, _location_field("size", "int64")]
ROW: Final = ConfigDict(extra="forbid")


class Given(BaseModel):
    """A body that the service reads: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


def has(*names: str) -> dict[str, Any]:
    """Return the rule that these members are there, and not null."""
    return {
        "required": list(names),
        "properties": {name: {"type": ["string", "array"], "minItems": 1} for name in names},
    }


def must(rule: dict[str, Any]) -> dict[str, Any]:
    """Return the schema's members that demand `rule`.

    Generators of clients take `anyOf` beside `properties` for a union, and drop the properties. Not
    to break a rule is the same, and they leave `not` alone.
    """
    return {"not": {"not": rule}}


def without_default(schema: dict[str, Any]) -> None:
    del schema["default"]
