"""The command line over an embedded index: output, exit codes, refusals."""

from __future__ import annotations

import csv
import gzip
import io
import os
import signal
from pathlib import Path

import orjson
import pytest
import typer

from tests.app.cli.conftest import SMALL
from tests.damaged_manifests import DAMAGES, write_two_nodes
from tests.rocketmq.rocketmq_files import make_vector
from tests.servers.tierdex_server import running_tierdex
from tierdex.app.cli.commands import COMMANDS, make_cli
from tierdex.app.cli.commands.cost import Prices, Requests, Stored, counted_requests, monthly_bill
from tierdex.app.cli.terminal.exits import reporting
from tierdex.app.cli.terminal.options import Form
from tierdex.app.cli.terminal.output import write_fields
from tierdex.app.keys import KeyFile
from tierdex.clock import SystemClock
from tierdex.filesystem import LocalFileSystem
from tierdex.ids import SystemIds
from tierdex.index_service.index import Index
from tierdex.settings import Settings

WITHOUT_OUTPUT = {"serve", "mcp", "keys create", "keys remove", "keys digest", "nodes retire"}
LOCAL = f"node:{Settings().node}"
ONE = ("-t", "orders", "-k", "ORDER-1", "-i", "M-1", "--offset", "4096", "--size", "512",
       "--timestamp", "2023-11-14T22:13:20Z")  # fmt: skip


def test_what_was_put_is_found_in_every_form(run, put):
    assert "disk" in put(*ONE).stdout
    found = run("query", "-t", "orders", "-k", "ORDER-1", "-o", "json")
    (entry,) = orjson.loads(found.stdout)["entries"]
    assert (entry["offset"], entry["timestamp"]) == (4096, 1_700_000_000_000)
    line = orjson.loads(run("query", "-i", "M-1", "-o", "ndjson").stdout)
    assert line == entry
    rows = list(csv.DictReader(io.StringIO(run("query", "-i", "M-1", "-o", "csv").stdout)))
    assert [row["offset"] for row in rows] == ["4096"]
    assert "2023-11-14T22:13:20.000Z" in run("query", "-i", "M-1").stdout


def test_absent_key_ends_with_3_and_topic_without_key_with_2(run, put):
    put(*ONE)
    assert "not found" in run("query", "-t", "orders", "-k", "none", code=3).stderr
    assert orjson.loads(run("query", "-i", "x", "-o", "json", code=3).stdout)["entries"] == []
    assert "key" in run("query", "-t", "orders", code=2).stderr


def test_time_range_is_inclusive_and_takes_both_spellings(run, put):
    put(*ONE)
    for begin, end, code in [
        ("1700000000000", "2023-11-14T22:13:20Z", 0),
        ("1700000000001", "1800000000000", 3),
        ("2023-11-14T22:13:21+01:00", "1700000000000", 0),
    ]:
        run("query", "-t", "orders", "-k", "ORDER-1", "-b", begin, "-e", end, code=code)
    refused = run("query", "-t", "o", "-k", "k", "-b", "soon", code=2).stderr
    assert "--begin: 'soon' is no time" in refused


def test_damaged_file_makes_the_answer_incomplete_and_ends_with_4(run, put, tmp_path):
    put(*ONE)
    run("compact", "--roll", *SMALL)
    (published,) = (tmp_path / "data" / "store").rglob("files/*")
    published.unlink()
    result = run("query", "-t", "orders", "-k", "ORDER-1", code=4)
    assert "incomplete" in result.stderr
    assert "not found" not in result.stderr
    result = run("query", "-t", "orders", "-k", "ORDER-1", "--on-error", "fail", code=4)
    assert "error" in result.stderr


def test_published_entry_is_found_and_explained(run, put):
    put(*ONE)
    told = run("compact", "--roll", *SMALL).stdout
    assert {line.split()[0] for line in told.splitlines() if line.strip(" ─")} == {
        "field", "done", "backlog_files", "backlog_bytes", "sealed", "compacted", "published", "items",
        "bytes",
    }  # fmt: skip
    whole = orjson.loads(run("compact", *SMALL, "-o", "json").stdout)
    assert "times" in whole
    (file,) = orjson.loads(run("files", "-o", "json").stdout)["files"]
    assert file["state"] == "uploaded"
    result = run("query", "-t", "orders", "-k", "ORDER-1", "--explain")
    assert "requests=1" in result.stderr
    answer = orjson.loads(run("query", "-i", "M-1", "--explain", "-o", "json").stdout)
    assert answer["explain"]["requests"] == 1
    assert "uploaded" in run("files").stdout


