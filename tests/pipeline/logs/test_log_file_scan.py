"""The messages of published logs as rows: as the log reads them, by no more pages than it takes, no gap."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.pipeline.log_store import BEGIN_MS, fill, open_log, publish, rows, scan, told
from tierdex.errors import CorruptFileError, InvalidRequestError
from tierdex.pipeline.jobs.scan_report import ScanReport
from tierdex.pipeline.jobs.snapshot import take_log_snapshot
from tierdex.pipeline.logs.log_source import TierdexLogSource
from tierdex.storage_layer.open import open_store

COUNT = 600  # of each of two files


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A store with two files of a log, and what the log reads of them."""
    folder = tmp_path_factory.mktemp("log")
    url = f"file://{folder}/store"
    with open_log(folder / "data", url) as log:
        for first in (0, COUNT):
            fill(log, COUNT, first)
            publish(log)
        known = told(log)
        fill(log, 10, 2 * COUNT)  # not published
    return url, known


@pytest.mark.parametrize("bytes_per_partition", [3_000, 128 << 20])
def test_scan_gives_every_published_message_as_the_log_reads_it(published, bytes_per_partition):
    url, known = published
    found = scan(url, bytesPerPartition=str(bytes_per_partition))
    assert rows(found) == known
    assert len(known) == 2 * COUNT


@pytest.mark.parametrize(
    ("options", "is_wanted"),
    [
        ({"topic": "a", "queueId": "2"}, lambda m: m[1:3] == ("a", 2)),
        ({"beginOffset": "20", "endOffset": "290"}, lambda m: 20 <= m[3] < 290),
        (
            {"beginTime": str(BEGIN_MS + 50_000), "endTime": str(BEGIN_MS + 700_000)},
            lambda m: BEGIN_MS + 50_000 <= m[4] <= BEGIN_MS + 700_000,
        ),
        (
            {"topic": '["b"]', "queueId": "1,3", "beginOffset": "7", "endTime": str(BEGIN_MS + 900_000)},
            lambda m: m[1] == "b" and m[3] >= 7 and m[4] <= BEGIN_MS + 900_000,
        ),
        ({"topic": "none"}, lambda m: False),
        ({"nodes": "n"}, lambda m: True),
    ],
)  # fmt: skip
def test_selection_gives_what_lies_in_it(published, options, is_wanted):
    url, known = published
    assert rows(scan(url, **options)) == [message for message in known if is_wanted(message)]


def test_selection_fetches_the_sidecars_and_the_pages_of_what_it_wants(published, tmp_path):
    url, _ = published

    def costs(**options):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        scan(url, folder=str(folder), **options)
        report = ScanReport()
        for note in folder.iterdir():
            report.add(json.loads(note.read_text()))
        return report

    scan(url)  # the sidecars stay with the process
    whole = costs()
    assert (whole.requests, whole.files_read, whole.pages_pruned) == (2, 2, 0)
    one = costs(topic="a", queueId="2", beginOffset="20", endOffset="21")
    assert (one.requests, one.pages_read, one.entries) == (1, 1, 1)
    assert one.bytes < whole.bytes / 20
    late = costs(beginTime=str(BEGIN_MS + 1000 * COUNT))
    assert (late.files_pruned_by_time, late.files_read, late.requests) == (1, 1, 1)
    assert late.entries == COUNT
    queue = costs(topic="b", queueId="3")
    assert queue.entries == COUNT / 2
    assert queue.requests == 2
    assert queue.bytes < whole.bytes / 3


def test_scan_shows_neither_messages_that_wait_nor_topics_past_their_retention(tmp_path):
    url = f"file://{tmp_path}/store"
    with open_log(tmp_path / "data", url, topic_retention={"b": 0.001}) as log:
        fill(log, 40)
        log.append(topic="a", queue_id=9, body=b"later", deliver_at=1 << 42)
        publish(log)
        found = rows(scan(url))
        assert found == told(log)
        assert {message[1] for message in found} == {"a"}
        assert len(found) == 20


def test_forgotten_messages_are_empty_before_their_file_is_written_anew(tmp_path):
    url = f"file://{tmp_path}/store"
    with open_log(tmp_path / "data", url) as log:
        fill(log, 40)
        publish(log)
        log.index.roll()
        log.run_compaction()
        log.forget("b", key="k7")
        found = rows(scan(url))
        assert found == told(log)
        (gone,) = [message for message in found if not message[8]]
        assert gone[1:4] == ("b", 3, 1)
        assert gone[5:] == ([], [], None, b"")


def test_expired_files_are_left_out_and_queues_go_on(tmp_path):
    url = f"file://{tmp_path}/store"
    with open_log(tmp_path / "data", url) as log:
        fill(log, 40)
        publish(log)
        log.expire(before=1 << 42)
        fill(log, 40, 40)
        publish(log)
        found = rows(scan(url))
        assert found == told(log)
        assert {message[3] for message in found} == set(range(10, 20))


def test_damage_fails_the_task_and_names_the_file(published, tmp_path):
    url, _ = published
    shutil.copytree(url.removeprefix("file://"), tmp_path / "store")
    copied = f"file://{tmp_path}/store"
    files, _ = take_log_snapshot(open_store(copied))
    path = tmp_path / "store" / files[0].row.object_key
    data = bytearray(path.read_bytes())
    data[files[0].row.sidecar_position // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)
    with pytest.raises(CorruptFileError, match=path.name):
        scan(copied)
    path.unlink()
    with pytest.raises(Exception, match=path.name):
        scan(copied, topic="a", queueId="2")


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"queueId": "x"}, "queueId"),
        ({"beginOffset": "-1"}, "beginOffset"),
        ({"beginOffset": "5", "endOffset": "4"}, "beginOffset"),
        ({"beginTime": "5", "endTime": "4"}, "beginTime"),
        ({"columns": "topic,nothing"}, "columns"),
        ({"keys": "a"}, "keys"),
        ({"bytesPerPartition": "0"}, "bytesPerPartition"),
    ],
)
def test_bad_option_is_named(options, field):
    with pytest.raises(InvalidRequestError) as caught:
        TierdexLogSource({"path": "/store", **options}).schema()
    assert caught.value.field == field
