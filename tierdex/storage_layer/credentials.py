"""Credentials for a store, where the environment does not have them.

They are apart from URLs, so that no URL, plan, log or message shows them; their text hides the
secrets.

Depends on nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Credentials:
    """An access key for an S3-compatible server. `repr` shows no part of it."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)
