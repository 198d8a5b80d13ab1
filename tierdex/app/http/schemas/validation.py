"""JSON checked by a model, and pydantic's findings as InvalidRequestError.

It imports no FastAPI, since `tierdex put --lines` validates entries with it.

Depends on orjson, pydantic and errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import orjson
from pydantic import TypeAdapter, ValidationError

from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

T = TypeVar("T")


def validate_json(adapter: TypeAdapter[T], body: bytes) -> T:
    """Return the value of a JSON body. Raises InvalidRequestError naming the first wrong field.

    orjson parses it and pydantic checks it: pydantic's own parser takes 450 bytes an object, which
    the C library keeps for the thread.
    """
    return validate(adapter, parse_json(body, "body"))


def parse_json(body: bytes, field: str) -> Any:
    """Return the values of a JSON text. Raises InvalidRequestError (bad UTF-8, too deep, not JSON)."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        refusal = InvalidRequestError(f"is not JSON: {error}", field=field)
    raise refusal  # outside the `except`: the JSON error as its context would hold the body


def validate(adapter: TypeAdapter[T], value: Any, *, place: str = "") -> T:
    """Return a value checked by its model; `place` is where it stood in the body."""
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        refusal = invalid_request(found, "body", place)
    raise refusal


def invalid_request(
    errors: Sequence[Mapping[str, Any]], whole: str, place: str = ""
) -> InvalidRequestError:
    """Return the refusal for pydantic's findings; `whole` names a finding without a field."""
    first = errors[0]
    for step in first["loc"]:
        place += f"[{step}]" if isinstance(step, int) else f".{step}" if place else str(step)
    return InvalidRequestError(
        _MESSAGES.get(first["type"]) or first["msg"], field=place[:200] or whole
    )


_MESSAGES = {
    "extra_forbidden": "there is no such field",
    "missing": "is required",
    "model_type": "must be a JSON object",
    "dict_type": "must be an object",
    "list_type": "must be a list",
    "string_type": "must be a string",
    "int_type": "must be an integer",
    "bool_type": "must be true or false",
}
