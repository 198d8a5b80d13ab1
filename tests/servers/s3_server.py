"""An S3 server that runs for the test session: where it is, and buckets of their own for tests."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, field
from urllib.parse import quote

import boto3
from botocore.config import Config

ACCESS_KEY = "testaccess"
SECRET_KEY = "testsecret123"
_BUCKETS = itertools.count(1)


@dataclass(frozen=True)
class S3Server:
    """`name` tells the servers apart in test ids; credentials are in the environment."""

    name: str
    endpoint_url: str
    client: object = field(repr=False)

    @classmethod
    def at(cls, name, port):
        endpoint_url = f"http://127.0.0.1:{port}"
        client = boto3.client(
            "s3",
            endpoint_url=endpoint_url,
            region_name="us-east-1",
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 3}),
        )
        return cls(name, endpoint_url, client)

    def make_bucket(self) -> str:
        """Make an empty bucket that no other test uses; return its name."""
        bucket = f"test-{os.getpid()}-{next(_BUCKETS)}"
        self.client.create_bucket(Bucket=bucket)
        return bucket

    def make_url(self, prefix: str = "") -> str:
        """Make a bucket; return a store's url in it, with this server's address as a parameter."""
        path = f"/{prefix}" if prefix else ""
        return f"s3://{self.make_bucket()}{path}?endpoint_url={quote(self.endpoint_url, safe='')}"


def set_aws_environment(patch) -> None:
    """Give this process the test servers' credentials and nothing of the machine's own."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        patch.delenv(name)
    patch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    patch.setenv("AWS_CONFIG_FILE", os.devnull)
    patch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
