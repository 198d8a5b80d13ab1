"""`tierdex log` over a local folder: output, exit codes, refusals."""

from __future__ import annotations

import csv
import io

import orjson
import pytest

from tierdex.log_service.message_log import MessageLog

SMALL = ("--set", "journal_bytes=16777216")
QUEUE = ("-t", "orders", "-q", "1")


@pytest.fixture
def append(run):
    def append_one(*arguments, **options):
        return run("log", "append", *arguments, *SMALL, **options)

    return append_one


def messages(result):
    return orjson.loads(result.stdout)["messages"]


def test_what_was_appended_is_read_in_every_form(run, append, tmp_path):
    append(
        *QUEUE, "größer", "-k", "a", "-k", "b", "-i", "M", "--header", "h=v=w", "--timestamp", "5"
    )
    (tmp_path / "raw").write_bytes(b"\x00\xff")
    second = append(*QUEUE, "--file", "raw", "--durability", "os", "-o", "json")
    assert orjson.loads(second.stdout)["offset"] == 1
    one, two = messages(run("log", "read", *QUEUE, "-o", "json"))
    assert (one["body"], one["keys"], one["message_id"], one["timestamp"]) == (
        "größer",
        ["a", "b"],
        "M",
        5,
    )
    assert one["headers"] == [{"name": "h", "value": "v=w"}]
    assert (two["body"], two["encoding"]) == ("AP8=", "base64")
    lines = run("log", "read", *QUEUE, "-o", "ndjson", "--offset", "1").stdout.splitlines()
    assert [orjson.loads(line) for line in lines] == [two]
    rows = list(csv.DictReader(io.StringIO(run("log", "read", *QUEUE, "-o", "csv").stdout)))
    assert [row["offset"] for row in rows] == ["0", "1"]
    assert "1970-01-01T00:00:00.005Z" in run("log", "read", *QUEUE).stdout


def test_lines_are_appended_together_or_not_at_all(run, append):
    good = orjson.dumps({"topic": "orders", "queue_id": 1, "body": "x"})
    result = append("--lines", "-", stdin=good + b"\n" + good, code=0)
    assert "offset" in result.stdout
    bad = append("--lines", "-", stdin=good + b'\n{"topic": "orders"}', code=2)
    assert "messages[1].queue_id" in bad.stderr
    assert len(messages(run("log", "read", *QUEUE, "-o", "json"))) == 2


def test_end_of_a_queue_ends_with_3_and_tells_where_to_go_on(run, append):
    for body in "abc":
        append(*QUEUE, body)
    assert "--offset 2 (the end is 3)" in run("log", "read", *QUEUE, "-m", "2").stderr
    assert "the queue ends at 3" in run("log", "read", *QUEUE, "--offset", "3", code=3).stderr
    assert "ends at 0" in run("log", "read", "-t", "nobody", code=3).stderr


def test_damaged_messages_are_named_and_end_with_4(run, append, tmp_path):
    # Without an index nothing is published: the file stays here.
    with MessageLog.open(
        tmp_path / "data", journal_bytes=1 << 24, background=False, index=False
    ) as log:
        log.append(topic="orders", queue_id=1, body=b"x" * 9000)
        log.roll()
        log.run_compaction()
    (compacted,) = (tmp_path / "data" / "log" / "compacted").iterdir()
    damaged = bytearray(compacted.read_bytes())
    damaged[4096 + 50] ^= 1  # of its only page
    compacted.write_bytes(damaged)
    told = run("log", "read", *QUEUE, code=4).stderr
    assert compacted.name in told
    assert "there is more" not in told  # the same command would stop at the same place
    assert compacted.name in run("log", "tail", *QUEUE, "--no-follow", code=4).stderr


def test_tail_writes_the_newest_messages_a_line_each(run, append):
    for body in "abc":
        append(*QUEUE, body)
    lines = run("log", "tail", *QUEUE, "-n", "2", "--no-follow").stdout.splitlines()
    assert [line.split()[::2] for line in lines] == [["1", "b"], ["2", "c"]]
    line = run("log", "tail", *QUEUE, "-n", "1", "--no-follow", "-o", "ndjson").stdout
    assert orjson.loads(line)["body"] == "c"
    assert "--output" in run("log", "tail", *QUEUE, "-o", "csv", code=2).stderr


