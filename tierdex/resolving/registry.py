"""A schema registry over HTTP, as Confluent's and those that speak like it.

A schema never changes under its ID, so what was read is kept. A registry that is down is asked again
after a pause, so that each message does not wait for it.

Depends on errors, clock and httpx2.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import httpx2

from tierdex.errors import (
    InvalidRequestError,
    NotFoundError,
    PermissionDeniedError,
    TierdexError,
    UnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tierdex.clock import Clock

_TIMEOUT_S: Final = 3.0
_PAUSE_S: Final = 5.0
_SCHEMAS_MOST: Final = 1000
_BYTES_MOST: Final = 4 << 20
_DEEPEST: Final = 20


@dataclass(frozen=True)
class Schema:
    """One schema: `kind` AVRO, PROTOBUF or JSON; `references` by the name under which it knows them."""

    kind: str
    text: str
    references: Mapping[str, Schema] = field(default_factory=dict)


class Registry:
    """Reads schemas by their ID. Safe to share between threads."""

    def __init__(self, url: str, options: Mapping[str, str], clock: Clock) -> None:
        """`options`: `username` and `password`, or `token`. Raises InvalidRequestError."""
        try:
            parts = httpx2.URL(url)
        except httpx2.InvalidURL as error:
            raise InvalidRequestError(f"is not an address: {error}", field="registry") from None
        if parts.scheme not in ("http", "https") or not parts.host or parts.userinfo:
            raise InvalidRequestError(
                "is http(s)://HOST[:PORT], a login stands in registry_config", field="registry"
            )
        unknown = set(options) - {"username", "password", "token"}
        if unknown:
            raise InvalidRequestError(f"knows no {min(unknown)}", field="registry_config")
        headers = {"accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if "token" in options:
            headers["authorization"] = f"Bearer {options['token']}"
        login = (options.get("username", ""), options.get("password", ""))
        self.name = f"{parts.scheme}://{parts.host}" + (f":{parts.port}" if parts.port else "")
        self._http = httpx2.Client(
            base_url=url.rstrip("/") + "/", timeout=_TIMEOUT_S, headers=headers,
            auth=login if any(login) else None, follow_redirects=False,
        )  # fmt: skip
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[int, Schema] = {}
        self._failed: tuple[float, TierdexError] | None = None

    def schema(self, number: int) -> Schema:
        """Return a schema. Raises NotFoundError, PermissionDeniedError, UnavailableError."""
        with self._lock:
            known = self._known.get(number)
            if known is not None:
                return known
            if self._failed is not None and self._clock.monotonic() < self._failed[0]:
                raise self._failed[1]
            try:
                found = self._read(f"schemas/ids/{number}", _DEEPEST)
            except UnavailableError as error:
                self._failed = (self._clock.monotonic() + _PAUSE_S, error)
                raise
            if len(self._known) >= _SCHEMAS_MOST:
                self._known.pop(next(iter(self._known)))
            self._known[number] = found
            return found

    def close(self) -> None:
        self._http.close()

    def _read(self, path: str, depth: int) -> Schema:
        if depth == 0:
            raise UnavailableError(f"{self.name}: references of {path} are too deep")
        said = self._get(path)
        kind = str(said.get("schemaType", "AVRO"))
        if kind == "PROTOBUF":  # compiled there: no compiler of ours
            said = {**said, **self._get(f"{path}?format=serialized")}
        references = {
            str(each["name"]): self._read(
                f"subjects/{quote(str(each['subject']), safe='')}/versions/{int(each['version'])}",
                depth - 1,
            )
            for each in said.get("references") or ()
        }
        return Schema(kind, str(said["schema"]), references)

    def _get(self, path: str) -> dict[str, Any]:
        try:
            with self._http.stream("GET", path) as answer:
                body = b""
                for part in answer.iter_bytes():
                    body += part
                    if len(body) > _BYTES_MOST:
                        raise UnavailableError(f"{self.name}: a schema is longer than 4 MiB")
                status = answer.status_code
        except (httpx2.HTTPError, OSError) as error:
            said = type(error).__name__  # the text may hold what was sent
            raise UnavailableError(f"the registry {self.name} does not answer ({said})") from None
        if status == 404:
            raise NotFoundError(f"the registry {self.name} has no such schema")
        if status in (401, 403):
            raise PermissionDeniedError(f"the registry {self.name} refuses us ({status})")
        if status != 200:
            raise UnavailableError(f"the registry {self.name} answers {status}")
        try:
            import orjson

            found: dict[str, Any] = orjson.loads(body)
            found["schema"]
        except (ValueError, KeyError, TypeError):
            raise UnavailableError(f"{self.name} does not answer like a schema registry") from None
        return found
