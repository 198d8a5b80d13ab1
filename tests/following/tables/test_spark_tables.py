"""Tables that Delta's and Iceberg's own runtimes write: every snapshot agrees with what Spark reads of it.

There are no runtimes for Spark 4.3 yet, so a Python with pyspark 4.1 writes the tables. `LAKE_SPARK_PYTHON`
names it: `python3 -m venv there && there/bin/pip install 'pyspark>=4.1,<4.2'`, 450 MB. It needs Maven.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

import tierdex
from tests.following.tables.answers import SMALL, faults, index_once
from tests.following.tables.write_spark_tables import ICEBERG, PROPERTIES

PYTHON = os.environ.get("LAKE_SPARK_PYTHON")
pytestmark = pytest.mark.skipif(
    PYTHON is None,
    reason="LAKE_SPARK_PYTHON names no Python with pyspark 4.1: no table of Spark's runtimes is read",
)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Return the folder with the tables that Spark wrote."""
    folder = tmp_path_factory.mktemp("spark-tables")
    script = Path(__file__).with_name("write_spark_tables.py")
    given = {**os.environ, "PYSPARK_PYTHON": PYTHON, "SPARK_LOCAL_IP": "127.0.0.1"}
    made = subprocess.run(
        [PYTHON, script, folder], env=given, capture_output=True, text=True, check=False
    )
    if "UNRESOLVED DEPENDENCIES" in made.stderr or "unresolved dependency" in made.stderr:
        pytest.skip("Maven is not reachable: no table of Spark's runtimes is read")
    assert made.returncode == 0, made.stderr[-3000:]
    return folder


def checked(index, source, ids):
    """Follow a table snapshot by snapshot; compare each with its ids."""
    every = {str(number) for found in ids.values() for number in found}
    for snapshot in ids:
        index_once(index, source, "t", "id", snapshot=snapshot)
    for snapshot, found in ids.items():
        expected = Counter(map(str, found))
        assert faults(index, "t", expected, every, snapshot=snapshot) == {}, snapshot


@pytest.mark.parametrize("name", PROPERTIES)
def test_delta_table_of_spark_agrees_at_every_version(tables, tmp_path, name):
    path = tables / "delta" / name
    ids = json.loads(path.with_suffix(".json").read_text())
    assert len(ids) > 6
    with tierdex.Index.open(tmp_path / "data", **SMALL) as index:
        checked(index, f"delta:{path}", ids)
        deleted = any(s.deletes_files() for s in [index.followed_tables.state_of("t")])
        assert deleted == (name == "vectors")


@pytest.mark.parametrize("name", ICEBERG)
def test_iceberg_table_of_spark_agrees_at_every_snapshot(tables, tmp_path, name):
    path = tables / "ice" / "db" / name
    ids = json.loads(path.with_suffix(".json").read_text())
    assert len(ids) > 5
    newest = (path / "metadata" / "version-hint.text").read_text().strip()
    with tierdex.Index.open(tmp_path / "data", **SMALL) as index:
        checked(index, f"iceberg:{path}/metadata/v{newest}.metadata.json", ids)
        deleted = bool(index.followed_tables.state_of("t").deletes_files())
        assert deleted == (name != "copied")
