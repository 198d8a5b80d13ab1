"""What a store asks a caller to prove who they are, when the environment does not say it.

Kept apart from urls, so that no url, plan, log or message ever shows it: its text hides the secrets.
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
