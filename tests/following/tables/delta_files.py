"""Delta tables written by hand, commit by commit: what no library here writes."""

from __future__ import annotations

import json
from urllib.parse import quote

import pyarrow.parquet as pq

PLAIN = {"minReaderVersion": 1, "minWriterVersion": 2}
MAPPED = {"minReaderVersion": 2, "minWriterVersion": 5}


def column(name, kind, number=None, physical=None):
    """Return a field of a schema; with a number and a physical name it is mapped."""
    said = {}
    if number is not None:
        said = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
    return {"name": name, "type": kind, "nullable": True, "metadata": said}


def add(root, path, rows, partition=()):
    """Write a data file; return its action."""
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, file)
    return {
        "add": {
            "path": quote(path, safe="/="), "partitionValues": dict(partition),
            "size": file.stat().st_size, "modificationTime": 1, "dataChange": True,
        }
    }  # fmt: skip


def commit(root, *actions):
    """Write the next version."""
    log = root / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    version = len(list(log.glob("*.json")))
    lines = [*actions, {"commitInfo": {"timestamp": 1_700_000_000_000 + version}}]
    (log / f"{version:020}.json").write_text("\n".join(map(json.dumps, lines)))


def head(columns, partitioned_by=(), protocol=None, **configuration):
    """Return the actions that a table begins with."""
    schema = {"type": "struct", "fields": list(columns)}
    metadata = {
        "id": "6f1c", "format": {"provider": "parquet", "options": {}}, "createdTime": 1,
        "schemaString": json.dumps(schema), "partitionColumns": list(partitioned_by),
        "configuration": configuration,
    }  # fmt: skip
    return [{"protocol": protocol or PLAIN}, {"metaData": metadata}]