def test_json_lines_are_put_all_or_none(run, put):
    lines = [
        {"topic": "t", "keys": [f"k{n}", "all"], "queue_id": 0, "offset": n, "size": 1,
         "timestamp": n} for n in range(3)
    ]  # fmt: skip
    stdin = b"\n".join(map(orjson.dumps, lines))
    assert orjson.loads(put("--lines", "-", "-o", "json", stdin=stdin).stdout)["accepted"] == 3
    found = run("query", "-t", "t", "-k", "all", "-o", "json")
    assert len(orjson.loads(found.stdout)["entries"]) == 3
    bad = stdin + b'\n{"topic": "t"}'
    assert "entries[3].queue_id" in put("--lines", "-", stdin=bad, code=2).stderr
    found = run("query", "-t", "t", "-k", "all", "-o", "json")
    assert len(orjson.loads(found.stdout)["entries"]) == 3


def test_pages_are_followed_by_the_cursor(run, put):
    for offset in ("1", "2", "3"):
        put("-t", "t", "-k", "k", "--offset", offset, "--timestamp", "1")
    first = run("query", "-t", "t", "-k", "k", "-m", "2", "-o", "csv")
    cursor = first.stderr.split("--cursor ")[1].strip()
    rest = run("query", "-t", "t", "-k", "k", "-m", "2", "--cursor", cursor, "-o", "ndjson")
    assert orjson.loads(rest.stdout)["offset"] == 1
    run("query", "-t", "t", "-k", "other", "--cursor", cursor, code=2)


def test_loaded_row_is_shown(run, tmp_path):
    (tmp_path / "orders.csv").write_text("id,at,what\nA-1,1000,tea\nA-2,2000,milk\n")
    run("load", "orders.csv", "-t", "orders", "-k", "id", "--timestamp", "at", *SMALL)
    result = run("query", "-t", "orders", "-k", "A-2", "--show")
    assert "A-2,2000,milk" in result.stdout
    shown = orjson.loads(run("query", "-t", "orders", "-k", "A-1", "--show", "-o", "json").stdout)
    assert shown["entries"][0]["message"]["body"] == "A-1,1000,tea"


def test_message_gives_a_terminal_no_orders(run, tmp_path):
    (tmp_path / "a.csv").write_text("id,at,what\nA-1,1000,\x1b]0;mine\x07\x1b[8mtea\x9b2J\n")
    run("load", "a.csv", "-t", "orders", "-k", "id", "--timestamp", "at", *SMALL)
    shown = run("query", "-t", "orders", "-k", "A-1", "--show").stdout
    assert "A-1,1000,\\x1b]0;mine\\x07\\x1b[8mtea\\x9b2J" in shown
    assert not any(char in shown for char in "\x1b\x07\x9b")
    row = orjson.loads(run("query", "-t", "orders", "-k", "A-1", "--show", "-o", "json").stdout)
    assert "\x1b]0;mine" in row["entries"][0]["message"]["body"]  # programs get what there is


