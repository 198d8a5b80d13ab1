"""What was forgotten is in no scan and no lookup of Spark's, whichever nodes are read."""

from __future__ import annotations

import pytest
from pyspark import cloudpickle

from tests.index_service.conftest import SMALL, put
from tests.pipeline.in_process import SCHEMA, run_lookup
from tierdex import Index
from tierdex.pipeline.data_source import TierdexDataSource

KEYS = ["K0", "K1", "K2"]


@pytest.fixture
def store(tmp_path):
    """A store of two nodes with three keys each, of which one was forgotten and put again."""
    url = str(tmp_path / "store")
    for node in ("a", "b"):
        with Index.open(tmp_path / node, store=url, node=node, **SMALL) as index:
            for offset, key in enumerate(KEYS):
                put(index, key, offset + (node == "b") * 10)
            index.flush("remote")
    with Index.open(tmp_path / "a", store=url, node="a", remote_interval=0, **SMALL) as index:
        assert index.forget([{"topic": "orders", "key": "K1"}]).is_complete
        put(index, "K1", 5)
        index.flush("remote")
    return url


def scan(url, **options):
    reader = TierdexDataSource({"path": url, **options}).reader(SCHEMA)
    tasks = [cloudpickle.loads(cloudpickle.dumps((reader, part))) for part in reader.partitions()]
    return sorted(
        offset
        for task, part in tasks
        for batch in task.read(part)
        for offset in batch.column(batch.schema.names.index("offset")).to_pylist()
    )


def test_forgotten_entries_are_in_no_scan_and_no_lookup(store):
    assert scan(store) == [0, 2, 5, 10, 12]
    assert scan(store, nodes='["b"]') == [10, 12]
    assert scan(store, topic='["orders"]', keys='["K1"]') == [5]
    assert run_lookup(store, KEYS, tasks=2, batch_rows=2) == {
        "K0": [10, 0],
        "K1": [5],
        "K2": [12, 2],
    }