def test_messages_of_a_key_are_found(run, append):
    for body in ("one", "two"):
        append(*QUEUE, body, "-k", "K", "-i", f"id-{body}")
    found = messages(run("log", "get", "-t", "orders", "-k", "K", "-o", "json", *SMALL))
    assert [(m["body"], m["queue_id"]) for m in found] == [("two", 1), ("one", 1)]
    assert "id-one" in run("log", "get", "-i", "id-one", *SMALL).stdout
    first = run("log", "get", "-t", "orders", "-k", "K", "-m", "1", *SMALL)
    assert "--cursor" in first.stderr
    assert "not found" in run("log", "get", "-t", "orders", "-k", "none", *SMALL, code=3).stderr
    assert "no message log" in run("log", "get", "-i", "x", "--data", "nowhere", code=1).stderr


def test_not_found_says_until_when_that_is_all_and_who_was_not_asked(run, tmp_path):
    bucket = str(tmp_path / "bucket")
    with MessageLog.open(
        tmp_path / "elsewhere", store=bucket, node="n", journal_bytes=16 << 20, background=False
    ) as log:
        log.append(topic="orders", queue_id=1, body=b"first", key="K")
        for rolled in (log, log.index):
            rolled.roll()
            log.run_compaction()
        log.append(topic="orders", queue_id=1, body=b"later", key="new")
    absent = run("log", "get", "-t", "orders", "-k", "new", "--store", bucket, code=3).stderr
    assert "not found" in absent
    assert "everything acknowledged before" in absent
    assert "not asked: node n (closed)" in absent
    asked = ("log", "get", "-t", "orders", "-k", "new", "--store", bucket, "-o", "json")
    told = orjson.loads(run(*asked, code=3).stdout)
    assert [(each["node"], told["as_of"]) for each in told["unasked"]] == [
        ("n", told["unasked"][0]["published_through"])
    ]


def test_a_damaged_message_of_a_key_is_named_and_ends_with_4(run, tmp_path):
    bucket = tmp_path / "bucket"
    with MessageLog.open(
        tmp_path / "elsewhere",
        store=str(bucket),
        node="n",
        journal_bytes=16 << 20,
        background=False,
    ) as log:
        log.append(topic="orders", queue_id=1, body=b"x" * 9000, key="K")
        for rolled in (log, log.index):
            rolled.roll()
            log.run_compaction()
    path = max((bucket / "nodes/n/files").iterdir(), key=lambda each: each.stat().st_size)
    damaged = bytearray(path.read_bytes())
    damaged[4096 + 50] ^= 1  # of its only page
    path.write_bytes(damaged)
    told = run("log", "get", "-t", "orders", "-k", "K", "--store", str(bucket), code=4).stderr
    assert "nothing in what could be asked" in told
    assert "incomplete: " in told


def test_append_at_remote_is_published_to_the_store_that_was_named(run, append, tmp_path):
    store = ("--store", str(tmp_path / "bucket"))
    append(*QUEUE, "x", "--durability", "remote", *store)
    told = orjson.loads(run("log", "offsets", *QUEUE, *store, "-o", "json").stdout)
    assert told["end_offsets"]["remote"] == 1
    assert [m["body"] for m in messages(run("log", "read", *QUEUE, *store, "-o", "json"))] == ["x"]
    assert not (tmp_path / "data" / "store").exists()


def test_topics_queues_and_offsets_are_listed(run, append):
    append(*QUEUE, "a", "--timestamp", "10")
    append(*QUEUE, "b", "--timestamp", "20")
    assert orjson.loads(run("log", "queues", "-o", "json").stdout) == {"topics": ["orders"]}
    (row,) = orjson.loads(run("log", "queues", "-t", "orders", "-o", "json").stdout)["queues"]
    assert row == {"queue_id": 1, "begin_offset": 0, "end_offset": 2}
    told = orjson.loads(run("log", "offsets", *QUEUE, "--timestamp", "11", "-o", "json").stdout)
    assert told == {
        "begin_offset": 0,
        "end_offsets": {"received": 2, "os": 2, "disk": 2, "remote": 0},
        "offset": 1,
    }


def test_messages_for_later_are_listed_by_hour(run, append, tmp_path):
    later = ("--deliver-at", "2100-01-01T00:00:05Z")
    told = append(*QUEUE, "x", *later, "-o", "json")
    assert orjson.loads(told.stdout)["offset"] is None
    lines = tmp_path / "lines"
    lines.write_text('{"topic": "t", "queue_id": 0, "body": "y", "deliver_at": 4102444800000}')
    append("--lines", str(lines))
    hours = orjson.loads(run("log", "timers", "-o", "json").stdout)["hours"]
    assert hours == [{"begin": 4_102_444_800_000, "message_count": 2}]
    assert "2100-01-01T00:00:00" in run("log", "timers").stdout
    late = append(*QUEUE, "late", "--deliver-at", "5", "-o", "json")
    assert orjson.loads(late.stdout)["offset"] == 0