def test_folder_is_loaded_with_bad_rows_left_out_then_known(run, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("id,at\nA-1,1000\nA-2,soon\n")
    (tmp_path / "in" / "b.jsonl.gz").write_bytes(gzip.compress(b'{"id": "B-1", "at": 2000}\n'))
    (tmp_path / "in" / "read.me").touch()
    load = ("load", "in", "-t", "orders", "-k", "id", "--timestamp", "at", *SMALL, "-o", "json")
    assert "a.csv:3: timestamp 'soon'" in run(*load, code=2).stderr
    result = run(*load, "--skip-bad")
    said = orjson.loads(result.stdout)
    counts = {name: said[name] for name in ("files", "left_out", "rows", "entries", "bad_rows")}
    assert counts == {"files": 2, "left_out": 1, "rows": 3, "entries": 2, "bad_rows": 1}
    assert "bad-rows.jsonl" in result.stderr
    (bad,) = map(orjson.loads, (tmp_path / "bad-rows.jsonl").read_text().splitlines())
    assert bad["row"] == "A-2,soon"
    assert bad["place"] == f"{tmp_path}/in/a.csv:3"
    assert "B-1" in run("query", "-t", "orders", "-k", "B-1", "--show").stdout
    assert orjson.loads(run(*load, "--skip-bad").stdout)["entries"] == 0


def test_load_into_a_service_remembers_in_the_file_that_is_named(run, tmp_path):
    orders = tmp_path / "orders.csv"
    orders.write_text("id,at\nA-1,1000\n")
    os.utime(orders, (1_700_000_000, 1_700_000_000))  # settled: a time of just now proves nothing
    load = ("load", "orders.csv", "-t", "orders", "-k", "id", "--timestamp", "at", "-o", "json")
    with running_tierdex(tmp_path / "served") as server:
        there = ("--url", server.url)
        for notes, entries in ((("--notes", "loads.json"), (1, 0)), ((), (1, 1))):
            for wanted in entries:
                said = orjson.loads(run(*load, *there, *notes).stdout)
                assert (said["entries"], said["unchanged"]) == (wanted, 1 - wanted)
        with orders.open("a") as grown:
            grown.write("A-2,2000\n")
        assert orjson.loads(run(*load, *there, "--notes", "loads.json").stdout)["entries"] == 1
        answer = orjson.loads(
            run("query", "-t", "orders", "-k", "A-2", "-o", "json", *there).stdout
        )
        assert [entry["timestamp"] for entry in answer["entries"]] == [2_000_000]
    assert not (tmp_path / "data").exists()
    assert "--notes" in run(*load, "--notes", "loads.json", code=2).stderr


def test_ctrl_c_ends_a_load_at_a_piece_and_the_next_one_goes_on(run, tmp_path, monkeypatch):
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text(f"id,at\n{name},1000\n")
    put_batch = Index.put_batch

    def put_and_interrupt(self, **columns):
        os.kill(os.getpid(), signal.SIGINT)
        return put_batch(self, **columns)

    load = ("load", "*.csv", "-t", "o", "-k", "id", "--timestamp", "at", *SMALL, "-o", "json")
    monkeypatch.setattr(Index, "put_batch", put_and_interrupt)
    stopped = run(*load, code=130)
    assert f"interrupted at {tmp_path}/a.csv:3, after 1 rows" in stopped.stderr
    assert orjson.loads(stopped.stdout)["entries"] == 1
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert orjson.loads(run(*load).stdout)["entries"] == 1
    for name in "ab":
        assert run("query", "-t", "o", "-k", name)


def test_inspect_and_verify_tell_a_sound_file_from_a_damaged_one(run, put, tmp_path):
    put(*ONE)
    run("compact", "--roll", *SMALL)
    (published,) = (tmp_path / "data" / "store").rglob("files/*")
    shown = orjson.loads(run("inspect", str(published), "-o", "json").stdout)
    assert shown["min_time"] == 1_700_000_000_000
    for tell in (
        ("inspect", str(published)),
        ("files",),
        ("expire", "--before", "now", "--dry-run", *SMALL),
    ):
        assert "2023-11-14T22:13:20.000Z" in run(*tell).stdout
    for place in (str(published), "data", "data/store"):
        *nodes, finding = orjson.loads(run("verify", place, "-o", "json").stdout)["files"]
        assert [node["file_id"] for node in nodes] == ([] if place == str(published) else [LOCAL])
        assert all(each["sound"] for each in (*nodes, finding))
    damaged = bytearray(published.read_bytes())
    damaged[4100] ^= 1
    published.write_bytes(damaged)
    for place in (str(published), "data", "data/store"):
        *_, finding = orjson.loads(run("verify", place, "-o", "json", code=1).stdout)["files"]
        assert finding["problems"]
    run("verify", "nowhere", code=1)
    assert "nowhere" in run("inspect", "nowhere", code=1).stderr


def test_failed_system_call_names_its_path_and_what_to_do(run, tmp_path, monkeypatch):
    (tmp_path / "o.csv").write_text("id\nA\n")
    said = run("put", *ONE, "--data", "o.csv/data", *SMALL, code=1).stderr
    assert f"{tmp_path}/o.csv" in said
    assert "name another one" in said
    said = run("put", "--lines", "none.jsonl", *SMALL, code=1).stderr
    assert "none.jsonl" in said
    assert "name another one" in said
    for form in Form:
        full = open("/dev/full", "w")  # noqa: SIM115 - closing it fails as well
        with monkeypatch.context() as patch:
            patch.setattr("sys.stdout", full)
            with pytest.raises(OSError, match="the standard output"):
                write_fields(form, {"a": 1})
        with pytest.raises(OSError, match="No space left"):
            full.close()


def test_every_command_that_prints_results_prints_them_in_every_form():
    cli = typer.main.get_command(make_cli())
    without = {
        " ".join(names)
        for names, command in _commands(cli, ())
        if not any(option.name == "output" for option in command.params)
    }
    # They serve, change one thing without a result, or print one word for a program to read.
    assert without == WITHOUT_OUTPUT


def _commands(group, names):
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, (*names, name))
        else:
            yield (*names, name), command


