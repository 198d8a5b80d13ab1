"""JSON bodies: read after the caller's scope is checked, validated by a model.

FastAPI reads and parses a declared body before any dependency runs, so that a caller without a key
could make the service parse 16 MiB. A dependency of our own, behind the one for the scope, reads
the body instead; `request_body` adds the body's model to openapi.yaml. Bodies of other media types
are raw.

Depends on fastapi, pydantic, models, problems and validation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import Depends
from pydantic import BaseModel, TypeAdapter
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotation

from tierdex.app.http.problems import HttpRefusalError
from tierdex.app.http.schemas.models import Nothing
from tierdex.app.http.schemas.validation import validate_json
from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

JSON = "application/json"
_PLAIN = "identity"


async def read_body(request: Request, *accepted: str) -> tuple[str, bytes]:
    """Return media type and bytes of a body. Raises HttpRefusalError (415), and what the limits raise."""
    kind = media_type(request, *accepted)
    if content_encoding(request) != _PLAIN:
        raise HttpRefusalError(
            415, "compressed bodies are not accepted here", {"accept-encoding": _PLAIN}
        )
    return kind, await request.body()


def media_type(request: Request, *accepted: str) -> str:
    """Return the media type of a body. Raises HttpRefusalError (415) for one that is not accepted."""
    kind = request.headers.get("content-type", "").split(";", 1)[0].strip().lower()
    if kind not in accepted:
        raise HttpRefusalError(
            415,
            f"{kind or 'a body without a media type'} is not accepted here: send {', '.join(accepted)}",
            {"accept": ", ".join(accepted)},
        )
    return kind


def content_encoding(request: Request) -> str:
    """Return how a body is compressed: `identity` where it is not."""
    return request.headers.get("content-encoding", _PLAIN).strip().lower()


def json_body(model: type[BaseModel]) -> Any:
    """Return a dependency that reads a JSON body of this model."""
    adapter: TypeAdapter[Any] = TypeAdapter(model)

    async def read(request: Request) -> Any:
        _, body = await read_body(request, JSON)
        return validate_json(adapter, body)

    return Depends(read)


async def _read_nothing(request: Request) -> None:
    """Read an empty body or `{}`. Its media type is one that no HTML form can send."""
    _, body = await read_body(request, JSON)
    if body.strip() not in (b"", b"{}"):
        raise InvalidRequestError("this request takes no body", field="body")


NO_BODY: Any = Depends(_read_nothing)


def request_body(
    model: type[BaseModel],
    other: Mapping[str, dict[str, Any]] | None = None,
    *,
    required: bool = True,
) -> dict[str, Any]:
    """Return the `openapi_extra` of a route with a JSON body; `other` has more media types' schemas."""
    content: dict[str, Any] = {JSON: {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}}
    content |= {kind: {"schema": schema} for kind, schema in (other or {}).items()}
    return {"requestBody": {"required": required, "content": content}}


NOTHING = request_body(Nothing, required=False)
