"""Models of what a service reports about itself and its caller.

Depends on pydantic only.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel


class Status(BaseModel):
    """The state of the service."""

    status: str


class Access(BaseModel):
    """Who the caller is and may do, and what this service has: a message log, messages to show.

    `rights` are as in `tierdex keys create --scope`; `admin`: they cover every route.
    """

    kind: Literal["key", "token", "anonymous"]
    name: str
    rights: list[str]
    admin: bool
    log: bool
    messages: bool


class Version(BaseModel):
    """The running program."""

    name: str
    version: str


class Rolled(BaseModel):
    """`rolled`: the unsealed file was not empty."""

    rolled: bool