@pytest.mark.parametrize("state", ["unsealed", "sealed", "grouped"])
def test_inspect_and_verify_know_log_files(run, state, tmp_path):
    sound = Path(__file__).parents[2] / "data" / f"v1_log_{state}.tdl"
    shown = orjson.loads(run("inspect", str(sound), "-o", "json").stdout)
    assert shown["message_count"] == 27
    assert run("inspect", str(sound)).stdout
    run("verify", str(sound))
    damaged = bytearray(sound.read_bytes())
    damaged[4200] ^= 1
    (tmp_path / "damaged").write_bytes(damaged)
    # Of an unsealed journal what does not verify is its end, as after any crash.
    run("verify", str(tmp_path / "damaged"), code=0 if state == "unsealed" else 1)


def test_inspect_and_verify_know_the_files_of_rocketmq(run, tmp_path):
    for name, form in (("local", "local"), ("run", "compacted")):
        path = tmp_path / name
        writer = make_vector()
        is_local = form == "local"
        path.write_bytes(writer.local_bytes(ended=False) if is_local else writer.compacted_bytes())
        shown = orjson.loads(run("inspect", str(path), "-o", "json").stdout)
        assert (shown["format"], shown["form"], shown["item_count"]) == ("rocketmq", form, 10)
        assert run("inspect", str(path)).stdout
        (finding,) = orjson.loads(run("verify", str(path), "-o", "json").stdout)["files"]
        assert finding == {"file_id": str(path), "sound": True, "problems": []}
        path.write_bytes(path.read_bytes()[:100])
        (finding,) = orjson.loads(run("verify", str(path), "-o", "json", code=1).stdout)["files"]
        assert finding["problems"]
    (tmp_path / "text").write_text("neither of the two")
    assert (
        "unknown magic"
        in run("verify", "text", code=1).stdout + run("inspect", "text", code=1).stderr
    )


def test_expiry_names_files_and_then_drops_them(run, put):
    put(*ONE)
    run("compact", "--roll", *SMALL)
    far = ("--before", "2999-01-01T00:00:00Z")
    dry = orjson.loads(run("expire", *far, "--dry-run", "-o", "json", *SMALL).stdout)
    assert len(dry["files"]) == 1
    run("query", "-i", "M-1")
    run("expire", *far, *SMALL)
    run("query", "-i", "M-1", code=3)


def test_proof_of_an_answer_is_checked_against_the_store_alone(run, put, tmp_path):
    put(*ONE)
    run("compact", "--roll", *SMALL)
    asked = ("query", "-t", "orders", "-k", "never sent", "--explain", "--proof")
    told = run(*asked, "-o", "json", code=3).stdout
    file = tmp_path / "proof.json"
    file.write_text(told)
    store = str(tmp_path / "data" / "store")
    sound = orjson.loads(run("verify", store, "--proof", str(file), "-o", "json").stdout)
    assert (sound["sound"], sound["absent"]) == (True, True)
    assert sound["time_ms"] == orjson.loads(told)["explain"]["proof"]["time_ms"]
    file.write_text(told.replace('"filter"', '"pages"'))
    assert "was altered" in run("verify", store, "--proof", str(file), code=1).stdout
    for wrong in ("{}", "no JSON"):
        file.write_text(wrong)
        run("verify", store, "--proof", str(file), code=2)
    run(*asked, code=2)  # a table has no room for it
    run("verify", code=2)


