"""`tierdex spark`: each command, run in the session that the tests share."""

from __future__ import annotations

import contextlib
import json
import time

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from tests.patience import PATIENCE_S
from tests.pipeline.conftest import key_rows, read
from tierdex import Index
from tierdex.app.cli.commands import make_cli
from tierdex.app.cli.inputs import spark_session
from tierdex.pipeline import last_scan
from tierdex.pipeline.jobs.snapshot import take_snapshot
from tierdex.storage_layer.open import open_store
from tierdex.testing.components import components_of


def test_build_lookup_merge_and_verify(spark, run_cli, store_url, tmp_path):
    source = tmp_path / "entries.parquet"
    key_rows(spark, [f"k{n}" for n in range(50)]).write.parquet(str(source))
    (tmp_path / "keys.csv").write_text("topic,key\norders,k7\norders,nobody\n")
    for sql in ("select * from input", "select * from input where offset < 1000"):
        run_cli("build", source, store_url, "--sql", sql)
    found = json.loads(run_cli("lookup", tmp_path / "keys.csv", store_url, "-o", "json").stdout)
    assert [(row["key"], row["offset"]) for row in found["entries"]] in (
        [("k7", 700), ("nobody", None)],
        [("nobody", None), ("k7", 700)],
    )
    run_cli("lookup", tmp_path / "keys.csv", store_url, "--out", tmp_path / "out.json")
    assert spark.read.json(str(tmp_path / "out.json")).count() == 2
    merged = json.loads(run_cli("merge", store_url, "-o", "json").stdout)
    assert merged["files_merged"] == 2
    found = json.loads(run_cli("verify", store_url, "-o", "json").stdout)
    assert [file["is_sound"] for file in found["files"]] == [True, True]  # the file, its node


def test_a_lookup_says_until_when_it_knows_all_and_fails_when_that_is_too_old(
    run_cli, spark, store_url, tmp_path
):
    keys = tmp_path / "keys.csv"
    keys.write_text("topic,key\norders,k7\n")
    with Index.open(tmp_path / "data", node="broker", store=store_url, background=False) as owner:
        owner.put(topic="orders", keys=["k7"], queue_id=0, offset=7, size=1, timestamp=7)
        components_of(owner).writing.claim.get().sign()
        shown = run_cli("lookup", keys, store_url, "--on-error", "partial", "-o", "json")
        assert "everything acknowledged before " in shown.stderr
        assert "not asked: node broker (live)" in shown.stderr
        assert [row["complete"] for row in json.loads(shown.stdout)["entries"]] == [True]
        limited = ("lookup", keys, store_url, "--fresh-within", "0.001", "-o", "json")
        shown = run_cli(*limited, "--on-error", "partial", exit_code=4)
        assert "incomplete: node:broker: " in shown.stderr
        assert [row["complete"] for row in json.loads(shown.stdout)["entries"]] == [False]
        assert "older than asked for: " in run_cli(*limited, exit_code=4).stderr
        scanned = read(spark, store_url, freshWithin="0.001", onError="partial")
        assert scanned.count() == 0
        assert "node:broker" in {note.partition(": ")[0] for note in last_scan().missing}
        assert take_snapshot(open_store(store_url)).too_old(1e308, is_partial=False) == []


def test_index_and_the_pointer_that_query_shows(run_cli, store_url, tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text('{"id": "o-1", "at": 5}\n{"id": "o-2", "at": 6}\n')
    arguments = ["--key", "id", "--topic", "orders", "--timestamp", "at", "-o", "json"]
    report = json.loads(run_cli("index", log, store_url, *arguments).stdout)
    assert report == {"rows": 2, "skipped": 0, "files": 1, "bad_rows": 0, "bad_places": []}
    shown = CliRunner().invoke(
        make_cli(), ["query", "--store", store_url, "-t", "orders", "-k", "o-2", "--show"]
    )
    assert shown.exit_code == 0
    assert '"id": "o-2"' in shown.stdout


def test_index_of_a_lakes_table_and_the_row_that_query_shows(run_cli, store_url, tmp_path):
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(
        tmp_path / "orders", pa.table({"id": [1, 2], "state": ["new", "paid"]})
    )
    arguments = ["--key", "id", "--topic", "orders", "-o", "json"]
    report = json.loads(run_cli("index", f"delta:{tmp_path}/orders", store_url, *arguments).stdout)
    assert (report["rows"], report["files"]) == (2, 1)
    shown = CliRunner().invoke(
        make_cli(), ["query", "--store", store_url, "-t", "orders", "-k", "2", "--show"]
    )
    assert shown.exit_code == 0
    assert '"state": "paid"' in shown.stdout


def test_what_is_wrong_is_one_line(run_cli, spark, store_url, tmp_path):
    source = tmp_path / "entries.parquet"
    key_rows(spark, ["a", ""]).write.parquet(str(source))
    failed = run_cli("build", source, store_url, exit_code=1)
    assert failed.stderr.splitlines()[-1].startswith("error: key: partition 0, row 1: must be 1 to")
    run_cli("build", source, "memory://x", exit_code=2)
    run_cli("lookup", source, store_url, "--how", "outer", exit_code=2)
    run_cli("merge", store_url, "--conf", "nonsense", exit_code=2)


def test_damage_is_exit_code_one(run_cli, spark, store_url, tmp_path):
    from tests.pipeline.conftest import append

    append(key_rows(spark, ["a"]), store_url)
    (path,) = (tmp_path / "store" / "nodes" / "spark" / "files").iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    found = run_cli("verify", store_url, exit_code=1)
    assert "bytes" in found.stdout


def test_archive_has_another_ending(run_cli, tmp_path):
    run_cli("pack", tmp_path / "env.zip", exit_code=2)


def test_progress_of_the_running_stage_is_shown(spark, monkeypatch, tmp_path):
    shown = []
    seen = tmp_path / "seen"

    @contextlib.contextmanager
    def bar(title, *, is_bytes):
        def progress(done, total):
            shown.append((title, done, total, is_bytes))
            seen.touch()

        yield progress

    monkeypatch.setattr(spark_session, "progress_bar", bar)

    def wait(batches):
        end = time.monotonic() + PATIENCE_S
        while not seen.exists():  # the job goes on when it was seen running
            assert time.monotonic() < end
            time.sleep(0.05)
        yield from batches

    with spark_session._progress_of(spark, "build"):
        assert spark.range(2, numPartitions=1).mapInArrow(wait, "id bigint").count() == 2
    assert shown[0] == ("build", 0, 1, False)


def test_commands_share_the_options_of_the_session():
    for command in ("build", "lookup", "merge", "verify", "index"):
        text = CliRunner().invoke(make_cli(), ["spark", command, "--help"]).stdout
        for option in ("--master", "--conf", "--archive", "--executor-python", "--output"):
            assert option in text, command
