"""A request's headers, as the server handed them on: names in lower case, in the order they came.

Depends on starlette's types only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import Scope


def find_header(scope: Scope, name: bytes) -> bytes | None:
    """Return the first value of a header; None when it was not sent."""
    for sent, value in scope["headers"]:
        if sent == name:
            found: bytes = value
            return found
    return None