def test_keys_are_forgotten_and_the_receipt_says_where_they_were(run, put, tmp_path):
    put(*ONE)
    run("compact", "--roll", *SMALL)
    key = ("-t", ONE[ONE.index("-t") + 1], "-k", ONE[ONE.index("-k") + 1])
    dry = orjson.loads(run("forget", *key, "--dry-run", "-o", "json", *SMALL).stdout)
    assert len(dry["entries"]) == 1
    run("query", *key)
    done = orjson.loads(run("forget", *key, "--now", "-o", "json", *SMALL).stdout)
    assert (done["complete"], done["holding"], len(done["rewritten"])) == (True, [], 1)
    run("query", *key, code=3)
    resumed = run("forget", "--resume", done["forgetting"], *SMALL).stderr
    assert "at least: " in resumed  # the objects of before are deleted after their grace time
    assert "it is done" in run("forget", "--resume", "f" * 32, *SMALL, code=1).stderr
    names = tmp_path / "names"
    names.write_text('{"message_id": "M-1"}\nK\n')
    told = run("forget", "-t", "orders", "--file", str(names), *SMALL)
    assert "1 entries, sha256:" in told.stderr
    run("query", "-i", "M-1", code=3)
    for wrong in ((), ("-k", "K"), ("--resume", "x", *key), ("--at", "1", *key)):
        run("forget", *wrong, *SMALL, code=2)


def test_missing_data_folder_is_an_error_and_is_not_made(run, tmp_path):
    assert "no data folder" in run("query", "-t", "t", "-k", "k", code=1).stderr
    assert "no data folder" in run("files", "--data", "elsewhere", code=1).stderr
    assert list(tmp_path.iterdir()) == []


def test_folder_in_use_names_the_holder(run, put, tmp_path):
    from tierdex.index_service.index import Index

    with Index.open(tmp_path / "data", slot_count=1024, item_capacity=4096, background=False):
        result = put(*ONE, code=1)
        assert "pid" in result.stderr
        run("files")  # reading works beside the writer


def test_url_and_data_together_are_refused(run):
    assert "--url" in run("files", "--url", "http://localhost:1", "--data", "d", code=2).stderr


@pytest.mark.parametrize("pair", ["slot_count", "slot_count=many", "no_such_setting=1", "=1"])
def test_bad_setting_is_refused(run, pair):
    run("put", *ONE, "--set", pair, code=2)


def test_unknown_option_ends_with_2(run):
    run("query", "--topik", "t", code=2)
    run("no-such-command", code=2)


def test_every_command_explains_itself(run):
    text = run("--help").stdout
    for name in (*COMMANDS, "keys"):
        assert name in text
        assert run(name, "--help").stdout
    assert "0.1.0" in run("--version").stdout


def test_key_is_shown_once_and_works_until_it_is_removed(run, tmp_path):
    key = run("keys", "create", "--scope", "write", "--name", "broker").stdout.strip()
    path = tmp_path / "data" / "keys.json"

    def key_file():
        return KeyFile(LocalFileSystem(), path, clock=SystemClock(), ids=SystemIds())

    assert str(key_file().identify(key).rights) == "write"
    (row,) = orjson.loads(run("keys", "list", "-o", "json").stdout)["keys"]
    assert (row["name"], row["scope"]) == ("broker", "write")
    assert key not in run("keys", "list").stdout
    run("keys", "remove", row["id"])
    run("keys", "remove", row["id"], code=1)
    assert len(key_file()) == 0
    run("keys", "create", "--scope", "root", code=2)


def test_service_is_not_exposed_without_keys(run, tmp_path):
    result = run("serve", "--host", "0.0.0.0", "--port", "0", code=2)
    assert "keys create" in result.stderr
    assert not (tmp_path / "data").exists()


