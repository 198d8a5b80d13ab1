"""The components of one HTTP service, the record of a request, and how a route calls index and log.

Depends on starlette, xxhash, documents, errors, app.audit and app.rights.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import orjson
from anyio import CapacityLimiter
from starlette.responses import Response
from xxhash import xxh3_128_hexdigest

from tierdex.app.audit import AuditNotes, names_of
from tierdex.app.documents import json_default
from tierdex.app.rights import ANONYMOUS, Caller, Grant, Rights, Scope
from tierdex.errors import AuthenticationError, NotFoundError, PermissionDeniedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from starlette.requests import Request

    from tierdex.app.audit import AuditTrail
    from tierdex.app.http.arrivals import Arrivals
    from tierdex.app.http.metrics import Metrics
    from tierdex.app.http.readiness import Readiness
    from tierdex.app.http.server_settings import ServerSettings
    from tierdex.app.http.spans import Spans
    from tierdex.app.keys import KeyFile
    from tierdex.app.logs import JsonLogger
    from tierdex.app.rate_limits import RateLimits
    from tierdex.app.tokens import Tokens
    from tierdex.clock import Clock
    from tierdex.ids import IdSource
    from tierdex.index_service.health import NotReady
    from tierdex.index_service.index import Index
    from tierdex.log_service.message_log import MessageLog
    from tierdex.resolving.message_fetcher import MessageFetcher
    from tierdex.settings import Settings

_QUICK_THREADS = 40
_SLOW_THREADS = 16
_ISSUER_THREADS = (
    8  # that a dead issuer of tokens can keep waiting: callers with keys have the others
)


@dataclass(slots=True)
class Service:
    """The components of one service. `limits` are the settings of the index behind it."""

    own_index: Index | None  # None: that of the log
    settings: ServerSettings
    limits: Settings
    keys: KeyFile | None
    metrics: Metrics
    readiness: Readiness
    logger: JsonLogger
    clock: Clock
    ids: IdSource
    log: MessageLog | None = None
    messages: MessageFetcher | None = None
    arrivals: Arrivals | None = None  # of the log: there is one with it
    rate_limits: RateLimits | None = None
    audit: AuditTrail | None = None
    tokens: Tokens | None = None
    spans: Spans | None = None
    known_topics: frozenset[str] = frozenset()  # as they were last listed: see hints.py
    # Calls that may wait long for the store have threads of their own, so that they never delay a
    # lookup or a put.
    quick: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(_QUICK_THREADS))
    slow: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(_SLOW_THREADS))
    issuer: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(_ISSUER_THREADS))

    @property
    def anonymous_scope(self) -> Scope:
        """The scope without a key: as set; else everything while there are no keys."""
        told = self.settings.allow_anonymous
        if told is not None:
            return Scope[told.upper()]
        return Scope.NONE if self.has_keys else Scope.ADMIN

    @property
    def anonymous(self) -> Caller:
        """A caller without a key."""
        scope = self.anonymous_scope
        return (
            ANONYMOUS if scope is Scope.NONE else ANONYMOUS._replace(rights=Rights([Grant(scope)]))
        )

    @property
    def has_keys(self) -> bool:
        """Whether callers need keys, or tokens: true from the first key on, until the service restarts."""
        return self.tokens is not None or (self.keys is not None and self.keys.had_keys)

    @property
    def index(self) -> Index:
        """The index. Beside a log it may lack what was appended last, and may be opened anew."""
        return self.message_log.index if self.own_index is None else self.own_index

    @property
    def index_to_query(self) -> Index:
        """The index with everything that the log has written. Raises UnavailableError."""
        if self.own_index is None:
            self.message_log.catch_up()
        return self.index

    @property
    def owner(self) -> Index | MessageLog:
        """What writes the data folder: its files are rolled and compacted by this one."""
        return self.message_log if self.own_index is None else self.own_index

    def health(self) -> list[NotReady]:
        """Return why index or log are not ready: no request should be sent here."""
        of_log = [] if self.log is None else self.log.health()  # with those of its own index
        return of_log if self.own_index is None else self.own_index.health() + of_log

    @property
    def message_log(self) -> MessageLog:
        """The message log. Raises NotFoundError when the service has none."""
        if self.log is None:
            raise NotFoundError(
                "this service has no message log: put and query locations at /v1/entries, or start it with "
                "`--set log=true`"
            )
        return self.log

    @property
    def message_fetcher(self) -> MessageFetcher:
        """What fetches the messages of entries. Raises NotFoundError when the service has none."""
        if self.messages is None:
            raise NotFoundError("this service shows no messages")
        return self.messages

    async def caller_of_token(self, token: str) -> Caller:
        """Return who calls with a token. Raises AuthenticationError, UnavailableError."""
        if self.tokens is None:
            raise AuthenticationError("no such key: send `Authorization: Bearer <key>`")
        return await anyio.to_thread.run_sync(
            self.tokens.caller_of, token, limiter=self.issuer, abandon_on_cancel=True
        )

    async def in_thread(self, call: Callable[..., Any], *arguments: Any, slow: bool = False) -> Any:
        """Run a call of the index off the event loop.

        A slow call is abandoned when its request is cancelled, so that a stop does not wait for the
        store. No caller was told that it succeeded.
        """
        limiter = self.slow if slow else self.quick
        return await anyio.to_thread.run_sync(
            call, *arguments, limiter=limiter, abandon_on_cancel=slow
        )


@dataclass(slots=True)
class RequestRecord:
    """A request's service and id, and what its log line tells. Middleware keeps it in the ASGI scope."""

    service: Service
    request_id: str
    status: int = 0  # 0: no answer has begun
    bytes: int = 0  # of the answer's body
    caller: Caller = ANONYMOUS
    trace_id: str | None = None  # of the caller's `traceparent`
    problem: str | None = None
    notes: AuditNotes | None = None  # of an audited request

    def is_limited(self, scope: Scope) -> bool:
        """Return whether the caller may do this in some topics only, or nowhere."""
        return not self.caller.rights.everywhere(scope)

    def may(self, scope: Scope, topic: str) -> bool:
        """Return whether the caller may do this in a topic."""
        return self.caller.rights.in_topic(scope, topic)

    def reads_topics(self, scope: Scope) -> bool:
        """Return whether it matters which topics a body names: for the rights, or for the audit."""
        return self.notes is not None or self.is_limited(scope)

    def need(self, scope: Scope, topics: Iterable[str | None]) -> None:
        """Raise PermissionDeniedError unless the caller may do this in each topic; None: in every topic."""
        topics = set(topics)
        if self.notes is not None:
            self.notes.topics |= topics
        rights, name = self.caller.rights, scope.name.lower()
        for topic in topics:
            if topic is None and not rights.everywhere(scope):
                raise PermissionDeniedError(
                    f"this concerns every topic, and the caller's rights ({rights}) do not: name a "
                    f"`topic`, or use a key of scope {name}"
                )
            if topic is not None and not rights.in_topic(scope, topic):
                raise PermissionDeniedError(
                    f"the caller's rights ({rights}) do not cover the topic {topic!r}: this needs "
                    f"{name}:{topic}"
                )

    def need_unmasked(self, topic: str) -> None:
        """Raise PermissionDeniedError where bodies of the topic are masked: the route gives them whole."""
        messages = self.service.messages
        if messages is not None and messages.has_masks(topic):
            self.need(Scope.ADMIN, (topic,))

    def note_names(self, keys: Iterable[Any] = (), message_ids: Iterable[Any] = ()) -> None:
        """Keep what is looked for, for the audit; None among them is left out."""
        if self.notes is not None:
            self.notes.keys += names_of(keys)
            self.notes.message_ids += names_of(message_ids)


