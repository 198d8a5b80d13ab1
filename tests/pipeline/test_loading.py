"""Spark plans and commits in processes of their own, each from a cold start: those load no kernels."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.patience import PATIENCE_S
from tests.pipeline.log_store import fill, open_log, publish
from tierdex import Index

STEPS = {
    "make the source": "TierdexDataSource({'path': '/tmp/x'}).schema()",
    "plan a scan": "TierdexDataSource({'path': sys.argv[1]}).reader(schema).partitions()",
    "plan a scan of logs": "TierdexLogSource({'path': sys.argv[1]}).reader(schema).partitions()",
    "make a writer": "TierdexDataSource({'path': sys.argv[1]}).writer(SCHEMA, False)",
    "commit": "TierdexDataSource({'path': sys.argv[1]}).writer(SCHEMA, False).commit([])",
}
CODE = """
import sys
from pyspark.sql.types import LongType, StringType, StructField, StructType
from tierdex.pipeline.data_source import TierdexDataSource
from tierdex.pipeline.logs.log_source import TierdexLogSource
schema = StructType([StructField("offset", LongType())])
numbers = ("queue_id", "offset", "size", "timestamp")
SCHEMA = StructType(
    [StructField(name, StringType()) for name in ("topic", "key")]
    + [StructField(name, LongType()) for name in numbers]
)
{step}
loaded = {{"numba", "pandas", "boto3"}} & set(sys.modules)
assert not loaded, loaded
"""


@pytest.mark.parametrize("step", STEPS)
def test_what_the_driver_side_does_loads_no_kernels(step, tmp_path):
    store = f"file://{tmp_path}/store"
    Index.open(tmp_path / "data", store=store, background=False).close()  # makes the store
    _run(STEPS[step], store)


def test_a_plan_of_a_log_with_notes_loads_no_kernels(tmp_path):
    store = f"file://{tmp_path}/store"
    with open_log(tmp_path / "data", store) as log:
        for first in (0, 40):
            fill(log, 40, first)
            publish(log)
            log.index.roll()
            log.run_compaction()
            if not first:
                log.expire(before=1 << 42)
        log.forget("b", key="k47")
    plan = "(part,) = " + STEPS["plan a scan of logs"]
    _run(plan + "; assert len(part.file.places) == 1, part", store)


def _run(step, store):
    """Do a step in a process of its own, which fails if it loaded what it should not."""
    code = CODE.format(step=step)
    done = subprocess.run(
        [sys.executable, "-c", code, store],
        capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
