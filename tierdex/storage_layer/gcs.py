"""A bucket of Google Cloud Storage: `gs://BUCKET/PREFIX`.

Credentials are Google's usual ones: `GOOGLE_APPLICATION_CREDENTIALS` names the file of a service account or
of `gcloud`, else the machine's own account is asked. `endpoint_url=` in the URL is for emulators; requests to
it are not signed.

Depends on cloud_store, store_url, settings and obstore.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from obstore.store import GCSStore

from tierdex.storage_layer.cloud_store import Bucket, make_clients
from tierdex.storage_layer.store_url import BUCKET, bad_url, parameters_of

if TYPE_CHECKING:
    from urllib.parse import SplitResult

    from tierdex.settings import Settings

_PARAMETERS: Final = ("endpoint_url",)
_ADDRESS: Final = "https://storage.googleapis.com"


def open_bucket(parts: SplitResult, settings: Settings) -> Bucket:
    """Return the bucket of a URL; sends no request. Raises InvalidRequestError, StoreRefusedError."""
    name = parts.netloc
    if BUCKET.fullmatch(name) is None:
        raise bad_url("gs://BUCKET/PREFIX needs a bucket's name, and takes no credentials or port")
    endpoint = parameters_of(parts.query, _PARAMETERS).get("endpoint_url")
    more: dict[str, Any] = {} if endpoint is None else {"service_account_key": _unsigned(endpoint)}
    client, upload_client = make_clients(partial(GCSStore, name, **more), settings, endpoint)
    query = "" if endpoint is None else f"?{urlencode({'endpoint_url': endpoint})}"
    return Bucket(
        client, upload_client, f"gs://{name}", f"gs://{name}{query}", endpoint or _ADDRESS
    )


def _unsigned(endpoint: str) -> str:
    """Return the account of an emulator: without credentials the client would ask a machine of Google's."""
    unnamed = {"client_email": "", "private_key": "", "private_key_id": ""}
    return json.dumps({"gcs_base_url": endpoint, "disable_oauth": True, **unnamed})
