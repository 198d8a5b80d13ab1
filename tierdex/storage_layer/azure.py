"""A container of Azure's blob storage: `az://CONTAINER/PREFIX?account=NAME`, or as Hadoop writes it,
`abfs://CONTAINER@NAME.dfs.core.windows.net/PREFIX`.

Without `account` it is that of `AZURE_STORAGE_ACCOUNT_NAME`. Credentials are Azure's usual ones: a key
(`AZURE_STORAGE_ACCOUNT_KEY`), a signature (`AZURE_STORAGE_SAS_KEY`), a service principal (`AZURE_CLIENT_ID`,
`AZURE_CLIENT_SECRET`, `AZURE_TENANT_ID`), a workload's identity, or the machine's. `endpoint_url=` is for
emulators and private endpoints; the account is part of it there.

Depends on cloud_store, errors, store_url, settings and obstore.
"""

from __future__ import annotations

import os
import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from obstore.store import AzureStore

from tierdex.errors import StoreRefusedError
from tierdex.storage_layer.cloud_store import Bucket, make_clients
from tierdex.storage_layer.store_url import bad_url, parameters_of

if TYPE_CHECKING:
    from urllib.parse import SplitResult

    from tierdex.settings import Settings

_PARAMETERS: Final = ("account", "endpoint_url")
_CONTAINER: Final = re.compile(r"[a-z0-9](?:-?[a-z0-9]){2,62}")
_ACCOUNT: Final = re.compile(r"[a-z0-9]{3,24}")
_HADOOP: Final = re.compile(r"([^@]+)@([^.]+)\.dfs\.core\.windows\.net")


def open_bucket(parts: SplitResult, settings: Settings) -> Bucket:
    """Return the container of a URL; sends no request. Raises InvalidRequestError, StoreRefusedError."""
    container, asked = parts.netloc, parameters_of(parts.query, _PARAMETERS)
    if (hadoop := _HADOOP.fullmatch(container)) and parts.scheme != "az" and "account" not in asked:
        container, asked["account"] = hadoop.groups()
    if _CONTAINER.fullmatch(container) is None:
        raise bad_url(
            "az://CONTAINER/PREFIX?account=NAME needs a container's name, and takes no credentials or port"
        )
    account = asked.get("account") or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
    if account is None:
        raise StoreRefusedError(
            "name the account: az://CONTAINER?account=NAME, or set AZURE_STORAGE_ACCOUNT_NAME"
        )
    if _ACCOUNT.fullmatch(account) is None:
        raise bad_url("its account is not the name of a storage account")
    endpoint = asked.get("endpoint_url")
    more: dict[str, Any] = {} if endpoint is None else {"endpoint": endpoint}
    made = partial(AzureStore, container, account_name=account, **more)
    client, upload_client = make_clients(made, settings, endpoint)
    address = endpoint or f"https://{account}.blob.core.windows.net"
    query = f"?{urlencode(asked)}" if asked else ""
    return Bucket(client, upload_client, f"az://{container}", f"az://{container}{query}", address)
