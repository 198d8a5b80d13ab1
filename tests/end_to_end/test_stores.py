"""The whole way on every store: put, roll, compact, publish, read elsewhere, take over, come back."""

from __future__ import annotations

import pytest

from tierdex import Index
from tierdex.errors import FencedError

SMALL = {
    "slot_count": 64, "item_capacity": 1000, "disk_reserve_bytes": 0, "backoff_max": 0.2,
    "compact_interval": 0.05, "remote_interval": 0.0, "refresh_interval": 0.2,
}  # fmt: skip


@pytest.fixture(params=["folder", "moto", "radosgw"])
def store_url(request, tmp_path):
    """Return the url of an empty store of each kind."""
    if request.param == "folder":
        return str(tmp_path / "store")
    server = request.getfixturevalue({"moto": "moto_server", "radosgw": "radosgw"}[request.param])
    return server.make_url("some/prefix")


def put(index, key, offset, **more):
    return index.put(
        topic="orders",
        keys=[key],
        queue_id=0,
        offset=offset,
        size=10,
        timestamp=1000 + offset,
        **more,
    )


def offsets(index, key, **more):
    answer = index.query("orders", key=key, **more)
    assert answer.complete, answer.missing
    return [entry.offset for entry in answer.entries]


def test_the_whole_way(tmp_path, store_url):
    with Index.open(tmp_path / "a", store=store_url, node="a", **SMALL) as first:
        for offset in range(50):
            put(first, f"K{offset % 5}", offset)
        assert first.flush("remote") == "remote"
        assert [file.state for file in first.files()] == ["uploaded"]
        expected = [48, 43, 38, 33, 28, 23, 18, 13, 8, 3]
        answer = first.query("orders", key="K3", explain=True)
        assert [entry.offset for entry in answer.entries] == expected
        assert (answer.explain.requests, answer.explain.sidecar_requests) == (1, 0)
        answer = first.query("orders", key="absent", explain=True)
        assert (answer.entries, answer.explain.requests) == ([], 0)

        with Index.open(store=store_url, **SMALL) as reader:  # no folder: at most one request more
            answer = reader.query("orders", key="K3", explain=True)
            assert [entry.offset for entry in answer.entries] == expected
            assert (answer.explain.requests, answer.explain.sidecar_requests) == (1, 1)

        with Index.open(tmp_path / "b", store=store_url, node="b", **SMALL) as second:
            put(second, "K3", 100, durability="remote")
            assert offsets(second, "K3") == [100, *expected]
            first.refresh()
            assert offsets(first, "K3") == [100, *expected]

        put(first, "K3", 200, durability="disk")
        with Index.open(tmp_path / "c", store=store_url, node="a", takeover=True, **SMALL) as heir:
            assert heir.watermark("orders", 0)["remote"] == 59
            assert offsets(heir, "K3") == [100, *expected]
            put(heir, "K3", 300, durability="remote")
            with pytest.raises(FencedError):
                first.flush("remote")
            with pytest.raises(FencedError):
                put(first, "K3", 400)
            first.refresh()
            assert 200 in offsets(first, "K3")  # it keeps answering

    # What the fenced folder kept is published under another name; nothing is lost.
    with Index.open(tmp_path / "a", store=store_url, node="d", adopt=True, **SMALL) as adopted:
        adopted.roll()
        adopted.flush("remote")
        adopted.refresh()
        assert sorted(offsets(adopted, "K3")) == sorted([100, 200, 300, *expected])
    with Index.open(store=store_url, **SMALL) as reader:
        assert sorted(offsets(reader, "K3")) == sorted([100, 200, 300, *expected])


def test_a_node_comes_back_from_the_bucket_alone(tmp_path, store_url):
    with Index.open(tmp_path / "a", store=store_url, node="a", **SMALL) as index:
        for offset in range(20):
            put(index, "A", offset)
            if offset % 5 == 4:
                index.flush("remote")
        before = [(e.offset, e.file_id) for e in index.query("orders", key="A").entries]
        cursor = index.query("orders", key="A", max_count=7).next_cursor
    with Index.open(tmp_path / "new", store=store_url, node="a", takeover=True, **SMALL) as index:
        answer = index.query("orders", key="A")
        assert [(e.offset, e.file_id) for e in answer.entries] == before
        assert offsets(index, "A", cursor=cursor) == list(range(12, -1, -1))
        put(index, "A", 20, durability="remote")
        assert offsets(index, "A") == list(range(20, -1, -1))
