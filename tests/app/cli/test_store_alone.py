"""A store that is named alone is read by itself: what lies in the folder ./data is of another one."""

from __future__ import annotations

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from tests.app.cli.conftest import SMALL


def test_store_alone_is_shown_without_the_log_that_lies_in_the_folder_data(run, tmp_path):
    run("log", "append", "-t", "orders", "-q", "0", "-k", "A-1", "other", *SMALL)  # makes ./data
    rows = pa.table({"id": ["A-1"], "at": [1000], "what": ["tea"]})
    pq.write_table(rows, tmp_path / "orders.parquet")
    loading = (
        "--data",
        "loaded",
        "--store",
        "kept",
        "-t",
        "orders",
        "-k",
        "id",
        "--timestamp",
        "at",
    )
    run("load", "orders.parquet", *loading, *SMALL)
    (tmp_path / "notes.csv").write_text("id,at\nB-1,1000\n")
    run("load", "notes.csv", *loading, *SMALL)
    run("compact", "--roll", "--data", "loaded", "--store", "kept")
    shown = run("query", "-t", "orders", "-k", "A-1", "--store", "kept", "--show", "-o", "json")
    (entry,) = orjson.loads(shown.stdout)["entries"]
    assert orjson.loads(entry["message"]["text"]) == {"id": "A-1", "at": 1000, "what": "tea"}
    shown = run("query", "-t", "orders", "-k", "B-1", "--store", "kept", "--show", "-o", "json")
    (entry,) = orjson.loads(shown.stdout)["entries"]
    assert entry["message"]["text"] == "B-1,1000"


def test_store_of_the_folder_data_is_asked_together_with_it(run):
    own = ("--store", "kept", *SMALL)
    run("log", "append", "-t", "orders", "-q", "0", "-k", "A-1", "not published", *own)
    found = run("log", "get", "-t", "orders", "-k", "A-1", "--store", "kept", "-o", "json")
    assert [each["body"] for each in orjson.loads(found.stdout)["messages"]] == ["not published"]
    run("compact", "--roll", "--store", "kept")
    shown = run("query", "-t", "orders", "-k", "A-1", "--store", "kept", "--show", "-o", "json")
    (entry,) = orjson.loads(shown.stdout)["entries"]
    assert entry["message"]["body"] == "not published"


def test_log_of_a_store_alone_is_read_without_the_one_in_the_folder_data(run):
    run("log", "append", "-t", "orders", "-q", "0", "-k", "A-1", "mine", *SMALL)  # makes ./data
    other = ("--data", "other", "--store", "kept", *SMALL)
    run("log", "append", "-t", "orders", "-q", "0", "-k", "A-1", "published", *other)
    run("compact", "--roll", "--data", "other", "--store", "kept")
    found = run("log", "get", "-t", "orders", "-k", "A-1", "--store", "kept", "-o", "json")
    assert [each["body"] for each in orjson.loads(found.stdout)["messages"]] == ["published"]
    shown = run("query", "-t", "orders", "-k", "A-1", "--store", "kept", "--show", "-o", "json")
    (entry,) = orjson.loads(shown.stdout)["entries"]
    assert entry["message"]["body"] == "published"
