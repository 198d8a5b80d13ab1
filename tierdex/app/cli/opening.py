"""Opens what a command works on: a data folder, a store, or a service.

Depends on client and index_service.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from tierdex.errors import InvalidRequestError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT_DATA = Path("data")


def parse_settings(pairs: list[str] | None) -> dict[str, Any]:
    """Return NAME=VALUE pairs as settings; values are JSON where they read as such, else text."""
    settings: dict[str, Any] = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InvalidRequestError(f"{pair!r} is not NAME=VALUE", field="--set")
        try:
            settings[name] = orjson.loads(value)
        except orjson.JSONDecodeError:
            settings[name] = value
    return settings


@contextmanager
def opened(
    data: Path | None,
    store: str | None,
    url: str | None = None,
    api_key: str | None = None,
    *,
    writes: bool,
    settings: dict[str, Any] | None = None,
    rocketmq: Path | None = None,
    takeover: bool = False,
    accept_rollback: bool = False,
) -> Iterator[Any]:
    """Open an index (read-only unless `writes`) or a client, and close it at the end."""
    if url is not None:
        if takeover or accept_rollback:
            raise InvalidRequestError(
                "the owner of a folder says --take-over, --accept-rollback: not with --url",
                field="--url",
            )
        if data is not None or store is not None or rocketmq is not None:
            raise InvalidRequestError(
                "give --url, or --data and --store (see also TIERDEX_DATA, TIERDEX_STORE)",
                field="--url",
            )
        from tierdex.client.remote import Client

        with Client(url, api_key=api_key) as client:
            yield client
        return
    from tierdex.index_service.index import Index

    if data is None and store is None and rocketmq is None:
        data = DEFAULT_DATA
    if writes:
        data = data or DEFAULT_DATA
    elif data is not None and not data.is_dir():
        raise NotFoundError(f"there is no data folder {data}")
    options = dict(settings or {})
    if writes:
        options |= {"takeover": takeover, "accept_rollback": accept_rollback}
    else:
        options |= {"read_only": True, "background": False}
    with Index.open(data, store=store, rocketmq=rocketmq, **options) as index:
        yield index
