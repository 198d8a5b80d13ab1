"""Callers with a token: a JWT of an issuer whose public keys are read from its JWKS.

A token is believed when all of this holds, and refused (401) otherwise: its signature is by a key of the
issuer, with one of the algorithms that the settings name (only such with public keys: neither `none` nor a
shared secret can be named); `iss` and `aud` are the set ones; it has `sub` and `exp`, and its time is now.
What the token's header offers (`jwk`, `jku`, `x5u`) is not looked at.

The claim `jwt_claim` gives the rights: each of its values is a grant behind `tierdex:`, as in
``"scope": "openid tierdex:read tierdex:write:orders.*"``, or a name (of a group, a role) that `jwt_grants`
maps to grants. Values that say nothing here are left out; a token without any is a caller without rights.

Depends on joserfc, issuer_keys, rights and errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tierdex.app.issuer_keys import IssuerKeys, reader_of
from tierdex.app.rights import Caller, Grant, Rights, parse_grant
from tierdex.errors import AuthenticationError, InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tierdex.app.http.server_settings import ServerSettings
    from tierdex.app.logs import JsonLogger
    from tierdex.clock import Clock

GRANT_PREFIX: Final = "tierdex:"
_LEEWAY_S: Final = 30
_REASONS: Final = {  # what a caller may know; of anything else only that the token is not valid
    "expired_token": "it has expired",
    "invalid_claim": "its issuer, audience or time is another",
    "missing_claim": "it lacks `iss`, `aud`, `sub` or `exp`",
    "bad_signature": "its signature is not by a key of the issuer",
    "unsupported_algorithm": "its algorithm is not one that is taken here",
}


class Tokens:
    """Tells callers by their tokens. Safe to share between threads; may wait for the issuer."""

    def __init__(
        self,
        settings: ServerSettings,
        clock: Clock,
        logger: JsonLogger,
        read: Callable[[], bytes] | None = None,
    ) -> None:
        """`read` stands in for the issuer in tests. Raises InvalidRequestError."""
        try:
            from joserfc import jwt
        except ImportError as error:
            raise InvalidRequestError("pip install 'tierdex[jwt]'", field="jwt_jwks") from error
        assert settings.jwt_jwks is not None
        self._algorithms = settings.jwt_algorithms
        self._claim = settings.jwt_claim
        self._named = {
            name: tuple(map(parse_grant, grants)) for name, grants in settings.jwt_grants.items()
        }
        self._keys = IssuerKeys(read or reader_of(settings.jwt_jwks), clock, logger)
        self._claims = jwt.JWTClaimsRegistry(
            now=lambda: clock.now_ms() // 1000,
            leeway=_LEEWAY_S,
            iss={
                "essential": True,
                "value": settings.jwt_issuer or "",
            },  # never empty: the settings see to it
            aud={"essential": True, "value": settings.jwt_audience or ""},
            sub={"essential": True},
            exp={"essential": True},
        )

    def caller_of(self, token: str) -> Caller:
        """Return who calls. Raises AuthenticationError, UnavailableError without the issuer's keys."""
        from joserfc import jwt
        from joserfc.errors import JoseError

        try:
            read = jwt.decode(
                token, lambda found: self._keys.keys_for(_kid(found)), self._algorithms
            )
            self._claims.validate(read.claims)
        except JoseError as error:
            why = _REASONS.get(error.error, "it is not valid")
            raise AuthenticationError(f"the token is refused: {why}") from error
        except (
            ValueError,
            TypeError,
            KeyError,
            RecursionError,
        ) as error:  # of what is no token at all
            raise AuthenticationError("the token is refused: it is not valid") from error
        return Caller("token", read.claims["sub"], self._rights(read.claims))

    def _rights(self, claims: Mapping[str, Any]) -> Rights:
        grants: list[Grant] = []
        for value in _values(claims, self._claim):
            grants += self._named.get(value, ())
            if value.startswith(GRANT_PREFIX):
                try:
                    grants.append(parse_grant(value.removeprefix(GRANT_PREFIX)))
                except InvalidRequestError:
                    continue  # of a later Tierdex: it grants nothing here
        return Rights(grants)


def _kid(found: Any) -> str | None:
    kid = found.headers().get("kid")
    return kid if isinstance(kid, str) else None


def _values(claims: Mapping[str, Any], path: str) -> list[str]:
    """Return the texts of a claim: a list, or one text with blanks between. `a.b` is also `b` in `a`."""
    value: Any = claims.get(path)
    if value is None:
        value = claims
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, str):
        return value.split()
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
