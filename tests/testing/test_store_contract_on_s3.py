"""The store contract against S3 servers: moto, and Ceph's radosgw, which is wrong about other things."""

from __future__ import annotations

import pytest

from tierdex.settings import load_settings
from tierdex.storage_layer.open import open_store
from tierdex.storage_layer.prefixed import PrefixedStore
from tierdex.testing.store_contract import StoreContract

MIB = 1 << 20


class S3Contract(StoreContract):
    big_bytes = 8 * MIB  # two parts
    server = ""  # the fixture's name

    @pytest.fixture(scope="class")
    @classmethod
    def opened(cls, request):
        """The stack as `open_store` builds it; once, since buckets and clients are slow to make."""
        url = request.getfixturevalue(cls.server).make_url("tests")
        opened = open_store(url, settings=load_settings(multipart_bytes=5 * MIB))
        yield opened
        opened.close()

    @pytest.fixture
    def store(self, opened, request):
        return PrefixedStore(opened, f"{abs(hash(request.node.nodeid))}/")


class TestS3StoreOnMoto(S3Contract):
    server = "moto_server"


@pytest.mark.radosgw
class TestS3StoreOnRadosgw(S3Contract):
    server = "radosgw"
    many_keys = 130
