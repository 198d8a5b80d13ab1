"""One writer and several readers without locks: a reader sees whole batches, newest first, always."""

import threading

import numpy as np

from tests.indexfile.chained_files import key, make_file, make_part, offsets_of
from tierdex.indexfile.chained import check as chained_check
from tierdex.indexfile.chained.batch_scan import scan_file
from tierdex.indexfile.column_search import search_file
from tierdex.indexfile.lookup import Search

BATCHES = 300


def test_readers_beside_a_writer_see_a_growing_prefix_of_whole_batches(tmp_path):
    file = make_file(tmp_path / "file", slot_count=32, item_capacity=10 * BATCHES)
    problems: list[str] = []
    done = threading.Event()

    def read() -> None:
        seen = 0
        lookup = key("hot")
        hashes = np.array([lookup.key_hash], np.uint64)
        while not done.is_set():
            offsets = offsets_of(file, lookup)
            if offsets != list(range((len(offsets) - 1) * 100, -1, -100)):
                problems.append(f"not a prefix: {offsets[:5]}")
            if len(offsets) % 2 or len(offsets) < seen:
                problems.append(f"part of a batch, or fewer than before: {len(offsets)}")
            seen = len(offsets)
            found = search_file(file, Search.of(hashes, file.tags_of(["orders"], 0), limit=3))
            newest = found.rows["offset"].tolist()
            if newest != sorted(newest, reverse=True) or (seen and len(newest) < min(seen, 3) - 1):
                problems.append(f"newest are {newest}")

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(BATCHES):
        other = make_part([f"k{number}"], topic=f"t{number % 7}")
        file.append([make_part(["hot", "hot"], first=2 * number), other])
        file.end_offsets()
    done.set()
    for reader in readers:
        reader.join()
    assert problems == []
    assert len(offsets_of(file, key("hot"))) == 2 * BATCHES
    assert file.check() == []


def test_check_beside_appends_finds_nothing_wrong(tmp_path, monkeypatch):
    """A batch, with a new topic and a new queue, comes right after the rows were read again."""
    file = make_file(tmp_path / "file.tdx")
    file.append([make_part(["a"])])

    def scan_and_append(*arguments, **named):
        scan_file(*arguments, **named)
        file.append([make_part(["b"], topic="others", first=1, queue_id=1)])

    monkeypatch.setattr(chained_check, "scan_file", scan_and_append)
    assert file.check() == []
    monkeypatch.setattr(chained_check, "scan_file", scan_file)
    assert file.check() == []
