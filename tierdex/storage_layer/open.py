"""Opens a store from its URL: the grammar of URLs, and the one place that stacks the wrappers.

| written | store |
|---|---|
| `data/archive`, `/mnt/archive`, `file:///mnt/archive` | a local folder |
| `memory://name`, `memory://name/prefix` | this process's memory, shared by name |
| `s3://bucket/prefix?endpoint_url=http://host:port&region=name` | a bucket; both parameters optional |
| `gs://bucket/prefix` | a bucket of Google Cloud Storage: `gcs` |
| `az://container/prefix?account=name`, `abfs://container@name.dfs.core.windows.net/prefix` | Azure: `azure` |

Credentials are never part of a URL: they come from the caller or the usual environment of AWS, Google or
Azure. Each kind's modules are imported for its URLs only.

Depends on the other modules of this folder.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from tierdex.clock import SystemClock
from tierdex.errors import InvalidRequestError, StoreRefusedError
from tierdex.filesystem import LocalFileSystem
from tierdex.ids import SystemIds
from tierdex.settings import Settings, load_settings
from tierdex.storage_layer.base import check_folder_prefix
from tierdex.storage_layer.local import LocalStore
from tierdex.storage_layer.memory import MemoryStore
from tierdex.storage_layer.metered import MeteredStore
from tierdex.storage_layer.prefixed import PrefixedStore
from tierdex.storage_layer.retrying import RetryingStore, RetryPolicy
from tierdex.storage_layer.store_url import BUCKET, bad_url, parameters_of, split_url

if TYPE_CHECKING:
    from urllib.parse import SplitResult

    from tierdex.clock import Clock
    from tierdex.filesystem import FileSystem
    from tierdex.ids import IdSource
    from tierdex.storage_layer.base import Store
    from tierdex.storage_layer.store_url import Credentials

S3_PARAMETERS = ("endpoint_url", "region")
CLOUDS = {"gs": "gcs", "az": "azure", "abfs": "azure", "abfss": "azure"}  # and the extra of each
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

    `url` is ``s3://bucket``, ``gs://bucket``, ``az://container`` or ``memory://name``, perhaps with
    parameters. Raises as `open_store`.
    """
    settings, clock = load_settings(), SystemClock()
    policies = [RetryPolicy(settings.store_attempts, clock=clock, ids=SystemIds()) for _ in "12"]
    parts = split_url(url)
    if parts.path.strip("/"):
        raise bad_url("a bucket alone is expected")
    backend: Store
    if parts.scheme == "memory":
        backend = MemoryStore.shared(_memory_name(parts), clock=clock, any_key=True)
    elif parts.scheme == "s3":
        backend = _open_s3(parts, settings, clock, policies[0], None, any_key=True)
    elif parts.scheme in CLOUDS:
        backend = _open_cloud(parts, settings, any_key=True)
    else:
        raise bad_url("s3://BUCKET, gs://BUCKET or az://CONTAINER is expected")
    retried = policies[1]
    return MeteredStore(backend, decorate=lambda store: RetryingStore(store, retried), clock=clock)


def folder_of_url(url: str) -> Path | None:
    """Return the folder of a store that is one, None for another. Raises InvalidRequestError."""
    if "://" not in url:
        return Path(url)
    parts = split_url(url)
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
        raise bad_url("a folder, file://, memory://, s3://, gs:// or az:// is expected")
    if "://" not in url:
        return LocalStore(Path(url), filesystem=filesystem, clock=clock, ids=ids)
    parts = split_url(url)
    if parts.scheme == "file":
        return LocalStore(_folder_of(parts), filesystem=filesystem, clock=clock, ids=ids)
    if parts.scheme == "memory":
        return _below(MemoryStore.shared(_memory_name(parts), clock=clock), parts.path)
    if parts.scheme == "s3":
        return _open_s3(parts, settings, clock, part_retry, credentials)
    if parts.scheme in CLOUDS:
        return _open_cloud(parts, settings)
    raise bad_url(
        f"{parts.scheme}:// is not known; write a folder, file://, memory://, s3://, gs:// or az://"
    )


def _open_cloud(parts: SplitResult, settings: Settings, *, any_key: bool = False) -> Store:
    if settings.store_kms_key is not None:
        raise InvalidRequestError(
            f"is for s3://: set the default key of the bucket for {parts.scheme}://",
            field="store_kms_key",
        )
    try:
        from tierdex.storage_layer.cloud_store import CloudStore

        if parts.scheme == "gs":
            from tierdex.storage_layer.gcs import open_bucket
        else:
            from tierdex.storage_layer.azure import open_bucket
        bucket = open_bucket(parts, settings)
    except ModuleNotFoundError as error:
        raise StoreRefusedError(
            f"{parts.scheme}:// needs obstore: pip install 'tierdex[{CLOUDS[parts.scheme]}]'"
        ) from error
    store = CloudStore(
        bucket,
        multipart_bytes=settings.multipart_bytes,
        timeout_s=settings.store_timeout,
        any_key=any_key,
    )
    prefix = _prefix_of(parts.path)
    return PrefixedStore(store, prefix) if prefix else store


def _memory_name(parts: SplitResult) -> str:
    if _MEMORY_NAME.fullmatch(parts.netloc) is None or parts.query:
        raise bad_url("memory://NAME has a name of letters, digits and . _ - and no parameters")
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

    if BUCKET.fullmatch(parts.netloc) is None:
        raise bad_url("s3://BUCKET/PREFIX needs a bucket's name, and takes no credentials or port")
    parameters = parameters_of(parts.query, S3_PARAMETERS)
    if "region" in parameters and _REGION.fullmatch(parameters["region"]) is None:
        raise bad_url("its region is not a region's name")
    prefix = _prefix_of(parts.path)
    server = S3Server(
        endpoint_url=parameters.get("endpoint_url"),
        region=parameters.get("region"),
        timeout_s=settings.store_timeout,
        checksum=settings.store_checksum,
        kms_key=settings.store_kms_key,
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


def _folder_of(parts: SplitResult) -> Path:
    if parts.netloc not in ("", "localhost") or not parts.path or parts.query:
        raise bad_url("file:// takes an absolute path: file:///mnt/archive")
    return Path(unquote(parts.path))


def _prefix_of(path: str) -> str:
    prefix = path.strip("/")
    try:
        return check_folder_prefix(f"{prefix}/" if prefix else "")
    except InvalidRequestError:
        raise bad_url("its prefix may hold letters, digits and . _ = - between slashes") from None


def _below(store: Store, path: str) -> Store:
    prefix = _prefix_of(path)
    return PrefixedStore(store, prefix) if prefix else store