def record_of(request: Request) -> RequestRecord:
    """Return the record of a request."""
    record: RequestRecord = request.scope["tierdex"]
    return record


def service_of(request: Request) -> Service:
    """Return the service of a request."""
    return record_of(request).service


def header_of(scope: Mapping[str, Any], name: bytes) -> str | None:
    """Return the first value of a header, None when absent; faster than to parse all headers."""
    for sent, value in scope["headers"]:
        if sent == name:
            return str(value, "latin-1")
    return None


def tagged_response(request: Request, document: Any) -> Response:
    """Return a document as JSON with an `ETag` of its bytes: 304 for a caller that has these already."""
    response = json_response(document)
    tag = f'W/"{xxh3_128_hexdigest(response.body)}"'  # weak: a compressed answer has it too
    headers = {"etag": tag, "cache-control": "private, no-cache"}
    known = request.headers.get("if-none-match", "")
    if tag in (each.strip() for each in known.split(",")) or known.strip() == "*":
        return Response(status_code=304, headers=headers)
    response.headers.update(headers)
    return response


def json_response(document: Any) -> Response:
    """Return a document as JSON, numpy's numbers and enums included."""
    body = orjson.dumps(document, default=json_default, option=orjson.OPT_NON_STR_KEYS)
    return Response(body, media_type="application/json")
