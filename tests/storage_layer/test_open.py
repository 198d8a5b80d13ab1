from __future__ import annotations

from pathlib import Path

import pytest

from tierdex.errors import InvalidRequestError
from tierdex.storage_layer.open import open_store


@pytest.mark.parametrize(
    "spell", [str, Path, lambda path: path.as_uri()], ids=["str", "path", "uri"]
)
def test_folder_is_a_store_however_it_is_written(tmp_path, spell):
    folder = tmp_path / "my archive"
    open_store(spell(folder)).put("a/key", b"x")
    assert (folder / "a" / "key").read_bytes() == b"x"
    assert open_store(spell(folder)).url == folder.as_uri()


def test_relative_folder_is_taken_from_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    open_store("archive").put("key", b"x")
    assert (tmp_path / "archive" / "key").exists()


def test_memory_is_shared_by_name_and_prefix_narrows_it():
    open_store("memory://test-open/node").put("key", b"x")
    assert open_store("memory://test-open").get("node/key") == b"x"
    assert open_store("memory://test-open/node/").url == "memory://test-open/node"
    assert list(open_store("memory://test-open-other").list("")) == []


def test_s3_url_is_told_back_without_credentials(aws_environment):
    url = "s3://bucket/deep/prefix?endpoint_url=http%3A%2F%2F127.0.0.1%3A1&region=eu-west-1"
    store = open_store(url)
    assert store.url == url
    store.close()


def test_s3_address_may_come_from_the_environment(aws_environment, moto_server, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto_server.endpoint_url)
    store = open_store(f"s3://{moto_server.make_bucket()}/prefix")
    store.put("key", b"x")
    assert store.get("key") == b"x"
    store.close()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://host/x",
        "ftp://bucket/x",
        "file://host/x",
        "file://",
        "file:///x?y=1",
        "s3://",
        "s3:///prefix",
        "s3://b/prefix",
        "s3://key:secret@bucket/prefix",
        "s3://bucket:9000/prefix",
        "s3://bucket/a//b",
        "s3://bucket/../other",
        "s3://bucket/ä",
        "s3://bucket/x#y",
        "s3://bucket/x?endpoint_url=127.0.0.1:9000",
        "s3://bucket/x?endpoint_url=ftp://host",
        "s3://bucket/x?endpoint_url=http://key:secret@host",
        "s3://bucket/x?endpoint_url=http://host:port",
        "s3://bucket/x?region=",
        "s3://bucket/x?region=a&region=b",
        "s3://bucket/x?secret_key=s3cr3t",
        "s3://bucket/x?region",
        "memory://a b",
        "memory://name?x=1",
        "memory://name/../x",
        "a\0b",
    ],
)
def test_bad_url_is_refused_by_name_and_not_repeated(url):
    with pytest.raises(InvalidRequestError) as caught:
        open_store(url)
    assert caught.value.field == "store"
    assert "secret" not in str(caught.value)
    assert "s3cr3t" not in str(caught.value)
