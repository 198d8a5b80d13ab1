"""Files of other kinds in a manifest: never asked, never removed."""

from __future__ import annotations

import pytest

from tests.index_service.conftest import offsets, put
from tests.lifecycle.rows import make_row
from tierdex.ids import SeededIds
from tierdex.lifecycle.manifests import manifest_codec
from tierdex.lifecycle.manifests.file_row import LOG_KIND
from tierdex.lifecycle.manifests.manifest import Change, Draft
from tierdex.lifecycle.manifests.manifest_log import ManifestLog
from tierdex.storage_layer.open import open_store

NODE = "n1"


@pytest.fixture
def store_url(tmp_path):
    return str(tmp_path / "store")


def list_more(store_url, clock, row, data=b"no index file"):
    """List a file beside the owner's, in the owner's name, as another part of its program would."""
    store = open_store(store_url)
    store.put(row.object_key, data)
    log = ManifestLog(store, NODE, clock=clock, ids=SeededIds(7), checkpoint_every=4)
    log.commit(lambda s: Draft(s.kind, s.epoch, s.owner, Change(add=(row,)), s.published_through))


def publish(index, offset):
    put(index, "K", offset)
    index.flush("remote")


@pytest.mark.parametrize("kind", [LOG_KIND, "another_kind"])
def test_listed_file_of_another_kind_is_neither_asked_nor_removed(
    kind, make_index, store_url, clock
):
    rules = {"retention": 3600.0, "grace_time": 0.0, "remote_interval": 0}
    index = make_index(store=store_url, node=NODE, **rules)
    publish(index, 1)
    row = make_row(
        1, node=NODE, number=7, kind=kind, topics=None, min_time=0, max_time=10**12, sealed_at_ms=0
    )
    list_more(store_url, clock, row)
    publish(index, 2)
    index.refresh()
    reader = make_index(None, store=store_url, read_only=True)
    for asked in (index, reader):
        answer = asked.query("orders", key="K", explain=True)
        assert offsets(answer) == [2, 1]
        assert answer.complete
        assert answer.explain.files_considered == 2
    clock.advance(7200)
    for _ in range(2):
        index.run_compaction()
        clock.advance(60)
    assert index.files() == []
    assert open_store(store_url).get(row.object_key) == b"no index file"


def test_reader_of_format_2_names_the_node_that_means_more(
    make_index, store_url, clock, monkeypatch
):
    index = make_index(store=store_url, node=NODE, remote_interval=0)
    publish(index, 1)
    with monkeypatch.context() as as_before:
        as_before.setattr(manifest_codec, "FORMAT_VERSION", 2)
        reader = make_index(None, store=store_url, read_only=True)
        assert offsets(reader.query("orders", key="K")) == [1]
    list_more(store_url, clock, make_row(1, node=NODE, kind=LOG_KIND))
    monkeypatch.setattr(manifest_codec, "FORMAT_VERSION", 2)
    clock.advance(120)
    reader.refresh()
    for asked in (reader, make_index(None, store=store_url, read_only=True)):
        answer = asked.query("orders", key="K")
        assert not answer.complete
        reason = answer.missing[0].reason
        assert "manifest format 3, this program reads up to 2: update it" in reason
