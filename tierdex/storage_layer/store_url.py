"""How a store is named: the grammar of URLs that all kinds share, and the credentials apart from them.

No URL, plan, log or message shows credentials; their text hides the secrets. Depends on errors only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, parse_qsl, urlsplit

from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Collection


@dataclass(frozen=True, slots=True)
class Credentials:
    """An access key for an S3-compatible server. `repr` shows no part of it."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]")


def split_url(url: str) -> SplitResult:
    """Return the parts of a URL. Raises InvalidRequestError."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises when it is no number
    except ValueError:
        raise bad_url("it cannot be parsed as a url") from None
    if parts.fragment:
        raise bad_url("a url of a store has no #fragment")
    return parts


def parameters_of(query: str, known: Collection[str]) -> dict[str, str]:
    """Return the parameters of a store's URL. Raises InvalidRequestError for any other."""
    try:
        pairs = parse_qsl(query, strict_parsing=True, keep_blank_values=True) if query else []
    except ValueError:
        raise bad_url("its parameters are not name=value pairs") from None
    found = dict(pairs)
    if found.keys() - set(known) or len(found) != len(pairs):
        raise bad_url(f"it takes {' and '.join(known)}, once each")
    if "endpoint_url" in found:
        endpoint = split_url(found["endpoint_url"])
        plain = not (endpoint.query or endpoint.fragment or "@" in endpoint.netloc)
        if endpoint.scheme not in ("http", "https") or not endpoint.hostname or not plain:
            raise bad_url(
                "its endpoint_url is not http(s)://HOST[:PORT] (credentials have no place)"
            )
    return found


def bad_url(why: str) -> InvalidRequestError:
    """Return the error without the URL: it may contain a secret."""
    return InvalidRequestError(f"this is not the url of a store: {why}", field="store")
