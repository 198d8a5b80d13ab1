"""Errors of the HTTP service as RFC 9457 problems: one table from error class to status.

::

    {"type": "urn:tierdex:problem:invalid-request", "title": "...", "status": 400,
     "detail": "...", "field": "entries[17].offset", "request_id": "..."}

`InvalidRequestError` is always 400; 422 is never answered. A class without a row takes the row of
its nearest parent; a test demands a row for each class of `tierdex.errors`. The `detail` of an
internal error stays in the process. Paths of this machine are told to callers with scope `admin` alone.

Depends on errors and starlette. The client turns `type` back into the class (`error_class`).
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
from starlette.responses import Response

from tierdex import errors

if TYPE_CHECKING:
    from collections.abc import Mapping


PROBLEM_JSON = "application/problem+json"
TYPE_PREFIX = "urn:tierdex:problem:"


class ProblemKind(NamedTuple):
    """A row of the table: `name` is the end of `type`, `retry` asks for a Retry-After header."""

    status: int
    name: str
    title: str
    retry: bool = False


KINDS: dict[type[BaseException], ProblemKind] = {
    errors.TierdexError: ProblemKind(500, "internal", "something went wrong on our side"),
    errors.InvalidRequestError: ProblemKind(400, "invalid-request", "the request is not valid"),
    errors.CursorExpiredError: ProblemKind(410, "cursor-expired", "the cursor has expired"),
    errors.RequestTooLargeError: ProblemKind(413, "request-too-large", "the request is too large"),
    errors.NotFoundError: ProblemKind(404, "not-found", "there is no such thing"),
    errors.AuthenticationError: ProblemKind(401, "authentication", "a valid key is needed"),
    errors.PermissionDeniedError: ProblemKind(
        403, "permission-denied", "the caller's rights do not cover this"
    ),
    errors.UnavailableError: ProblemKind(503, "unavailable", "try again later", retry=True),
    errors.RateLimitedError: ProblemKind(429, "rate-limited", "too many requests", retry=True),
    errors.BacklogFullError: ProblemKind(
        507, "backlog-full", "there is no room for more entries", retry=True
    ),
    errors.StoreUnavailableError: ProblemKind(
        503, "store-unavailable", "the object store cannot be reached", retry=True
    ),
    errors.StoreTimeoutError: ProblemKind(
        503, "store-timeout", "the object store did not answer in time", retry=True
    ),
    errors.IncompleteAnswerError: ProblemKind(
        503, "incomplete-answer", "not every file could be asked", retry=True
    ),
    errors.StoreRefusedError: ProblemKind(
        502, "store-refused", "the object store refuses the service"
    ),
    errors.OwnershipError: ProblemKind(409, "ownership", "another owner has the index"),
    errors.FolderInUseError: ProblemKind(
        503, "folder-in-use", "another process writes in the data folder", retry=True
    ),
    errors.LossyTakeoverError: ProblemKind(409, "lossy-takeover", "the log was not handed over"),
    errors.NodeInUseError: ProblemKind(409, "node-in-use", "another owner of the node is alive"),
    errors.FencedError: ProblemKind(503, "fenced", "another owner took this node over", retry=True),
    errors.ReadOnlyError: ProblemKind(409, "read-only", "this index is read-only"),
    errors.ForkedError: ProblemKind(409, "forked", "this index belongs to the parent process"),
    errors.ConflictError: ProblemKind(409, "conflict", "another writer was first"),
    errors.AlreadyExistsError: ProblemKind(409, "already-exists", "the object exists already"),
    errors.FloorError: ProblemKind(
        409, "floor", "an object was made before the collection's floor"
    ),
    errors.OffsetMismatchError: ProblemKind(
        409, "offset-mismatch", "another offset is next in the queue"
    ),
    errors.OffsetsReusedError: ProblemKind(
        409, "offsets-reused", "a crash took offsets back that were read"
    ),
    errors.CorruptFileError: ProblemKind(500, "corrupt-file", "an index file is damaged"),
    errors.LostManifestError: ProblemKind(
        500, "lost-manifest", "the store has lost a part of a node's manifest"
    ),
    errors.UnsupportedFormatError: ProblemKind(
        500, "unsupported-format", "an index file has a format that is not known here"
    ),
    errors.ClosedError: ProblemKind(503, "closed", "the service is stopping", retry=True),
    errors.IllegalTransitionError: ProblemKind(
        500, "illegal-transition", "something went wrong on our side"
    ),
}

# Refusals of HTTP itself, without an error class of ours.
HTTP_KINDS: dict[int, ProblemKind] = {
    400: KINDS[errors.InvalidRequestError],
    404: KINDS[errors.NotFoundError],
    405: ProblemKind(405, "method-not-allowed", "the method is not allowed here"),
    408: ProblemKind(408, "request-timeout", "the request's body did not arrive in time"),
    415: ProblemKind(415, "unsupported-media-type", "the body has a form that is not read here"),
    431: ProblemKind(431, "head-too-large", "the request's head is too large"),
    499: ProblemKind(499, "caller-left", "the caller went away before its request was whole"),
    421: ProblemKind(421, "misdirected-request", "the Host header names another server"),
}


class HttpRefusalError(Exception):
    """A refusal without a class of ours: method, media type, host, slow body."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.headers = dict(headers or {})


