"""What openapi.yaml says about each route: parameters, bodies, statuses. Data only.

Kept apart from the handlers so that a route reads as code and its description as a table. Depends
on schemas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tierdex.app import schemas
from tierdex.app.arrow_stream import ARROW_STREAM
from tierdex.app.problems import PROBLEM_JSON
from tierdex.app.times import MAX_INT64, MIN_INT64, MS_PATTERN, RFC3339_PATTERN

if TYPE_CHECKING:
    from pydantic import BaseModel

_MEANINGS = {
    400: "a value, name or combination is wrong: `field` names it, nothing was applied",
    401: "no key, or one that nobody knows",
    403: "the key's scope does not cover this",
    404: "there is no such file",
    405: "the method is not allowed here",
    408: "the body did not arrive in time",
    409: "the index is read-only, or somebody else owns it",
    410: "the cursor has expired: query again without it",
    413: "the body or the batch is too large",
    415: "the body's media type or encoding is not read here",
    421: "the Host header names another server",
    500: "a fault of ours, or a damaged file",
    502: "the object store refuses the service",
    503: "not now: nothing was applied, try again after Retry-After",
    507: "no room for more entries: try again when the backlog has drained",
}
_ALWAYS = (400, 401, 403, 405, 421, 500, 503)
_WITH_BODY = (408, 413, 415)


def _reference(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def _problem(status: int) -> dict[str, Any]:
    content = {PROBLEM_JSON: {"schema": _reference(schemas.Problem)}}
    return {"description": _MEANINGS[status], "content": content}


def _operation(
    answer: dict[str, Any],
    *,
    statuses: tuple[int, ...] = (),
    parameters: list[dict[str, Any]] | None = None,
    body: dict[str, Any] | None = None,
    takes_body: bool = False,
) -> dict[str, Any]:
    """Return an operation's members: `answer` is the content of the 200 response."""
    if body is not None or takes_body:
        statuses += _WITH_BODY
    responses: dict[str, Any] = {"200": {"description": "the answer", "content": answer}}
    responses |= {str(s): _problem(s) for s in sorted({*_ALWAYS, *statuses})}
    operation: dict[str, Any] = {"responses": responses}
    if parameters:
        operation["parameters"] = parameters
    if body is not None:
        operation["requestBody"] = {"required": True, "content": body}
    return operation


def _json(model: type[BaseModel]) -> dict[str, Any]:
    return {"application/json": {"schema": _reference(model)}}


def _in_query(
    name: str, schema: dict[str, Any], meaning: str, *, required: bool = False
) -> dict[str, Any]:
    return {
        "name": name, "in": "query", "required": required, "schema": schema, "description": meaning,
    }  # fmt: skip


_TOPIC = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": schemas.TOPIC_PATTERN}
_KEY = {"type": "string", "minLength": 1, "maxLength": 4096}
_TIME = {
    "anyOf": [
        {"type": "integer", "format": "int64", "minimum": MIN_INT64, "maximum": MAX_INT64},
        {"type": "string", "pattern": RFC3339_PATTERN},
        {"type": "string", "pattern": MS_PATTERN},
    ]
}
_DURABILITY = {"type": "string", "enum": ["received", "os", "disk", "remote"], "default": "os"}
_ON_ERROR = _in_query(
    "on_error",
    {"type": "string", "enum": ["partial", "fail"], "default": "partial"},
    "what a file that cannot be asked does to the answer: `complete: false`, or 503",
)
_ARROW_BODY = {ARROW_STREAM: {"schema": {"type": "string", "format": "binary"}}}
_ARROW_ANSWERS = {
    ARROW_STREAM: {
        "schema": {
            "type": "string",
            "format": "binary",
            "description": "a table of entries with the column `lookup`; with `on_error=partial` the "
            "schema's metadata `missing` is a JSON array of {file, reason, lookups} for answers that "
            "are incomplete, `lookups` null for all",
        }
    }
}
_FILE_ID = {
    "name": "file_id",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "pattern": "^[A-Za-z0-9._-]+$"},
    "description": "as `file_id` in answers",
}

