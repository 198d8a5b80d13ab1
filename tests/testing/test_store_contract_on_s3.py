"""The store contract against S3 servers: moto, and Ceph's radosgw, which is wrong about other things."""

from __future__ import annotations

from contextlib import closing

import pytest

from tierdex.errors import InvalidRequestError
from tierdex.settings import load_settings
from tierdex.storage_layer.open import open_store
from tierdex.storage_layer.prefixed import PrefixedStore
from tierdex.testing.store_contract import PatternSource, StoreContract

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
    # moto looks for the object and then writes it, in several threads: two may win. radosgw shows ours.
    test_put_if_absent_of_many_threads_has_one_winner = None


@pytest.mark.radosgw
class TestS3StoreOnRadosgw(S3Contract):
    server = "radosgw"
    many_keys = 130


def test_objects_are_encrypted_under_the_key_that_the_setting_names(moto_server):
    url = moto_server.make_url()
    bucket = url.partition("://")[2].partition("?")[0]
    settings = load_settings(store_kms_key="alias/orders", multipart_bytes=5 * MIB)
    with closing(open_store(url, settings=settings)) as store:
        store.put("plain", b"a")
        store.put_if_absent("once", b"b")
        store.upload("large", PatternSource(8 * MIB), 8 * MIB)
        assert store.get("large", 5, 3) == PatternSource(8 * MIB).read_at(5, 3)
    for key in ("plain", "once", "large"):
        found = moto_server.client.head_object(Bucket=bucket, Key=key)
        assert (found["ServerSideEncryption"], found["SSEKMSKeyId"]) == ("aws:kms", "alias/orders")


def test_key_of_another_store_is_the_bucket_s_own():
    with pytest.raises(InvalidRequestError, match="default key of the bucket for gs://"):
        open_store("gs://bucket", settings=load_settings(store_kms_key="k"))