def test_bill_is_storage_and_requests():
    requests = Requests(puts=10, live_records=20, lists=30, refreshes=40, lookups=1000, peers=5)
    index, log = Stored(2, 1 << 27, 2 << 30), Stored(3, 1000, (1 << 30) - 4096)
    bill = monthly_bill(index, log, Stored(1, 0, 4096), requests, Prices(0.02, 0.001, 0.0001))
    assert bill["bytes_an_item"] == 16.0
    assert (bill["log_bytes"], bill["log_notes_bytes"]) == ((1 << 30) - 4096, 4096)
    assert bill["storage_usd_month"] == pytest.approx(0.06)
    assert bill["writes_usd_month"] == pytest.approx(0.03)
    assert bill["refreshes_usd_month"] == pytest.approx(0.034)
    assert bill["lookups_usd_month"] == pytest.approx(0.1)
    assert bill["total_usd_month"] == pytest.approx(0.224)
    assert bill["uploads_usd_once"] == pytest.approx(0.012)


def test_a_service_tells_the_requests_of_a_bill_by_its_metrics():
    metrics = """# HELP tierdex_store_requests_total requests to the store, by purpose and verb
tierdex_store_requests_total{purpose="lookups",verb="get"} 100.0
tierdex_store_requests_total{purpose="manifests",verb="get"} 50.0
tierdex_store_requests_total{purpose="manifests",verb="head"} 10.0
tierdex_store_requests_total{purpose="manifests",verb="list_folders"} 10.0
tierdex_store_requests_total{purpose="manifests",verb="put"} 5.0
tierdex_store_requests_total{purpose="manifests",verb="put_if_absent"} 2.0
tierdex_store_requests_total{purpose="other",verb="get"} 7.0
tierdex_store_requests_total{purpose="other",verb="upload"} 1.0
tierdex_peer_requests_total{outcome="answered"} 3.0
tierdex_peer_requests_total{outcome="failed"} 1.0
tierdex_start_time_seconds 1.7e+09
"""
    requests, seconds = counted_requests(metrics, 1.7e9 + 86_400)
    assert seconds == 86_400
    assert requests == Requests(
        puts=90,
        live_records=150,
        lists=300,
        refreshes=1800,
        lookups=3000,
        maintenance=210,
        peers=120,
    )


def test_cost_counts_published_files_only(run, put):
    put(*ONE)
    assert orjson.loads(run("cost", "-o", "json").stdout)["files"] == 0
    run("compact", "--roll", *SMALL)
    assert orjson.loads(run("cost", "-o", "json").stdout)["files"] == 1


def test_merge_makes_a_run_that_answers_like_its_files(run, put):
    query = ("query", "-t", "orders", "-k", "K", "--store", "data/store", "-o", "json")
    for offset in ("1", "2"):
        put("-t", "orders", "-k", "K", "--offset", offset, "--size", "1", "--timestamp", offset)
        run("compact", "--roll", *SMALL)
    before = run(*query)
    report = run("merge", "data/store", "--older-than-hours", "0", "--min-files", "2", "-o", "json")
    assert orjson.loads(report.stdout)["files_merged"] == 2
    after = run(*query)
    found = [orjson.loads(answer.stdout)["entries"] for answer in (before, after)]
    assert [[entry["offset"] for entry in entries] for entries in found] == [[2, 1], [2, 1]]
    assert {entry["node"] for entry in found[1]} == {"runs"}
    bill = orjson.loads(run("cost", "--store", "data/store", "-o", "json").stdout)
    assert (bill["files"], bill["puts_month"]) == (1, 6)  # two files, and the run of both


def test_bench_measures(run):
    rows = orjson.loads(run("bench", "--entries", "2000", "-o", "json").stdout)["measured"]
    assert [row["what"] for row in rows] == ["put_batch", "query_batch", "query"]
    run("bench", "--entries", "1", code=2)


@pytest.mark.parametrize("damage", DAMAGES)
def test_node_that_cannot_be_read_is_named_by_every_command(run, tmp_path, damage):
    store = str(write_two_nodes(tmp_path))
    sound = orjson.loads(run("verify", store, "--output", "json").stdout)["files"]
    assert [row["file_id"] for row in sound[:2]] == ["node:a", "node:b"]
    DAMAGES[damage](tmp_path / "store")
    rows = orjson.loads(run("verify", store, "--output", "json", code=1).stdout)["files"]
    assert [row["file_id"] for row in rows if not row["sound"]] == ["node:b"]
    for command in (
        ("files", "--store", store),
        ("cost", "--store", store),
        ("expire", "--before", "0", "--data", str(tmp_path / "data-a"), "--store", store),
    ):
        assert "incomplete: node b cannot be read" in run(*command, code=4).stderr


