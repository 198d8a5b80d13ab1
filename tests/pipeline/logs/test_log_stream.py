"""A stream of what logs publish gives every message once, over restarts, merges and expiry."""

from __future__ import annotations

import json

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from tests.pipeline.log_store import COLUMNS, fill, open_log, publish, read_all, rows, told
from tierdex.errors import InvalidRequestError, NotFoundError
from tierdex.pipeline.jobs.snapshot import take_log_snapshot
from tierdex.pipeline.logs.log_options import LogOptions
from tierdex.pipeline.logs.log_stream import LogStreamReader
from tierdex.storage_layer.open import open_store


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path}/store"


@pytest.fixture
def log(tmp_path, url):
    with open_log(tmp_path / "data", url) as log:
        yield log


class Query:
    """A stream as Spark drives it; every batch is planned by a new driver, from what a checkpoint keeps."""

    def __init__(self, url, **options):
        self.options = LogOptions.parse({"path": url, **options}, is_stream=True)
        self.at = json.loads(json.dumps(self.reader.initialOffset()))
        self.batches = []

    @property
    def reader(self):
        return LogStreamReader(self.options, COLUMNS)

    def run(self, batches=1000):
        """Run batches until nothing is new; return their messages."""
        found = []
        for _ in range(batches):
            limit = self.reader.getDefaultReadLimit()
            end = json.loads(json.dumps(self.reader.latestOffset(self.at, limit)))
            if end == self.at:
                break
            self.batches.append((self.at, end))
            found += self.replay(-1)
            self.at = end
        return found

    def replay(self, batch):
        """Return the messages of a batch, planned and read anew."""
        reader = self.reader
        return rows(read_all(reader, reader.partitions(*self.batches[batch])))


def test_batches_of_at_most_so_many_messages_have_every_message_once(log, url):
    query = Query(url, maxMessagesPerTrigger="70", bytesPerPartition="1000")
    found = []
    for first in (0, 200):
        fill(log, 200, first)
        publish(log)
        found += query.run()
    assert sorted(found) == told(log)
    sizes = [len(query.replay(batch)) for batch in range(len(query.batches))]
    assert sizes == [70, 70, 60, 70, 70, 60]
    assert query.run() == []


def test_queries_go_on_within_files_that_were_merged_meanwhile(log, url):
    """Twice: of what was merged at first, a part is merged again."""
    queries = [Query(url, maxMessagesPerTrigger=str(most)) for most in (17, 64, 1000)]
    found = [query.run() for query in queries]
    sizes, published = [], 0
    for _ in range(2):
        for number in range(9):
            fill(log, 30, published)
            published += 30
            log.roll()
            log.run_compaction()
            for place, query in enumerate(queries):
                found[place] += query.run(1 + (number + place) % 3)
        sizes.append(len(take_log_snapshot(open_store(url))[0]))
    assert max(sizes) < 9, "nothing was merged"
    files, _ = take_log_snapshot(open_store(url))
    assert any(file.row.parts for file in files)
    known = told(log)
    assert len(known) == published
    for place, query in enumerate(queries):
        early = [query.replay(batch) for batch in range(len(query.batches))]
        assert sorted(m for batch in early for m in batch) == sorted(found[place])
        found[place] += query.run()
        assert sorted(found[place]) == known


def test_selected_messages_count_and_the_others_do_not(log, url):
    fill(log, 200)
    log.append(topic="a", queue_id=9, body=b"later", deliver_at=1 << 42)
    publish(log)
    query = Query(url, maxMessagesPerTrigger="30", topic="b", queueId="3", beginOffset="5")
    wanted = [m for m in told(log) if m[1:3] == ("b", 3) and m[3] >= 5]
    assert sorted(query.run()) == wanted
    assert [len(query.replay(batch)) for batch in range(2)] == [30, len(wanted) - 30]


def test_query_that_begins_at_the_end_reads_what_comes_after(log, url):
    fill(log, 50)
    publish(log)
    query = Query(url, startingPosition="latest")
    assert query.run() == []
    fill(log, 50, 50)
    publish(log)
    assert sorted(query.run()) == [m for m in told(log) if m[4] >= told(log)[0][4] + 50_000]


def test_query_for_what_is_there_now_reads_no_further(log, url):
    fill(log, 50)
    publish(log)
    reader = LogStreamReader(LogOptions.parse({"path": url}, is_stream=True), COLUMNS)
    reader.prepareForTriggerAvailableNow()
    fill(log, 50, 50)
    publish(log)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert len(rows(read_all(reader, reader.partitions(reader.initialOffset(), end)))) == 50
    assert reader.latestOffset(end, ReadMaxRows(10)) == end


@pytest.mark.parametrize("is_read_whole", [True, False])
def test_expired_messages_that_were_not_read_are_told(log, url, is_read_whole):
    fill(log, 50)
    publish(log)
    most = "50" if is_read_whole else "20"
    queries = [
        Query(url, maxMessagesPerTrigger=most, failOnDataLoss=fails) for fails in ("true", "false")
    ]
    for query in queries:
        query.run(1)
    if is_read_whole:  # what was read may go
        log.expire(before=1 << 42)
    fill(log, 50, 50)
    publish(log)
    if is_read_whole:
        assert len(queries[0].run(1)) == len(queries[1].run(1)) == 50
        fill(log, 50, 100)
        publish(log)
    log.expire(before=1 << 42)
    fill(log, 50, 150)
    publish(log)
    with pytest.raises(NotFoundError, match="failOnDataLoss=false"):
        queries[0].run()
    assert sorted(queries[1].run()) == told(log)


def test_topic_past_its_retention_that_was_not_read_is_told(tmp_path, url):
    with open_log(tmp_path / "data", url, topic_retention={"b": 0.001}) as log:
        log.append(topic="a", queue_id=0, body=b"x")
        publish(log)
        queries = [Query(url), Query(url, topic="a")]
        for query in queries:
            assert len(query.run()) == 1
        fill(log, 10)
        publish(log)
        with pytest.raises(NotFoundError, match="retention"):
            queries[0].run()
        assert len(queries[1].run()) == 5
        log.append(topic="a", queue_id=0, body=b"y")
        publish(log)  # and by now "b" was left out
        assert any(file.row.parts for file in take_log_snapshot(open_store(url))[0])
        with pytest.raises(NotFoundError, match="retention"):
            queries[0].run()
        assert len(queries[1].run()) == 1


def test_checkpoint_of_another_source_is_refused(url, log):
    with pytest.raises(InvalidRequestError, match="checkpoint"):
        Query(url).reader.latestOffset({"index": 3}, ReadAllAvailable())
