"""The contract on stores of obstore: by its S3 client here, by Azure's and Google's on their emulators.

The emulators are installed by `make clouds`; without them their tests are skipped.
"""

from __future__ import annotations

import itertools
import os
from urllib.parse import quote

import pytest
from obstore.store import S3Store

from tests.servers.gcs_server import running_gcs
from tests.servers.s3_server import ACCESS_KEY, SECRET_KEY
from tierdex import Index
from tierdex.errors import InvalidRequestError, StoreRefusedError, StoreUnavailableError
from tierdex.ids import SystemIds
from tierdex.settings import load_settings
from tierdex.storage_layer.cloud_store import Bucket, CloudStore, make_clients
from tierdex.storage_layer.open import open_store
from tierdex.storage_layer.probe import probe
from tierdex.testing.store_contract import StoreContract
from tools import azurite

NAMES = itertools.count(1)
MULTIPART_BYTES = 5 << 20


def new_name() -> str:
    return f"t{os.getpid()}-{next(NAMES)}"


class CloudContract(StoreContract):
    big_bytes = 20 << 20  # three parts


@pytest.mark.radosgw
class TestStoreOfObstore(CloudContract):
    many_keys = 130

    @pytest.fixture
    def store(self, radosgw):
        settings, name = load_settings(), radosgw.make_bucket()

        def make(**options):
            return S3Store(
                name, endpoint=radosgw.endpoint_url, region="us-east-1",
                access_key_id=ACCESS_KEY, secret_access_key=SECRET_KEY, **options,
            )  # fmt: skip

        clients = make_clients(make, settings, radosgw.endpoint_url)
        bucket = Bucket(*clients, f"s3://{name}", f"s3://{name}", radosgw.endpoint_url)
        return CloudStore(bucket, multipart_bytes=MULTIPART_BYTES, timeout_s=20.0)


@pytest.fixture(scope="module")
def azure_port():
    with azurite.running_azurite() as port:
        if port is None:
            pytest.skip("Azurite is not installed here: make clouds")
        yield port


@pytest.fixture
def azure_url(azure_port, monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", azurite.KEY)
    name = new_name()
    azurite.make_container(azure_port, name)
    endpoint = quote(f"http://127.0.0.1:{azure_port}/{azurite.ACCOUNT}", safe="")
    return f"az://{name}?account={azurite.ACCOUNT}&endpoint_url={endpoint}"


@pytest.fixture(scope="module")
def gcs_server():
    with running_gcs() as server:
        if server is None:
            pytest.skip("fake-gcs-server is not installed here: make clouds")
        yield server


@pytest.fixture
def gcs_url(gcs_server):
    name = new_name()
    gcs_server.make_bucket(name)
    return f"gs://{name}?endpoint_url={quote(gcs_server.url, safe='')}"


def opened(url):
    return open_store(
        url, settings=load_settings(multipart_bytes=MULTIPART_BYTES, store_attempts=2)
    )


class TestAzureStore(CloudContract):
    @pytest.fixture
    def store(self, azure_url):
        return opened(azure_url)


class TestGcsStore(CloudContract):
    @pytest.fixture
    def store(self, gcs_url):
        return opened(gcs_url)


@pytest.fixture(params=["azure_url", "gcs_url"])
def cloud_url(request):
    return request.getfixturevalue(request.param)


def test_store_of_a_cloud_proves_its_conditions(cloud_url):
    assert probe(opened(cloud_url), "", SystemIds()) > 1_600_000_000_000


def test_index_is_published_to_a_cloud_and_read_from_it_alone(cloud_url, tmp_path):
    address, _, parameters = cloud_url.partition("?")
    url = f"{address}/below/here?{parameters}"
    with Index.open(tmp_path / "data", store=url, background=False, item_capacity=4096) as index:
        index.put_batch(
            topic="t", keys=[f"k{n}" for n in range(3000)], queue_id=0, offset=list(range(3000)),
            size=1, timestamp=1,
        )  # fmt: skip
        index.roll()
        index.run_compaction()
    with Index.open(store=url, read_only=True, background=False) as reader:
        answer = reader.query("t", key="k1234")
        assert answer.complete
        assert [(entry.offset, entry.state) for entry in answer.entries] == [(1234, "uploaded")]


def test_bucket_that_does_not_exist_is_refused_by_name(cloud_url):
    address, _, parameters = cloud_url.partition("?")
    scheme = address.partition("://")[0]
    store = opened(f"{scheme}://absent-{os.getpid()}?{parameters}")
    with pytest.raises(StoreRefusedError, match=r"absent-\d+ does not exist: create it"):
        store.put("a", b"b")


def test_server_that_is_not_there_is_unavailable(monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", azurite.KEY)
    nowhere = quote("http://127.0.0.1:9/account", safe="")
    settings = load_settings(store_attempts=1)
    for url in (
        f"az://bucket?account=account&endpoint_url={nowhere}",
        f"gs://bucket?endpoint_url={nowhere}",
    ):
        store = open_store(url, settings=settings)
        for call in (lambda s: s.get("a"), lambda s: s.put("a", b""), lambda s: s.time_ms()):
            with pytest.raises(StoreUnavailableError):
                call(store)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("gs://", "needs a bucket's name"),
        ("gs://bucket?region=x", "it takes endpoint_url"),
        ("gs://me:secret@bucket", "takes no credentials"),
        ("az://UPPER?account=name", "needs a container's name"),
        ("az://box?account=No-Name", "not the name of a storage account"),
        ("az://box?account=name&endpoint_url=ftp://x", "endpoint_url is not http"),
        ("abfs://box@name.example.org/x", "needs a container's name"),
        ("az://box/../x?account=name", "its prefix may hold"),
    ],
)
def test_url_that_is_none_is_refused_without_its_secrets(url, why):
    with pytest.raises(InvalidRequestError, match=why) as refused:
        open_store(url)
    assert "secret" not in str(refused.value)


def test_account_that_is_not_named_is_asked_for(monkeypatch):
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(StoreRefusedError, match="name the account"):
        open_store("az://box")


def test_url_of_hadoop_names_the_same_container(monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", azurite.KEY)
    store = open_store("abfs://box@name.dfs.core.windows.net/below")
    assert store.url == open_store("az://box/below?account=name").url
