"""Ceph's radosgw on loopback: the real S3 server of the test session. See tools/radosgw.py."""

from __future__ import annotations

import contextlib

import pytest

from tests.servers.s3_server import ACCESS_KEY, SECRET_KEY, S3Server
from tools import radosgw


@contextlib.contextmanager
def running_radosgw():
    """Start the server, yield it as an S3Server, end its processes. Skips where it cannot be had."""
    with radosgw.running_radosgw(ACCESS_KEY, SECRET_KEY) as port:
        if port is None:
            pytest.skip("radosgw cannot be installed here")
        yield S3Server.at("radosgw", port)
