"""How `tierdex load` ends, and what it says where rows are left out."""

from __future__ import annotations

import orjson
import pytest

from tests.app.cli.conftest import SMALL

LOAD = ("-t", "o", "-k", "id", *SMALL, "-o", "json")


def test_line_that_waits_is_said_loudly_and_ends_with_4(run, tmp_path):
    (tmp_path / "a.csv").write_text("id,n\nA-1,1\nA-12")
    said = run("load", "a.csv", *LOAD, code=4)
    assert orjson.loads(said.stdout)["waiting"] == [f"{tmp_path}/a.csv:3"]
    assert f"{tmp_path}/a.csv:3: the last line has no line break" in said.stderr
    run("query", "-t", "o", "-k", "A-12", code=3)
    run("load", "a.csv", *LOAD, code=4)
    (tmp_path / "a.csv").write_text("id,n\nA-1,1\nA-12,2")
    assert "waiting" in run("load", "a.csv", *LOAD, "--take-last-line").stdout
    run("query", "-t", "o", "-k", "A-12")


def test_load_that_indexes_nothing_of_its_rows_ends_with_1_and_names_the_columns(run, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"order":{"id":1}}\n{"order":{"id":2}}\n')
    assert "nothing was indexed: id had no value in any of 2 rows" in run(
        "load", "a.jsonl", *LOAD, code=1
    ).stderr  # fmt: skip
    run("load", "a.jsonl", "-t", "o", "-k", "order.id", *SMALL)
    run("query", "-t", "o", "-k", "2")


@pytest.mark.parametrize("text", ["null\n", 'null\n{"id":"A"}\n', "null"])
def test_first_line_null_is_refused_by_its_place_and_ends_no_process(run, tmp_path, text):
    (tmp_path / "a.jsonl").write_text(text)
    code, said = (4, "no line break") if text == "null" else (2, "is not a JSON object")
    assert f"a.jsonl:1: {said}" in run("load", "a.jsonl", *LOAD, code=code).stderr.replace(
        "the last line has ", ""
    )


def test_file_of_a_folder_that_is_refused_is_named_and_the_others_go_on_from_there(run, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("id\nA\n")
    (tmp_path / "in" / "b.csv").write_bytes(b"id\rB\r")
    assert "b.csv has no line feed" in run("load", "in", *LOAD, code=2).stderr
    (tmp_path / "in" / "b.csv").unlink()
    run("query", "-t", "o", "-k", "A")
