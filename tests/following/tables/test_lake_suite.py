"""Delta tables of delta-kernel-rs, where ../shared has them: each agrees with deltalake's SQL, or is refused.

At every version that deltalake reads, each row is found by each scalar column, and nothing else is found. The
refusals are in `refused.json`, by their texts.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

import tierdex
from tests.following.tables.answers import SMALL, faults, index_once, keys_of
from tierdex.errors import TierdexError

TABLES = Path(__file__).parents[4] / "shared" / "lake-tables" / "kernel"
REFUSED = json.loads(Path(__file__).with_name("refused.json").read_text())
LARGE = {
    "300k-add-files-100-col-partitioned"
}  # 300,000 files that are not there: see the benchmark

pytest.importorskip("deltalake")
pytestmark = pytest.mark.skipif(
    not TABLES.is_dir(),
    reason="../shared/lake-tables is not there: delta-kernel-rs' tables are not read",
)


def names():
    if not TABLES.is_dir():
        return []
    found = {path.name.removesuffix(".tar.zst") for path in TABLES.iterdir()}
    return sorted(name for name in found - LARGE if not name.endswith(".in"))


@pytest.fixture
def tables(request, tmp_path):
    """Return the tables of a name, unpacked: some have one a column mapping."""
    name = request.param
    packed = TABLES / f"{name}.tar.zst"
    folder = TABLES / name
    if packed.exists():
        unpacked = subprocess.run(["zstd", "-dcq", packed], capture_output=True, check=False)
        if unpacked.returncode:
            pytest.skip("zstd is not here: packed tables are not read")
        subprocess.run(["tar", "-x", "-C", tmp_path], input=unpacked.stdout, check=True)
        folder = tmp_path / name
    return name, sorted(log.parent for log in folder.rglob("_delta_log"))


def rows_at(path, version):
    from deltalake import DeltaTable, QueryBuilder

    table = DeltaTable(path, version=version)
    found = QueryBuilder().register("t", table).execute("select * from t")
    return pa.table(found.read_all())


def readable_versions(path):
    from deltalake import DeltaTable

    for version in range(DeltaTable(path).version() + 1):
        try:
            yield version, rows_at(path, version)
        except Exception:  # noqa: BLE001 - what the other library refuses, it raises as anything
            continue


@pytest.mark.parametrize("tables", names(), indirect=True)
def test_table_agrees_with_deltalake_at_every_version_or_is_refused(tables, tmp_path):
    name, paths = tables
    for path in paths:
        with tierdex.Index.open(tmp_path / "data", **SMALL) as index:
            topic = str(path.relative_to(path.parents[1]))
            try:
                wrong = differences(index, path, topic)
            except TierdexError as error:
                told = re.sub(r"part-\S+", "FILE", str(error).replace(str(path), "TABLE"))
                assert REFUSED.get(name) == told, f"{name} is refused: {told}"
                continue
            assert name not in REFUSED
            assert wrong == {}


def differences(index, path, topic):
    try:
        versions = list(readable_versions(path))
    except Exception:  # noqa: BLE001 - as above
        versions = []
    source = f"delta:{path}"
    if not versions:
        index_once(index, source, topic, first_column(path))
    wrong = {}
    columns = [field.name for field in versions[-1][1].schema if is_scalar(field.type)]
    for number, column in enumerate(columns):
        ever = set()
        for version, rows in versions:
            if column not in rows.column_names:
                continue
            expected = keys_of(rows, column)
            index_once(index, source, f"{topic}.{number}", column, snapshot=version)
            found = faults(index, f"{topic}.{number}", expected, ever)
            if found:
                wrong[column, version] = found
            ever |= expected.keys()
    return wrong


def first_column(path):
    from deltalake import DeltaTable

    try:
        return DeltaTable(path).schema().fields[0].name
    except Exception:  # noqa: BLE001 - as above
        return "id"


def is_scalar(kind):
    return not pa.types.is_nested(kind) and not pa.types.is_null(kind)
