"""The lean GET of one bucket, with address, region and signer taken from boto3's own client.

Depends on s3_get; imports botocore when it is called.
"""

from __future__ import annotations

import urllib.request
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from tierdex.storage_layer.s3_get import SignedGet

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mypy_boto3_s3 import S3Client

    from tierdex.clock import Clock
    from tierdex.storage_layer.s3_client import S3Server

_SAMPLE_KEY = "sample"


def make_lean_get(
    session: Any, client: S3Client, bucket: str, server: S3Server, clock: Clock
) -> SignedGet | None:
    """Return the GET, made from a URL that boto3 signs; sends no request.

    None when this bucket needs boto3's own GET: without credentials, through a proxy, for S3 Express.
    """
    import botocore.auth
    import botocore.awsrequest
    import botocore.httpsession

    credentials = session.get_credentials()
    if credentials is None or bucket.endswith(
        "--x-s3"
    ):  # S3 Express signs with sessions of its own
        return None
    signed_url = client.generate_presigned_url(
        "get_object", Params={"Bucket": bucket, "Key": _SAMPLE_KEY}
    )
    parts = urlsplit(signed_url)
    scope = parse_qs(parts.query).get("X-Amz-Credential", [""])[0].split("/")
    host = parts.hostname or ""
    proxied = parts.scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(host)
    if len(scope) != 5 or proxied or not parts.path.endswith(f"/{_SAMPLE_KEY}"):
        return None
    _, _, region, service, _ = scope

    def sign(url: str, headers: dict[str, str]) -> Mapping[str, str]:
        request = botocore.awsrequest.AWSRequest(method="GET", url=url, headers=headers)
        signer = botocore.auth.S3SigV4Auth(credentials.get_frozen_credentials(), service, region)
        signer.add_auth(request)
        return dict(request.headers.items())

    ca_bundle = session._session.get_config_variable("ca_bundle")
    return SignedGet(
        f"{parts.scheme}://{parts.netloc}{parts.path.removesuffix(_SAMPLE_KEY)}",
        sign,
        timeout_s=server.timeout_s,
        pool=server.pool,
        ca_certs=ca_bundle or botocore.httpsession.get_cert_path(True),
        clock=clock,
    )