def test_files_of_the_log_are_listed_with_their_kind(run, append):
    append(*QUEUE, "x")
    rows = orjson.loads(run("files", "-o", "json").stdout)["files"]
    assert [(row["kind"], row["item_count"]) for row in rows][-1] == ("log", 1)


def test_refusals_say_what_to_do(run, append):
    assert "offset 0 is next" in append(*QUEUE, "x", "--expect-offset", "4", code=1).stderr
    assert "--topic" in append("x", code=2).stderr
    assert "BODY" in append(*QUEUE, code=2).stderr
    assert "--header" in append(*QUEUE, "x", "--header", "none", code=2).stderr
    assert "queue_id" in append("-t", "orders", "-q", "-1", "x", code=2).stderr
    assert "deliver-at" in append(*QUEUE, "x", "--deliver-at", "1700000000", code=2).stderr
    assert "offset" in run("log", "read", *QUEUE, "--offset", str(-(1 << 70)), code=2).stderr
    assert "--last" in run("log", "tail", *QUEUE, "-n", "-5", "--no-follow", code=2).stderr
    assert messages(run("log", "read", *QUEUE, "-o", "json", code=3)) == []
    assert "no message log" in run("log", "read", *QUEUE, "--data", "nowhere", code=1).stderr


def test_verify_and_expire_know_the_files_of_a_log(run, append, tmp_path):
    folder = str(tmp_path / "of-its-own")
    append(*QUEUE, "old", "-k", "K", "--data", folder)
    with MessageLog.open(folder, journal_bytes=16 << 20) as log:
        log.roll()
        log.run_compaction()
        [before] = log.files()
    findings = orjson.loads(run("verify", folder, "-o", "json").stdout)["files"]
    assert before.file_id in {finding["file_id"] for finding in findings}
    asked = ("--before", "2100-01-01T00:00:00Z", "--data", folder, "-o", "json")
    named = orjson.loads(run("expire", "--dry-run", *asked, *SMALL).stdout)["files"]
    assert [(file["file_id"], file["kind"]) for file in named] == [(before.file_id, "log")]
    run("expire", *asked, *SMALL)
    [row] = orjson.loads(
        run("log", "queues", "-t", "orders", "--data", folder, "-o", "json").stdout
    )["queues"]
    assert (row["begin_offset"], row["end_offset"]) == (1, 1)
    gone = run("log", "get", "-t", "orders", "-k", "K", "--data", folder, *SMALL, code=3)
    assert "gone from the log by its age: orders queue 1 offset 0" in gone.stderr


def test_damaged_file_of_a_log_without_an_index_fails_its_verification(run, tmp_path):
    folder = tmp_path / "alone"
    with MessageLog.open(folder, journal_bytes=16 << 20, index=False) as log:
        log.append(topic="a", queue_id=0, body=b"x" * 100)
        log.roll()
        log.run_compaction()
    [finding] = orjson.loads(run("verify", str(folder), "-o", "json").stdout)["files"]
    assert finding["sound"]
    [path] = (folder / "log/compacted").iterdir()
    data = bytearray(path.read_bytes())
    data[4096 + 60] ^= 1
    path.write_bytes(data)
    [finding] = orjson.loads(run("verify", str(folder), "-o", "json", code=1).stdout)["files"]
    assert finding["problems"] == ["checksum of page 0 differs"]


def test_query_shows_the_message_that_an_entry_names(run, append):
    append(*QUEUE, "the message", "-k", "K", "-i", "M")
    for name in (("-t", "orders", "-k", "K"), ("-i", "M")):
        assert "the message" in run("query", *name, "--show").stdout


