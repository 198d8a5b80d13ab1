"""A bucket of radosgw for the benchmarks of the log's tier, with the environment's credentials set to it."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote

import boto3

from tools.radosgw import running_radosgw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_KEY, _SECRET, _BUCKET = "bench", "bench-secret", "bench"


@contextmanager
def running_bucket() -> Iterator[Callable[[str], str]]:
    """Yield a function from a prefix to its store's URL. Raises SystemExit where radosgw cannot run."""
    os.environ |= {"AWS_ACCESS_KEY_ID": _KEY, "AWS_SECRET_ACCESS_KEY": _SECRET}
    with running_radosgw(_KEY, _SECRET) as port:
        if port is None:
            raise SystemExit("radosgw cannot be installed here")
        endpoint = f"http://127.0.0.1:{port}"
        client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
        client.create_bucket(Bucket=_BUCKET)
        yield lambda prefix: f"s3://{_BUCKET}/{prefix}?endpoint_url={quote(endpoint, safe='')}"
