"""A lookup's tasks fetch no byte of a page twice, however keys, batches and tasks are cut."""

from __future__ import annotations

from itertools import pairwise

import pyarrow.compute as pc
import pytest

from tests.pipeline.in_process import batch_of, make_writer, run_lookup
from tierdex.errors import NotFoundError
from tierdex.pipeline.jobs.snapshot import take_snapshot
from tierdex.storage_layer.local import LocalStore
from tierdex.storage_layer.open import open_store

ENTRIES = 30_000
FILES = 3
KEYS = 8000  # each has four entries or so, one key has thousands


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """Three files, written by three tasks of one job."""
    url = f"file://{tmp_path_factory.mktemp('pages') / 'store'}"
    writer = make_writer(url)
    messages = []
    for part in range(FILES):
        numbers = range(part * ENTRIES, (part + 1) * ENTRIES)
        keys = ["hot" if n % 7 == 0 else f"key-{n % KEYS}" for n in numbers]
        messages.append(writer.write(iter([batch_of(keys, numbers[0])])))
    writer.commit(messages)
    return url


@pytest.fixture
def reads(monkeypatch):
    """(object, position, length) of every read of a store in a folder."""
    found = []
    get = LocalStore.get

    def recorded(self, key, position=None, length=None):
        found.append((key, position, length))
        return get(self, key, position, length)

    monkeypatch.setattr(LocalStore, "get", recorded)
    return found


@pytest.mark.parametrize("tasks", [1, 2, 5])
@pytest.mark.parametrize("batch_rows", [1, 97, 100_000])
def test_no_byte_of_a_page_is_fetched_twice(url, reads, tasks, batch_rows):
    step = 101 if batch_rows == 1 else 3
    keys = [f"key-{n}" for n in range(0, KEYS, step)] + [f"none-{n}" for n in range(200)]
    keys += ["hot", "hot", "hot"]
    found = run_lookup(url, keys, tasks=tasks, batch_rows=batch_rows)
    assert found == expected(keys)
    pages = page_reads(url, reads)
    assert len({key for key, _, _ in pages}) == FILES
    for (key, _, end), (other, begin, _) in pairwise(pages):
        assert key != other or end <= begin


def expected(keys):
    """Return the offsets of each key that is there, newest first, once for each time it is asked."""
    offsets = {}
    for number in range(FILES * ENTRIES):
        key = "hot" if number % 7 == 0 else f"key-{number % KEYS}"
        offsets.setdefault(key, []).insert(0, number * 10)
    return {key: offsets[key] * keys.count(key) for key in keys if key in offsets}


def test_max_count_asks_no_older_file_when_it_is_reached(url, reads):
    found = run_lookup(url, ["hot"], tasks=1, batch_rows=10, max_count=5)
    assert found == {"hot": expected(["hot"])["hot"][:5]}
    assert {key for key, _, _ in page_reads(url, reads)} == {newest_file(url)}


def newest_file(url):
    return take_snapshot(open_store(url)).files[0].row.object_key


def page_reads(url, reads):
    """Return (object, begin, end) of what was read of pages, in order of place."""
    files = take_snapshot(open_store(url)).files
    tails = {file.row.object_key: file.row.sidecar_position for file in files}
    return sorted(
        (key, position, position + length)
        for key, position, length in reads
        if key in tails and position < tails[key]
    )


def test_what_a_killed_driver_uploaded_is_never_seen(tmp_path):
    """Nor what a speculative attempt did: Spark gives the driver one message a partition."""
    url = f"file://{tmp_path}/store"
    writer = make_writer(url)
    writer.write(iter([batch_of(["a", "b"])]))
    kept = writer.write(iter([batch_of(["a", "b"])]))
    store = open_store(url)
    assert len(list(store.list("nodes/spark/files/"))) == 2
    with pytest.raises(NotFoundError, match="no manifest"):
        take_snapshot(store)
    make_writer(url).commit([kept, None])
    assert len(take_snapshot(store).files) == 1
    assert run_lookup(url, ["a", "c"], tasks=1, batch_rows=10) == {"a": [0]}


@pytest.mark.parametrize("max_count", [None, 2])
def test_a_location_comes_once_for_each_time_it_was_put_at(tmp_path, max_count):
    url = f"file://{tmp_path / 'store'}"
    for later in (0, 5, 0):  # the third is a replay of the first
        batch = batch_of(["a", "b"])
        place = batch.schema.get_field_index("timestamp")
        batch = batch.set_column(place, "timestamp", pc.add(batch["timestamp"], later))
        writer = make_writer(url)
        writer.commit([writer.write(iter([batch]))])
    found = run_lookup(url, ["a", "b"], tasks=1, batch_rows=10, max_count=max_count)
    assert found == {"a": [0, 0], "b": [10, 10]}