@pytest.mark.parametrize("command", [("verify",), ("files", "--store"), ("cost", "--store")])
def test_mistyped_store_is_an_error(run, tmp_path, command):
    (tmp_path / "storr").mkdir()
    assert "holds no manifest" in run(*command, str(tmp_path / "storr"), code=1).stderr


def test_query_of_a_mistyped_store_does_not_say_not_found(run, tmp_path):
    question = ("query", "--store", str(tmp_path / "storr"), "--topic", "orders", "--key", "K")
    assert "holds no manifest" in run(*question, code=1).stderr


def test_second_folder_under_the_node_of_a_living_owner_is_refused_until_it_says_take_over(
    run, put, tmp_path
):
    put(*ONE, "--set", "node=shop")
    store, other = str(tmp_path / "data" / "store"), str(tmp_path / "laptop")
    second = ("put", *ONE, "--data", other, "--store", store, "--set", "node=shop", *SMALL)
    refused = run(*second, code=1)
    assert "--take-over" in refused.stderr
    run(*second, "--take-over")
    assert "--take-over" in run("put", *ONE, *SMALL, code=1).stderr  # the first is fenced for good
    assert "--url" in run("put", *ONE, "--take-over", "--url", "http://127.0.0.1:1", code=2).stderr


def test_store_that_lost_its_manifests_is_refused_until_the_rollback_is_accepted(
    run, put, tmp_path
):
    put(*ONE)
    run("compact", "--roll", *SMALL)
    for manifest in (tmp_path / "data" / "store").rglob("manifest/*"):
        manifest.unlink()
    assert "--accept-rollback" in run("compact", *SMALL, code=1).stderr
    assert "incomplete" in run("query", "-t", "orders", "-k", "ORDER-1", code=4).stderr
    run("compact", "--accept-rollback", *SMALL)
    kept = run("compact", "--set", "grace_time=0", *SMALL)
    assert "tierdex compact --yes" in kept.stderr
    assert list((tmp_path / "data" / "store").rglob("files/*"))
    for _ in range(2):
        run("compact", "--yes", "--set", "grace_time=0", *SMALL)
    assert not list((tmp_path / "data" / "store").rglob("files/*"))
    run("query", "-t", "orders", "-k", "ORDER-1", code=3)


def test_journey_goes_over_all_topics(run, tmp_path):
    (tmp_path / "a.csv").write_text("id,at,what\nA-1,2024-01-01T00:00:00Z,tea\n")
    (tmp_path / "b.csv").write_text("id,at,what\nA-1,2024-01-01T00:00:02.5Z,paid\n")
    for topic, name in (("orders", "a.csv"), ("payments", "b.csv")):
        run("load", name, "-t", topic, "-k", "id", "--timestamp", "at", *SMALL)
    result = run("journey", "A-1", "--show")
    lines = result.stdout.splitlines()
    assert [line for line in lines if "2.5 s" in line and "payments" in line]
    assert [line for line in lines if line.startswith("A-1,")] == [
        "A-1,2024-01-01T00:00:00Z,tea",
        "A-1,2024-01-01T00:00:02.5Z,paid",
    ]
    found = orjson.loads(run("journey", "A-1", "-o", "json").stdout)
    assert (found["duration_ms"], found["topics"]) == (2500, 2)
    assert run("journey", "A-9", code=3).stdout == ""


def test_wrong_place_of_a_store_makes_no_folder(run, tmp_path):
    assert "there is no folder" in run("merge", "typo", code=1).stderr
    assert not (tmp_path / "typo").exists()
    assert "is a folder" in run("inspect", str(tmp_path), code=2).stderr


def test_help_joins_the_lines_of_a_paragraph():
    def command():
        """Do it.

        A terminal has a width
        of its own.
        """

    assert reporting(command).__doc__ == "Do it.\n\nA terminal has a width of its own."
