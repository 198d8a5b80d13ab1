"""A service's problem (RFC 9457) as the error that the embedded `Index` would raise.

The end of `type` is the class's name without `Error`, in lower case with dashes, so that a class
added to `tierdex.errors` needs no row here.

Depends on errors and orjson.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import orjson

from tierdex import errors

if TYPE_CHECKING:
    from collections.abc import Mapping

TYPE_PREFIX = "urn:tierdex:problem:"


def kind_name(error_class: type[BaseException]) -> str:
    """Return the name of a class's problem: CursorExpiredError is `cursor-expired`."""
    words = re.findall("[A-Z][a-z]*", error_class.__name__.removesuffix("Error"))
    return "-".join(words).lower()


_CLASSES: dict[str, type[BaseException]] = {
    kind_name(getattr(errors, name)): getattr(errors, name) for name in errors.__all__
}


def error_of(status: int, headers: Mapping[str, str], body: bytes) -> errors.TierdexError:
    """Return the error to raise for a response whose status is not 200."""
    problem = _problem(headers, body)
    kind = str(problem.get("type", "")).removeprefix(TYPE_PREFIX)
    detail = str(
        problem.get("detail") or f"answered {status}, not by the service: is the address right?"
    )
    if request_id := problem.get("request_id"):
        detail = f"{detail} (request {request_id})" if status >= 500 else detail
    error_class = _CLASSES.get(kind) or _class_of_status(status)
    if issubclass(error_class, errors.InvalidRequestError):
        return error_class(detail, field=problem.get("field"))
    retry_after_s = _retry_after(problem, headers)
    if issubclass(error_class, errors.IncompleteAnswerError):
        missing = [(item["file"], item["reason"]) for item in problem.get("missing", [])]
        return error_class(detail, missing=missing, retry_after_s=retry_after_s)
    if issubclass(error_class, errors.UnavailableError):
        return error_class(detail, retry_after_s=retry_after_s)
    if issubclass(error_class, errors.CorruptFileError):
        return error_class("the service", detail)
    if issubclass(error_class, errors.OffsetMismatchError):
        next_offset, ends = problem.get("next_offset", 0), problem.get("end_offsets", {})
        return error_class(detail, next_offset=next_offset, end_offsets=ends)
    if issubclass(error_class, errors.OffsetsReusedError):
        offset, generation = problem.get("offset", 0), problem.get("generation", 0)
        return error_class(detail, offset=offset, generation=generation)
    if issubclass(error_class, errors.TierdexError):
        return error_class(detail)
    return errors.TierdexError(detail)


def _problem(headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    if "json" not in headers.get("content-type", ""):
        return {}  # a proxy's page, say
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return document if isinstance(document, dict) else {}


def _class_of_status(status: int) -> type[errors.TierdexError]:
    by_status: dict[int, type[errors.TierdexError]] = {
        401: errors.AuthenticationError,
        403: errors.PermissionDeniedError,
        404: errors.NotFoundError,
        413: errors.RequestTooLargeError,
        429: errors.RateLimitedError,  # of a proxy, too
        500: errors.TierdexError,
    }
    default = errors.UnavailableError if status >= 500 else errors.InvalidRequestError
    return by_status.get(status, default)


def _retry_after(problem: Mapping[str, Any], headers: Mapping[str, str]) -> float:
    given = problem.get("retry_after_s", headers.get("retry-after", "1"))
    try:
        return max(0.0, float(given))
    except (TypeError, ValueError):
        return 1.0  # a date, from a proxy
