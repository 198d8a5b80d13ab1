"""The scope that a route needs: a dependency declared with the route and shown in openapi.yaml.

It runs before the route's body is read.

Depends on fastapi, pydantic, parameters, service and app.keys.
"""

# No postponed annotations here: older FastAPI cannot resolve those of an object that is called.
from collections.abc import Collection
from typing import Any

from fastapi import Security
from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase
from pydantic import BaseModel
from starlette.requests import Request

from tierdex.app.http.parameters import refuse_other_parameters
from tierdex.app.http.service import RequestRecord, header_of, record_of
from tierdex.app.keys import Scope
from tierdex.errors import AuthenticationError, PermissionDeniedError

_NO_KEY = "send `Authorization: Bearer <key>`"


class RequireScope(SecurityBase):
    """Admits a request whose key, or lack of a key, covers `scope`.

    It refuses parameters other than `parameters`, which FastAPI would ignore.
    """

    def __init__(self, scope: Scope, parameters: Collection[str] | None) -> None:
        self.scope = scope
        self.parameters = parameters  # None: any, none of them read
        self.scheme_name = "key"
        self.model = HTTPBearer(
            description="a key of `tierdex keys create --scope read|message|write|admin`"
        )

    async def __call__(self, request: Request) -> None:
        """Raise AuthenticationError without a valid key, PermissionDeniedError for too small a scope.

        Raise InvalidRequestError naming a parameter that the route does not have, or that is
        repeated.
        """
        record = record_of(request)
        service = record.service
        header = header_of(request.scope, b"authorization")
        if header is None:
            scope = service.anonymous_scope
            if scope is Scope.NONE:
                raise AuthenticationError(_NO_KEY)
        else:
            kind, _, key = header.partition(" ")
            if kind.lower() != "bearer" or service.keys is None:
                raise AuthenticationError(f"no such key: {_NO_KEY}")
            row = service.keys.identify(key.strip())
            record.key_id = row.id
            scope = row.scope
        record.scope = scope
        need_scope(record, self.scope)
        if self.parameters is not None:
            refuse_other_parameters(request, self.parameters)


def need_scope(record: RequestRecord, scope: Scope) -> None:
    """Raise PermissionDeniedError where the caller's scope does not cover this one."""
    if not record.scope.covers(scope):
        raise PermissionDeniedError(f"this needs a key of scope {scope.name.lower()}")


def require(scope: Scope, query: type[BaseModel] | None = None, *, any_query: bool = False) -> Any:
    """Return the dependency of a route whose parameters are the fields of `query` (None: it has none)."""
    parameters = None if any_query else frozenset(query.model_fields if query else ())
    return Security(RequireScope(scope, parameters), scopes=[scope.name.lower()])
