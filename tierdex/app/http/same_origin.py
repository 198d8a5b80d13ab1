"""Refuses requests that a page of another site makes through a user's browser, without a key.

A browser sends a form or a beacon to any address, this machine's included, and tells the page's
origin: `Origin` on every POST, `Sec-Fetch-Site` on every request. A request with a key is not
refused here, since no page can make a browser add a key that the page does not know. A page may
also rebind its own name to this machine; the `Host` header shows that.

Depends on errors.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING

from tierdex.errors import PermissionDeniedError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\[\]:/?#@\s]+)(?::[0-9]{1,5})?")
READING_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
PAGE_HEADERS = frozenset({"authorization", "origin", "sec-fetch-site", "host"})  # all it looks at


def refuse_foreign_page(headers: Mapping[str, str], allowed_origins: Collection[str]) -> None:
    """Raise PermissionDeniedError for a request that a page of another origin made, without a key."""
    if "authorization" in headers:
        return
    origin = headers.get("origin")
    if origin is None:
        if headers.get("sec-fetch-site") == "cross-site":
            raise _refusal("another site")
        return
    name = origin.strip().lower()
    host = headers.get("host", "").strip().lower()
    if name.partition("://")[2] != host and name not in allowed_origins:
        raise _refusal(name[:100])


def _refusal(origin: str) -> PermissionDeniedError:
    return PermissionDeniedError(
        f"a page of {origin} may not do this without a key: send `Authorization: Bearer <key>`, or "
        "see TIERDEX_ALLOWED_ORIGINS"
    )


def is_own_host(host: str, allowed: Collection[str]) -> bool:
    """Return whether a Host header names this machine's loopback, or an allowed name.

    The whole header is looked at (RFC 9110, section 7.2): behind the name there may be a port, nothing else.
    """
    found = _HOST.fullmatch(host.lower())
    if found is None:
        return False
    name = found[1].strip("[]")
    return name == "localhost" or name in allowed or _is_loopback(name)


@lru_cache(maxsize=64)  # a service sees few different hosts
def _is_loopback(name: str) -> bool:
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