ENTRIES_POST = _operation(
    _json(schemas.PutAnswer),
    statuses=(409, 502, 507),
    parameters=[
        _in_query("durability", _DURABILITY, "the level to reach, for bodies that do not say it")
    ],
    body={
        **_json(schemas.EntriesToPut),
        "application/x-ndjson": {"schema": {"type": "string", "description": "an entry a line"}},
        **_ARROW_BODY,
    },
)
ENTRIES_GET = _operation(
    _json(schemas.Answer),
    statuses=(410,),
    parameters=[
        _in_query("topic", _TOPIC, "topic of `key`; narrows `message_id`"),
        _in_query("key", _KEY, "the key to look up; or `message_id`"),
        _in_query("message_id", _KEY, "the message ID to look up; or `key`"),
        _in_query("begin", _TIME, "earliest time, inclusive: milliseconds or RFC 3339"),
        _in_query("end", _TIME, "latest time, inclusive"),
        _in_query(
            "max_count",
            {"type": "integer", "minimum": 1, "maximum": 10_000, "default": 64},
            "most entries to answer",
        ),
        _in_query("cursor", {"type": "string"}, "`next_cursor` of the answer before, unchanged"),
        _in_query("explain", {"type": "boolean", "default": False}, "tell the plan that ran"),
        _ON_ERROR,
    ],
)
LOOKUPS_POST = _operation(
    {**_json(schemas.Answers), **_ARROW_ANSWERS},
    parameters=[
        _ON_ERROR,
        _in_query(
            "max_count",
            {"type": "integer", "minimum": 1, "maximum": 10_000},
            "most entries a lookup that does not say it (JSON: 64, Arrow: 1)",
        ),
    ],
    body={**_json(schemas.Lookups), **_ARROW_BODY},
)
TOPICS_GET = _operation(_json(schemas.Topics))
WATERMARK_GET = _operation(
    _json(schemas.Watermark),
    parameters=[
        _in_query("topic", _TOPIC, "topic", required=True),
        _in_query(
            "queue_id",
            {"type": "integer", "format": "int32", "minimum": 0, "maximum": (1 << 31) - 1},
            "queue",
            required=True,
        ),
    ],
)
FILES_GET = _operation(_json(schemas.Files))
NODES_GET = _operation(_json(schemas.Nodes))
FILE_GET = _operation(_json(schemas.File), statuses=(404,), parameters=[_FILE_ID])
FILE_VERIFY = _operation(
    _json(schemas.Verified), statuses=(404,), parameters=[_FILE_ID], takes_body=True
)
COMPACTION_GET = _operation(_json(schemas.Compaction))
COMPACTION_RUN = _operation(_json(schemas.Compaction), statuses=(409, 502, 507), takes_body=True)
ROLL = _operation(_json(schemas.Rolled), statuses=(409, 507), takes_body=True)
REFRESH = _operation(_json(schemas.Nothing), statuses=(502,), takes_body=True)
EXPIRE = _operation(_json(schemas.Expired), statuses=(409, 502), body=_json(schemas.ExpireOrder))


def _open(content: dict[str, Any], statuses: tuple[int, ...]) -> dict[str, Any]:
    """Return an operation that anybody may call."""
    responses = {"200": {"description": "the answer", "content": content}}
    responses |= {str(status): _problem(status) for status in statuses}
    return {"responses": responses}


HEALTHZ = _open(_json(schemas.Status), (405, 421, 503))
READYZ = _open(_json(schemas.Status), (405, 421, 503))
VERSION = _open(_json(schemas.Version), (405, 421, 503))
METRICS = _operation({"text/plain": {"schema": {"type": "string"}}})
OPENAPI = _operation({"application/json": {"schema": {"type": "object"}}})
DOCS = _operation({"text/html": {"schema": {"type": "string"}}})
