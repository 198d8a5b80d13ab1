"""`tierdex forget --source`: the entries of a file of rows."""

from __future__ import annotations

import orjson

from tests.app.cli.test_commands import SMALL


def test_forget_a_file_of_rows(run, tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text("id,at\nA-1,1000\n")
    load = (
        "load",
        "a.csv",
        "b.csv",
        "-t",
        "o",
        "-k",
        "id",
        "--timestamp",
        "at",
        *SMALL,
        "-o",
        "json",
    )
    run(*load)

    def sources():
        found = orjson.loads(run("query", "-t", "o", "-k", "A-1", "-o", "json").stdout)["entries"]
        return [entry["source"] for entry in found]

    assert len(sources()) == 2
    dry = run("forget", "--source", "a.csv", "--dry-run", *SMALL)
    assert "index files with some: 1" in dry.stderr
    assert len(sources()) == 2
    run("forget", "--source", "a.csv", *SMALL)
    assert sources() == [str(tmp_path / "b.csv")]
    assert orjson.loads(run(*load, "--again").stdout)["entries"] == 2
    assert len(sources()) == 2
    for wrong in (("--topic", "o"), ("--key", "A-1", "-t", "o"), ("--url", "http://127.0.0.1:1")):
        run("forget", "--source", "a.csv", *wrong, code=2)
