"""Opens a store from its URL: the grammar of URLs, and the one place that stacks the wrappers.

| written | store |
|---|---|
| `data/archive`, `/mnt/archive`, `file:///mnt/archive` | a local folder |
| `memory://name`, `memory://name/prefix` | this process's memory, shared by name |
| `s3://bucket/prefix?endpoint_url=http://host:port&region=name` | a bucket; both parameters optional |

Credentials are never part of a URL: they come from the caller or the usual AWS environment. The S3
modules are imported for an s3:// URL only.

Depends on the other modules of this folder.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from tierdex.clock import SystemClock
from tierdex.errors import InvalidRequestError
from tierdex.filesystem import LocalFileSystem
from tierdex.ids import SystemIds
from tierdex.settings import Settings, load_settings
from tierdex.storage_layer.base import check_folder_prefix
from tierdex.storage_layer.local import LocalStore
from tierdex.storage_layer.memory import MemoryStore
from tierdex.storage_layer.metered import MeteredStore
from tierdex.storage_layer.prefixed import PrefixedStore
from tierdex.storage_layer.retrying import RetryingStore, RetryPolicy

if TYPE_CHECKING:
    from tierdex.clock import Clock
    from tierdex.filesystem import FileSystem
    from tierdex.ids import IdSource
    from tierdex.storage_layer.base import Store
    from tierdex.storage_layer.credentials import Credentials

S3_PARAMETERS = ("endpoint_url", "region")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]")
_MEMORY_NAME = re.compile(r"[A-Za-z0-9._-]*")
_REGION = re.compile(r"[A-Za-z0-9-]{1,64}")


def open_store(
    url: str | os.PathLike[str],
    *,
    settings: Settings | None = None,
    clock: Clock | None = None,
    ids: IdSource | None = None,
    filesystem: FileSystem | None = None,
    credentials: Credentials | None = None,
) -> MeteredStore:
    """Return the store behind `url`, counted and retried; sends no request and writes nothing.

    Of `settings` the ones under "the store" matter. Raises InvalidRequestError (field ``store``) for
    a url that is none, StoreRefusedError when boto3 or its configuration is missing.
    """
    settings = settings or load_settings()
    clock = clock or SystemClock()
    ids = ids or SystemIds()

    def make_policy() -> RetryPolicy:
        return RetryPolicy(settings.store_attempts, clock=clock, ids=ids)

    backend = _open_backend(
        os.fspath(url),
        settings,
        clock,
        ids,
        filesystem or LocalFileSystem(),
        make_policy(),
        credentials,
    )
    policy = make_policy()
    return MeteredStore(backend, decorate=lambda store: RetryingStore(store, policy), clock=clock)


def open_objects(url: str) -> MeteredStore:
    """Return a bucket with objects of users, whose keys may have any character: for reading alone.

    `url` is ``s3://bucket`` or ``memory://name``, perhaps with parameters. Raises as `open_store`.
    """
    settings, clock = load_settings(), SystemClock()
    policies = [RetryPolicy(settings.store_attempts, clock=clock, ids=SystemIds()) for _ in "12"]
    parts = _split(url)
    if parts.path.strip("/"):
        raise _bad_url("a bucket alone is expected")
    backend: Store
    if parts.scheme == "memory":
        backend = MemoryStore.shared(_memory_name(parts), clock=clock, any_key=True)
    elif parts.scheme == "s3":
        backend = _open_s3(parts, settings, clock, policies[0], None, any_key=True)
    else:
        raise _bad_url("s3://BUCKET is expected")
    retried = policies[1]
    return MeteredStore(backend, decorate=lambda store: RetryingStore(store, retried), clock=clock)


def folder_of_url(url: str) -> Path | None:
    """Return the folder of a store that is one, None for another. Raises InvalidRequestError."""
    if "://" not in url:
        return Path(url)
    parts = _split(url)
    return _folder_of(parts) if parts.scheme == "file" else None


def _open_backend(
    url: str,
    settings: Settings,
    clock: Clock,
    ids: IdSource,
    filesystem: FileSystem,
    part_retry: RetryPolicy,
    credentials: Credentials | None,
) -> Store:
    if not url or "\0" in url:
        raise _bad_url("a folder, file://, memory:// or s3:// is expected")
    if "://" not in url:
        return LocalStore(Path(url), filesystem=filesystem, clock=clock, ids=ids)
    parts = _split(url)
    if parts.scheme == "file":
        return LocalStore(_folder_of(parts), filesystem=filesystem, clock=clock, ids=ids)
    if parts.scheme == "memory":
        return _below(MemoryStore.shared(_memory_name(parts), clock=clock), parts.path)
    if parts.scheme == "s3":
        return _open_s3(parts, settings, clock, part_retry, credentials)
    raise _bad_url(f"{parts.scheme}:// is not known; write a folder, file://, memory:// or s3://")


def _memory_name(parts: SplitResult) -> str:
    if _MEMORY_NAME.fullmatch(parts.netloc) is None or parts.query:
        raise _bad_url("memory://NAME has a name of letters, digits and . _ - and no parameters")
    return parts.netloc


def _open_s3(
    parts: SplitResult,
    settings: Settings,
    clock: Clock,
    part_retry: RetryPolicy,
    credentials: Credentials | None,
    *,
    any_key: bool = False,
) -> Store:
    from tierdex.storage_layer.s3 import S3Store
    from tierdex.storage_layer.s3_client import S3Server

    if _BUCKET.fullmatch(parts.netloc) is None:
        raise _bad_url("s3://BUCKET/PREFIX needs a bucket's name, and takes no credentials or port")
    parameters = _s3_parameters(parts.query)
    prefix = _prefix_of(parts.path)
    server = S3Server(
        endpoint_url=parameters.get("endpoint_url"),
        region=parameters.get("region"),
        timeout_s=settings.store_timeout,
        checksum=settings.store_checksum,
        credentials=credentials,
    )
    backend = S3Store(
        parts.netloc,
        server,
        multipart_bytes=settings.multipart_bytes,
        any_key=any_key,
        part_retry=part_retry,
        clock=clock,
    )
    return PrefixedStore(backend, prefix) if prefix else backend


def _s3_parameters(query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, strict_parsing=True, keep_blank_values=True) if query else []
    except ValueError:
        raise _bad_url("its parameters are not name=value pairs") from None
    parameters = dict(pairs)
    unknown = parameters.keys() - set(S3_PARAMETERS)
    if unknown or len(parameters) != len(pairs):
        raise _bad_url("it takes endpoint_url and region, once each")
    if "region" in parameters and _REGION.fullmatch(parameters["region"]) is None:
        raise _bad_url("its region is not a region's name")
    if "endpoint_url" in parameters:
        endpoint = _split(parameters["endpoint_url"])
        plain = not (endpoint.query or endpoint.fragment or "@" in endpoint.netloc)
        if endpoint.scheme not in ("http", "https") or not endpoint.hostname or not plain:
            raise _bad_url(
                "its endpoint_url is not http(s)://HOST[:PORT] (credentials have no place)"
            )
    return parameters


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises when it is no number
    except ValueError:
        raise _bad_url("it cannot be parsed as a url") from None
    if parts.fragment:
        raise _bad_url("a url of a store has no #fragment")
    return parts


def _folder_of(parts: SplitResult) -> Path:
    if parts.netloc not in ("", "localhost") or not parts.path or parts.query:
        raise _bad_url("file:// takes an absolute path: file:///mnt/archive")
    return Path(unquote(parts.path))


def _prefix_of(path: str) -> str:
    prefix = path.strip("/")
    try:
        return check_folder_prefix(f"{prefix}/" if prefix else "")
    except InvalidRequestError:
        raise _bad_url("its prefix may hold letters, digits and . _ = - between slashes") from None


def _below(store: Store, path: str) -> Store:
    prefix = _prefix_of(path)
    return PrefixedStore(store, prefix) if prefix else store


def _bad_url(why: str) -> InvalidRequestError:
    """Return the error without the URL: it may contain a secret."""
    return InvalidRequestError(f"this is not the url of a store: {why}", field="store")