def kind_of(error: BaseException) -> ProblemKind:
    """Return the row for an error: its own, else its nearest parent's, else `internal`."""
    if isinstance(error, HttpRefusalError):
        return HTTP_KINDS[error.status]
    for parent in type(error).__mro__:
        if parent in KINDS:
            return KINDS[parent]
    return KINDS[errors.TierdexError]


def problem_document(
    error: BaseException, request_id: str, *, tells_places: bool = False
) -> dict[str, Any]:
    """Return the members of the problem; an internal error tells nothing but that it happened."""
    kind = kind_of(error)
    document: dict[str, Any] = {
        "type": TYPE_PREFIX + kind.name,
        "title": kind.title,
        "status": kind.status,
        "detail": _detail(error, kind, tells_places=tells_places),
        "request_id": request_id,
    }
    if isinstance(error, errors.InvalidRequestError) and error.field:
        document["field"] = error.field
    if isinstance(error, errors.IncompleteAnswerError):
        document["missing"] = [_missing(item) for item in error.missing]
    if isinstance(error, errors.OffsetMismatchError):
        document |= {"next_offset": error.next_offset, "end_offsets": error.end_offsets}
    if isinstance(error, errors.OffsetsReusedError):
        document |= {"offset": error.offset, "generation": error.generation}
    if kind.retry:
        document["retry_after_s"] = getattr(error, "retry_after_s", 1.0)
    return document


def problem_response(
    error: BaseException, request_id: str, *, tells_places: bool = False
) -> Response:
    """Return the response for an error, headers included."""
    document = problem_document(error, request_id, tells_places=tells_places)
    headers = dict(getattr(error, "headers", {}))
    if "retry_after_s" in document:
        headers["retry-after"] = str(max(1, ceil(document["retry_after_s"])))
    if document["status"] == 401:
        headers["www-authenticate"] = 'Bearer realm="tierdex"'
    return Response(
        orjson.dumps(document),
        status_code=document["status"],
        headers=headers,
        media_type=PROBLEM_JSON,
    )


def forget_frames(error: BaseException) -> None:
    """Release the frames of an answered error and of the errors behind it.

    The frames hold the request's body, and the future of a thread's work makes a cycle with them:
    the body would stay in memory until a garbage collection, which counts objects and not bytes.
    """
    chain: list[BaseException | None] = [error]
    while chain:
        link = chain.pop()
        if link is not None:
            chain += (link.__cause__, link.__context__)
            link.__traceback__ = link.__cause__ = link.__context__ = None


def _detail(error: BaseException, kind: ProblemKind, *, tells_places: bool) -> str:
    if isinstance(error, errors.InvalidRequestError):
        return error.detail
    if kind.status == 500:  # only the log has it, under the request id
        return "the service's log has the cause, under this request_id"
    return str(error) if tells_places else errors.without_places(str(error))


def _missing(item: object) -> dict[str, str]:
    if isinstance(item, dict):
        file, reason = item.get("file"), item.get("reason")
    else:
        file, reason = getattr(item, "file", item), getattr(item, "reason", "")
    return {"file": errors.without_places(str(file)), "reason": errors.without_places(str(reason))}
