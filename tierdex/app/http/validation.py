"""JSON checked by a model, and what pydantic finds wrong in our words.

Without FastAPI, since `tierdex put --lines` reads entries as the service does. Depends on pydantic, errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pydantic import TypeAdapter, ValidationError

from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

T = TypeVar("T")


def validate_json(adapter: TypeAdapter[T], body: bytes) -> T:
    """Return what a JSON body says. Raises InvalidRequestError naming the first wrong field."""
    try:
        return adapter.validate_json(body)
    except ValidationError as error:
        refusal = invalid_request(error.errors(include_url=False, include_input=False), "body")
    raise refusal  # not from inside: the error behind it would hold the body


def invalid_request(errors: Sequence[Mapping[str, Any]], whole: str) -> InvalidRequestError:
    """Return the refusal for what pydantic found; `whole` names what has no field."""
    first = errors[0]
    place = ""
    for step in first["loc"]:
        place += f"[{step}]" if isinstance(step, int) else f".{step}" if place else str(step)
    return InvalidRequestError(
        _WORDS.get(first["type"]) or first["msg"], field=place[:200] or whole
    )


_WORDS = {
    "extra_forbidden": "there is no such field",
    "missing": "is required",
    "model_type": "must be a JSON object",
    "dict_type": "must be an object",
    "list_type": "must be a list",
    "string_type": "must be a string",
    "int_type": "must be an integer",
    "bool_type": "must be true or false",
}
