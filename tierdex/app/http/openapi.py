"""The OpenAPI document: FastAPI's own, with our problems and the models of raw bodies added.

`python -m tools.generate_docs openapi` writes it to openapi.yaml.

Depends on fastapi, admin_models, key_models, message_models, models and problems.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from tierdex import __version__
from tierdex.app.http.problems import PROBLEM_JSON
from tierdex.app.http.schemas.admin_models import ExpireOrder, ForgetOrder, ResumeOrder
from tierdex.app.http.schemas.key_models import Lookups
from tierdex.app.http.schemas.message_models import MessagesToAppend
from tierdex.app.http.schemas.models import EntriesToPut, Nothing, Problem

if TYPE_CHECKING:
    from fastapi import FastAPI
    from fastapi.routing import APIRoute
    from pydantic import BaseModel

_RAW_BODIES: tuple[type[BaseModel], ...] = (  # which routes read by themselves
    EntriesToPut, Lookups, MessagesToAppend, ExpireOrder, ForgetOrder, ResumeOrder, Nothing,
)  # fmt: skip
DESCRIPTION = (
    "Finds any message of a log by its key or message ID. Times are int64 milliseconds since the "
    "epoch, ranges inclusive; integers are exact 64-bit numbers. Every error is a problem "
    "(RFC 9457). HEAD is answered wherever GET is. The scopes message and write each include read, admin "
    "includes all; each may be limited to topics. While a service has no keys it serves its own machine "
    "only, without a key."
)
_MEANINGS = {
    304: "unchanged since the `ETag` that `If-None-Match` names",
    400: "a value, name or combination is wrong: `field` names it, nothing was applied",
    401: "no key, or an unknown one",
    403: "the caller's rights do not cover this or its topic, or a page of another site asks without a key",
    404: "there is no such file, or the service has no message log, or shows no messages",
    405: "the method is not allowed here",
    408: "the body did not arrive in time",
    409: "the index is read-only, another owner has it, or another offset is next",
    410: "the cursor has expired: query again without it",
    413: "the body or the batch is too large",
    415: "the body's media type or encoding is not accepted here",
    421: "the Host header names another server",
    429: "the caller asks more often than it may: go on after Retry-After",
    500: "a fault of ours, or a damaged file",
    502: "the object store refuses the service",
    503: "not now: nothing was applied, try again after Retry-After",
    507: "no room for more entries: try again when the backlog has drained",
}
_REFERENCE = "#/components/schemas/{model}"
_PROBLEM = {PROBLEM_JSON: {"schema": {"$ref": _REFERENCE.format(model=Problem.__name__)}}}


TAGS = {
    "entries": "Put entries, look keys up, topics and watermarks.",
    "messages": "The message log: append, read queues, offsets.",
    "admin": "Files, nodes, compaction, expiry.",
    "service": "Health, metrics, this description.",
}


def operation_id(route: APIRoute) -> str:
    """Return the route's name in generated clients."""
    return route.name


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of a route with a scope: the common refusals and `statuses`."""
    return _described(400, 401, 403, 405, 421, 429, 500, 503, *statuses)


def open_refusals() -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of a route without a scope."""
    return _described(400, 405, 421, 503)


def _described(*statuses: int) -> dict[int | str, dict[str, Any]]:
    problem: dict[str, Any] = {"content": _PROBLEM}
    return {
        s: {"description": _MEANINGS[s], **(problem if s >= 400 else {})} for s in sorted(statuses)
    }


def describe_service(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of all routes of the application."""
    document = get_openapi(
        title="Tierdex HTTP API",  # a generator names its package by it: `tierdex-client` is ours
        version=__version__,
        description=DESCRIPTION,
        routes=app.routes,
        tags=[{"name": name, "description": meaning} for name, meaning in TAGS.items()],
    )
    schemas = document["components"]["schemas"]
    for operations in document["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)  # never answered: every refusal is a problem
            scopes = [name for known in operation.get("security", ()) for name in known["key"]]
            operation["description"] += "".join(f" Scope: {name}." for name in scopes)
            for parameter in operation.get("parameters", ()):
                parameter["schema"] = _without_null(parameter["schema"])
    for name in ("HTTPValidationError", "ValidationError"):  # FastAPI's own form of a 422
        schemas.pop(name, None)
    _, found = models_json_schema(
        [
            *((model, "validation") for model in _RAW_BODIES),
            (Problem, "serialization"),
        ],
        ref_template=_REFERENCE,
    )
    schemas |= found["$defs"]
    document["components"]["schemas"] = dict(sorted(schemas.items()))
    return document


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a parameter's schema without null: a parameter is given, or it is not."""
    options = [option for option in schema.get("anyOf", ()) if option != {"type": "null"}]
    if len(options) == 1:
        rest = {name: value for name, value in schema.items() if name != "anyOf"}
        return {**options[0], **rest}
    return {**schema, "anyOf": options} if options else schema
