"""The right that a route needs: a dependency declared with the route and shown in openapi.yaml.

It runs before the route's body is read. A scope may be limited to topics, so a route says which topics it
concerns; one that says nothing needs the scope for every topic, so that a forgotten word opens nothing:

* a parameter `topic` in its query: that topic, and every topic when it is left out;
* `in_route=True`: the route names the topics to `RequestRecord.need` (of a body), or leaves out what the
  caller may not read (of a list). tests/security/test_topic_rights.py walks all of them.

Depends on fastapi, pydantic, parameters, service, errors, app.audit, app.keys and app.rights.
"""

# No postponed annotations here: older FastAPI cannot resolve those of an object that is called.
from collections.abc import Collection
from typing import Any

from fastapi import Security
from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase
from pydantic import BaseModel
from starlette.requests import Request

from tierdex.app.audit import AuditNotes
from tierdex.app.http.schemas.parameters import refuse_other_parameters
from tierdex.app.http.service import RequestRecord, Service, header_of, record_of
from tierdex.app.keys import KEY_PREFIX
from tierdex.app.rights import Caller, Scope
from tierdex.errors import AuthenticationError, PermissionDeniedError

_NO_KEY = "send `Authorization: Bearer <key>`"


class RequireScope(SecurityBase):
    """Admits a request whose caller has `scope`: in every topic, in that of the query, or in any.

    It refuses parameters other than `parameters`, which FastAPI would ignore.
    """

    def __init__(
        self, scope: Scope, parameters: Collection[str] | None, *, in_route: bool = False
    ) -> None:
        self.scope = scope
        self.parameters = parameters  # None: any, none of them read
        self.in_route = in_route
        self.scheme_name = "key"
        self.model = HTTPBearer(
            description="a key of `tierdex keys create --scope read|message|write|admin`, for all topics, or "
            "for those of a pattern (`read:orders.*`)"
        )

    async def __call__(self, request: Request) -> None:
        """Raise AuthenticationError without a valid key, PermissionDeniedError for too small a right.

        Raise RateLimitedError; InvalidRequestError naming a parameter that the route does not have, or that
        is repeated.
        """
        record = record_of(request)
        service = record.service
        record.caller = await _identified(service, header_of(request.scope, b"authorization"))
        if service.audit is not None:
            record.notes = AuditNotes()
        if service.rate_limits is not None:
            service.rate_limits.take(record.caller)
        need_scope(record, self.scope)
        if self.parameters is not None:
            refuse_other_parameters(request, self.parameters)
        asked = request.query_params
        if record.notes is not None:  # first: the audit tells of what is refused, too
            record.note_names((asked.get("key"),), (asked.get("message_id"),))
        if not self.in_route:
            # Only where the route reads it: elsewhere a `topic` in the query narrows nothing.
            names_topic = self.parameters is not None and "topic" in self.parameters
            record.need(self.scope, ((asked.get("topic") or None) if names_topic else None,))


async def _identified(service: Service, header: str | None) -> Caller:
    """Return the caller. Raises AuthenticationError."""
    if header is None:
        if service.anonymous_scope is Scope.NONE:
            raise AuthenticationError(_NO_KEY)
        return service.anonymous
    kind, _, given = header.partition(" ")
    key = given.strip()
    if kind.lower() != "bearer" or (service.keys is None and service.tokens is None):
        raise AuthenticationError(f"no such key: {_NO_KEY}")
    if service.keys is None or (service.tokens is not None and not key.startswith(KEY_PREFIX)):
        return await service.caller_of_token(key)
    row = service.keys.identify(key)
    return Caller("key", row.id, row.rights, row.rate_limit)


def need_scope(record: RequestRecord, scope: Scope) -> None:
    """Raise PermissionDeniedError where the caller does not have this scope in any topic."""
    if not record.caller.rights.anywhere(scope):
        raise PermissionDeniedError(f"this needs a key of scope {scope.name.lower()}")


def require(
    scope: Scope,
    query: type[BaseModel] | None = None,
    *,
    any_query: bool = False,
    in_route: bool = False,
) -> Any:
    """Return the dependency of a route whose parameters are the fields of `query` (None: it has none)."""
    parameters = None if any_query else frozenset(query.model_fields if query else ())
    return Security(RequireScope(scope, parameters, in_route=in_route), scopes=[scope.name.lower()])