def test_messages_of_a_key_are_forgotten(run, append):
    append(*QUEUE, "one", "-k", "secret")
    append(*QUEUE, "two", "-k", "open")
    plan = run("forget", "-t", "orders", "-k", "secret", "--dry-run", *SMALL)
    assert "1 messages" in plan.stderr
    receipt = orjson.loads(
        run("forget", "-t", "orders", "-k", "secret", "-o", "json", *SMALL).stdout
    )
    assert receipt["messages"] == [{"topic": "orders", "queue_id": 1, "offset": 0}]
    found = messages(run("log", "read", *QUEUE, "-o", "json", *SMALL))
    assert [(m["body"], m["is_forgotten"]) for m in found] == [("", True), ("two", False)]
    run("log", "get", "-t", "orders", "-k", "secret", *SMALL, code=3)
    again = run("forget", "--resume", receipt["forgetting"], "-o", "json", *SMALL)
    assert orjson.loads(again.stdout)["messages"] == receipt["messages"]
    run("forget", "--resume", "00" * 16, *SMALL, code=1)


def test_log_is_handed_over_taken_over_and_adopted(run, append, tmp_path):
    place = ("--store", "bucket")
    old, new = ("--data", "old"), ("--data", "new")
    with MessageLog.open(tmp_path / "old", store="bucket", node="n", journal_bytes=16 << 20) as log:
        log.append(topic="orders", queue_id=1, body=b"first")
    run("log", "hand-over", *old, *place, *SMALL)
    refused = run("log", "take-over", *new, *place, "--node", "n", *SMALL, "-o", "json")
    assert orjson.loads(refused.stdout) == {"node": "n", "topics": 1}
    with MessageLog.open(tmp_path / "new", store="bucket", journal_bytes=16 << 20) as log:
        assert log.append(topic="orders", queue_id=1, body=b"second") == 1
    third = ("--data", "third", "--node", "n", *SMALL)
    assert "take-over --lossy" in run("log", "take-over", *third, *place, code=1).stderr
    run("log", "take-over", *third, *place, "--lossy")
    adopted = run("adopt", *new, *place, "--node", "rescued", *SMALL, "-o", "json")
    assert orjson.loads(adopted.stdout)["messages"] == 1
    with MessageLog.open(tmp_path / "new", store="bucket", journal_bytes=16 << 20) as log:
        assert (log.node, log.begin_offset("orders", 1), log.end_offset("orders", 1)) == (
            "rescued",
            1,
            2,
        )
    run("log", "hand-over", "--data", "nowhere", *place, code=1)
    mistyped = run("log", "take-over", "--data", "typo", *place, "--node", "m", *SMALL, code=1)
    assert "no node m" in mistyped.stderr
    assert not (tmp_path / "typo").exists()


def test_tools_of_a_store_know_its_log_files(run, append, tmp_path):
    append(*QUEUE, "x" * 500, "-k", "a")
    with MessageLog.open(tmp_path / "data", background=False, journal_bytes=16 << 20) as log:
        log.roll()
        log.run_compaction()
        log.index.roll()
        log.run_compaction()
        log.forget("orders", key="a")
    store = "data/store"
    listed = orjson.loads(run("files", "--store", store, "-o", "json").stdout)["files"]
    assert [(file["kind"], file["item_count"]) for file in listed] == [("index", 1), ("log", 1)]
    bill = orjson.loads(run("cost", "--store", store, "-o", "json").stdout)
    assert (bill["files"], bill["log_files"], bill["log_messages"]) == (1, 1, 1)
    assert bill == orjson.loads(run("cost", "-o", "json").stdout)
    assert bill["log_bytes"] == listed[1]["bytes"]
    assert bill["log_notes_bytes"] > 0
    found = orjson.loads(run("verify", store, "--entries", "-o", "json").stdout)["files"]
    assert len(found) == 6  # two nodes, the index file, the log's notes, its file, the entries
    [key] = [
        key
        for key in (tmp_path / store).rglob("files/*")
        if key.stat().st_size == bill["log_bytes"]
    ]
    damaged = bytearray(key.read_bytes())
    damaged[4200] ^= 1
    key.write_bytes(damaged)
    found = orjson.loads(run("verify", store, "-o", "json", code=1).stdout)["files"]
    assert [each["sound"] for each in found] == [True, True, True, True, False]


def test_compact_publishes_a_log_before_the_index_that_covers_it(run, append):
    append(*QUEUE, "x", "-k", "a")
    status = orjson.loads(run("compact", "--roll", *SMALL, "-o", "json").stdout)
    assert status["totals"]["published"] == 2
    assert status["log"]["backlog_files"] == 0
    files = orjson.loads(run("files", "-o", "json").stdout)["files"]
    assert {file["state"] for file in files if file["item_count"]} == {"uploaded"}
    for command in ("compact", "expire --before 2000-01-01"):
        assert "offsets" in run(*command.split(), "--accept-rollback", *SMALL, code=2).stderr
