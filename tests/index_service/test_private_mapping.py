"""The file that takes puts where stores may find no block: on a file system that copies on write."""

from __future__ import annotations

import errno

import numpy as np
import pyarrow as pa
import pytest

from tests.index_service.conftest import put
from tierdex import Index, local_file
from tierdex.errors import BacklogFullError
from tierdex.testing.components import components_of


@pytest.fixture(autouse=True)
def copies_on_write(monkeypatch):
    monkeypatch.setattr(local_file, "keeps_reserved", lambda descriptor: False)


def put_numbers(index, first, count):
    numbers = np.arange(first, first + count)
    index.put_batch(
        topic="orders", keys=[f"k{n}" for n in numbers.tolist()], queue_id=0, offset=numbers,
        size=10, timestamp=numbers,
    )  # fmt: skip


def found(index, count):
    """Say whether every key has its one entry."""
    lookups = pa.table({"topic": ["orders"] * count, "key": [f"k{n}" for n in range(count)]})
    answer = index.query_batch_arrow(lookups)
    numbers = np.arange(count)
    return np.array_equal(answer["lookup"], numbers) and np.array_equal(answer["offset"], numbers)


@pytest.mark.parametrize("is_killed", [False, True])
def test_everything_at_os_is_in_the_file(make_index, tmp_path, is_killed):
    index = make_index(item_capacity=200_000, slot_count=65_536)
    count = 0
    for batch in (1, 10, 30_000, 7, 40_000, 20_000):
        put_numbers(index, count, batch)
        count += batch
    for level in ("os", "received", "disk"):
        put(index, f"k{count}", count, durability=level)
        count += 1
    assert found(index, count)
    reader = Index.open(tmp_path / "data", read_only=True, background=False)
    assert found(reader, count)
    reader.close()
    if is_killed:  # a copy of the folder is what a killed process leaves
        import shutil

        shutil.copytree(tmp_path / "data", tmp_path / "copy")
        index.close()
        index = make_index(tmp_path / "copy", item_capacity=200_000, slot_count=65_536)
    else:
        index.close()
        index = make_index(item_capacity=200_000, slot_count=65_536)
    assert found(index, count)
    put_numbers(index, count, 5)
    index.roll()
    components_of(index).writing.compactor.local.step()
    assert [file.state for file in index.files()] == ["sealed"]
    assert [index.verify_file(file.file_id) for file in index.files()] == [[]]
    assert found(index, count + 5)
    index.run_compaction()
    assert found(index, count + 5)


def test_memory_keeps_only_the_newest_rows(make_index):
    index = make_index(item_capacity=400_000, slot_count=65_536)
    for first in range(0, 300_000, 10_000):
        put_numbers(index, first, 10_000)
    file = components_of(index).writing.writer._active.file
    assert file.bytes_used > 10 << 20
    begin = file._mapping.array.ctypes.data
    assert private_bytes(begin, len(file._mapping.array)) < 4 << 20
    assert found(index, 2000)


def private_bytes(begin, length):
    """Return how much of a mapping is this process' own, from /proc."""
    inside, total = False, 0
    with open("/proc/self/smaps") as lines:
        for line in lines:
            head = line.split()[0]
            if "-" in head and not head.endswith(":"):
                low = int(head.split("-")[0], 16)
                inside = begin <= low < begin + length
            elif inside and head == "Anonymous:":
                total += int(line.split()[1]) << 10
    return total


def test_a_full_disk_refuses_the_batch_and_the_next_file_goes_on(make_index, monkeypatch):
    index = make_index(item_capacity=100_000)
    put_numbers(index, 0, 100)
    write = local_file.PrivateMapping.write_back

    def fail(self, position, length):
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(local_file.PrivateMapping, "write_back", fail)
    with pytest.raises(BacklogFullError):
        put_numbers(index, 100, 100)
    with pytest.raises(BacklogFullError):
        put(index, "k100", 100, durability="os")
    assert found(index, 100)
    monkeypatch.setattr(local_file.PrivateMapping, "write_back", write)
    put_numbers(index, 100, 100)
    index.run_compaction()
    assert index.flush("disk") == "disk"
    assert found(index, 200)
