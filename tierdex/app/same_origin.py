"""Keeps pages of other sites from acting through a user's browser on a service that asks for no key.

A browser sends a form or a beacon to any address, this machine's included. It says where the page is
from: `Origin` on every POST, `Sec-Fetch-Site` on every request. A request that carries a key is not
refused here: no page can make a browser add one that it does not know.

Depends on errors, headers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierdex.app.headers import find_header
from tierdex.errors import PermissionDeniedError

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.types import Scope

_READS = frozenset({"GET", "HEAD", "OPTIONS"})


def refuse_foreign_page(scope: Scope, allowed_origins: Collection[str]) -> None:
    """Raise PermissionDeniedError for a POST that a page of another origin made."""
    if scope["method"] in _READS or find_header(scope, b"authorization") is not None:
        return
    origin = find_header(scope, b"origin")
    if origin is None:
        if find_header(scope, b"sec-fetch-site") == b"cross-site":
            raise _refusal("another site")
        return
    name = origin.decode("latin-1").strip().lower()
    host = (find_header(scope, b"host") or b"").decode("latin-1").strip().lower()
    if name.partition("://")[2] != host and name not in allowed_origins:
        raise _refusal(name[:100])


def _refusal(origin: str) -> PermissionDeniedError:
    return PermissionDeniedError(
        f"a page of {origin} may not do this without a key: send `Authorization: Bearer <key>`, or "
        "see TIERDEX_ALLOWED_ORIGINS"
    )
