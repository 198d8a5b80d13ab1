"""The store of a job, in a form that every process of the job can open.

A `StoreLink` travels in plans and closures; each process opens it once and shares it. A store that
only this process can see (`memory://`, a relative path) is refused. Credentials come from the
environment of the executors or from options, and appear in no plan, log or message.

Depends on storage_layer and settings.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tierdex.errors import InvalidRequestError
from tierdex.settings import load_settings
from tierdex.storage_layer.open import open_store
from tierdex.storage_layer.store_url import Credentials

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tierdex.storage_layer.metered import MeteredStore

ACCESS_KEY = "awsAccessKeyId"
SECRET_KEY = "awsSecretAccessKey"
SESSION_TOKEN = "awsSessionToken"
CREDENTIAL_OPTIONS = (ACCESS_KEY, SECRET_KEY, SESSION_TOKEN)


@dataclass(frozen=True, slots=True)
class StoreLink:
    """The store's URL and credentials. Hashable; its text shows the URL only."""

    url: str
    credentials: Credentials | None = field(default=None, repr=False)

    @classmethod
    def of(cls, store_url: object, options: Mapping[str, str] | None = None) -> StoreLink:
        """Check a URL and take the credentials out of `options`. Raises InvalidRequestError."""
        options = {} if options is None else options
        access, secret = options.get(ACCESS_KEY), options.get(SECRET_KEY)
        if (access is None) != (secret is None):
            raise InvalidRequestError(
                f"{ACCESS_KEY} and {SECRET_KEY} belong together", field=ACCESS_KEY
            )
        credentials = None
        if access is not None and secret is not None:
            credentials = Credentials(access, secret, options.get(SESSION_TOKEN))
        link = cls(_checked_url(store_url), credentials)
        link.open()  # raises for a faulty URL here, on the driver, without a request
        return link

    def open(self) -> MeteredStore:
        """Return the store, the same one in all of this process. Sends no request."""
        return _open(self)


def _checked_url(store_url: object) -> str:
    """Return the URL, if it means the same store on every machine of a cluster."""
    if not isinstance(store_url, str) or not store_url:
        raise InvalidRequestError(
            "name the store: .load(url) or .save(url), with s3://BUCKET/PREFIX or file:///FOLDER",
            field="path",
        )
    scheme, separator, rest = store_url.partition(":")
    if scheme == "memory" and separator:
        raise InvalidRequestError(
            "memory:// is the memory of one process; executors need s3:// or a shared folder",
            field="path",
        )
    if scheme == "file" and rest.startswith("/") and not rest.startswith("//"):
        return f"file://{rest}"  # as Hadoop writes it
    if "://" not in store_url and not store_url.startswith("/"):
        raise InvalidRequestError(
            "a relative path means another folder in every process; write an absolute one",
            field="path",
        )
    return store_url


@functools.lru_cache(maxsize=16)
def _open(link: StoreLink) -> MeteredStore:
    return open_store(link.url, settings=load_settings(), credentials=link.credentials)
