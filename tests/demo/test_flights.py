"""The flights: all of them, at the right times, each pointing at its own line."""

import csv
from collections import Counter
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from tests.app.recording_index import RecordingIndex
from tests.app.shown_rows import shown_row
from tierdex.app.load.loader import Loader
from tierdex.app.load.register import LoadRegister
from tierdex.filesystem import LocalFileSystem
from tierdex.log_service.message_log import MessageLog
from tools.demo.flight_messages import FlightMessages
from tools.demo.flights import DEMO_OPTIONS, LAST_MESSAGE_ID, load_demo, unpack_demo

FILES = LocalFileSystem()
HEAD_ROWS = 3000


@pytest.fixture(scope="module")
def flights_csv(tmp_path_factory):
    return unpack_demo(tmp_path_factory.mktemp("flights"), FILES)


class CountingIndex:
    """Keeps batches as they come: a million rows need no Python objects."""

    def __init__(self):
        self.batches = []
        self.flushed = []
        self.queries = 0

    def put_batch(self, **columns):
        self.batches.append(columns)

    def flush(self, durability):
        self.flushed.append(durability)

    def query(self, *, message_id):
        self.queries += 1
        ids = [b["message_id"] for b in self.batches if b["message_id"] is not None]
        found = bool(ids) and ids[-1][-1].as_py() == message_id
        return type("Answer", (), {"entries": ["it"] if found else []})


def test_every_flight_is_loaded_once_and_reused(tmp_path):
    index = CountingIndex()
    seen = []
    report = load_demo(index, tmp_path, lambda done, total: seen.append(done / total))
    assert (report.rows, report.skipped, report.reused) == (336_776, 2_512, False)
    assert report.entries == 3 * 336_776 - 2_512
    assert seen[-1] == 1.0
    assert index.flushed == ["disk"]
    ids = [mid for b in index.batches if b["message_id"] for mid in b["message_id"].to_pylist()]
    assert len(set(ids)) == len(ids) == 336_776
    assert ids[-1] == LAST_MESSAGE_ID
    batches = len(index.batches)
    again = load_demo(index, tmp_path)
    assert again == report._replace(reused=True)
    assert len(index.batches) == batches


def test_index_that_lacks_the_flights_is_loaded_again(tmp_path):
    load_demo(CountingIndex(), tmp_path)
    fresh = CountingIndex()
    assert not load_demo(fresh, tmp_path).reused
    assert fresh.batches


def test_flights_agree_with_a_plain_reading_of_the_file(tmp_path, flights_csv):
    head = tmp_path / "flights.csv"
    with flights_csv.open("rb") as file:
        data = b"".join(next(file) for _ in range(HEAD_ROWS + 1))
    head.write_bytes(data)
    register, index = LoadRegister(FILES, tmp_path), RecordingIndex()
    Loader(index, register=register).load(head, DEMO_OPTIONS)
    rows = list(csv.DictReader(data.decode().splitlines()))
    zone = ZoneInfo("America/New_York")
    flights = [put for put in index.puts if put.message_id]
    assert len(flights) == len(rows) == HEAD_ROWS
    for put, row in zip(flights, rows, strict=True):
        local = datetime(
            *(int(row[name]) for name in ("year", "month", "day", "hour", "minute")), tzinfo=zone
        )
        assert put.timestamp == local.timestamp() * 1000
        assert (put.topic, put.key) == (row["carrier"], row["carrier"] + row["flight"])
        assert put.location["queue_id"] == ["EWR", "JFK", "LGA"].index(row["origin"])
        offset, size = put.location["offset"], put.location["size"]
        assert data[offset : offset + size].decode() == ",".join(row.values())
    tails = Counter(put.key for put in index.puts if not put.message_id)
    assert tails == Counter(row["tailnum"] for row in rows if row["tailnum"] != "NA")
    (entry,) = index.query(message_id="2013-01-01-UA1545-EWR-0515").entries
    shown = shown_row(register, entry, message_id="2013-01-01-UA1545-EWR-0515")
    assert shown.body.startswith(b"2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR")


def test_flights_are_kept_as_messages_and_found_without_their_file(tmp_path, flights_csv):
    with flights_csv.open("rb") as file:
        lines = [next(file) for _ in range(301)]
        january = lines[1:]
        february = [line.replace(b"2013,1,", b"2013,2,", 1) for line in january[:100]]
    head = tmp_path / "flights.csv"
    head.write_bytes(b"".join([lines[0], *january, *february]))
    with MessageLog.open(tmp_path / "data", background=False, journal_bytes=1 << 24) as log:
        Loader(FlightMessages(log, head, FILES), names_source=False).load(head, DEMO_OPTIONS)
        head.unlink()
        assert [file.message_count for file in log.files()] == [100, 300]
        (found,) = log.get(message_id="2013-01-01-UA1545-EWR-0515").messages
        assert found.body == january[0].rstrip()
        assert (found.topic, found.queue_id, found.keys) == ("UA", 0, ("N14228", "UA1545"))
        plain = [
            row
            for row in csv.DictReader(line.decode() for line in lines)
            if row["tailnum"] == "N14228"
        ]
        both = log.get("UA", key="N14228", max_count=100).messages
        assert sum(m.message_id.startswith("2013-01") for m in both) == len(plain)
