"""Ranges of published files on disk: kept over restarts, within a budget, never believed unverified."""

from __future__ import annotations

import errno
import os
from types import SimpleNamespace

import pytest

from tierdex.clock import SystemClock
from tierdex.errors import StoreUnavailableError
from tierdex.filesystem import LocalFileSystem
from tierdex.ids import SystemIds
from tierdex.index_service.readers.range_cache import RangeCache
from tierdex.seams import Seams

ROW = SimpleNamespace(uuid=b"u" * 16, tail_crc=7)
OTHER = SimpleNamespace(uuid=b"v" * 16, tail_crc=7)
LONG = 3 << 20  # it is mapped


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def make_cache(folder):
    def make(budget=1 << 30, filesystem=None):
        seams = Seams(SystemClock(), SystemIds(), filesystem or LocalFileSystem())
        return RangeCache(folder, budget, seams)

    return make


def data_of(length, seed=0):
    return bytes((number * 7 + seed) % 251 for number in range(1000)) * (length // 1000 + 1)


def ask(cache, length=5000, row=ROW, position=100, asked=None):
    """Return the range's bytes, and how often it was fetched."""
    fetched = []

    def fetch():
        fetched.append(1)
        return data_of(length, row.uuid[0])[:length]

    found = bytes(cache.get(row, position, length, fetch))
    assert found == data_of(length, row.uuid[0])[:length]
    return len(fetched)


def entries(folder):
    return sorted(path for path in folder.iterdir())


@pytest.mark.parametrize("length", [1, 5000, LONG])
def test_a_range_is_fetched_once_and_found_again_after_a_restart(make_cache, length):
    cache = make_cache()
    assert [ask(cache, length), ask(cache, length)] == [1, 0]
    assert ask(make_cache(), length) == 0
    assert ask(cache, length, position=101) == 1  # another range
    assert ask(cache, length, OTHER) == 1  # another file


@pytest.mark.parametrize("length", [5000, LONG])
@pytest.mark.parametrize("damage", ["cut", "byte", "header", "other", "empty", "longer"])
def test_a_torn_or_foreign_entry_is_fetched_again(make_cache, folder, length, damage):
    ask(make_cache(), length)
    (path,) = entries(folder)
    whole = path.read_bytes()
    at = {"byte": len(whole) - 1, "header": 20}.get(damage)
    if at is not None:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    elif damage == "other":  # a sound entry of another file, put here by hand
        ask(make_cache(), length, OTHER)
        (found,) = (each for each in entries(folder) if each != path)
        found.rename(path)
    else:
        path.write_bytes({"cut": whole[:-1], "empty": b"", "longer": whole + b"x"}[damage])
    cache = make_cache()
    assert [ask(cache, length), ask(cache, length)] == [1, 0]


def test_the_least_recently_used_go_when_the_budget_is_reached(make_cache, folder):
    cache = make_cache(budget=60_000)
    for position in range(10):
        ask(cache, 5000, position=position)
    ask(cache, 5000, position=0)  # used again
    for position in range(10, 13):
        ask(cache, 5000, position=position)
    assert sum(path.stat().st_size for path in entries(folder)) <= 60_000
    assert ask(cache, 5000, position=0) == 0
    assert ask(cache, 5000, position=1) == 1
    assert ask(cache, 70_000, position=99) == 1  # longer than the budget: not kept
    assert ask(cache, 70_000, position=99) == 1
    assert not cache.has_room(60_000)
    assert cache.has(ROW, 0, 5000)


def test_two_caches_share_a_folder_and_its_budget(make_cache, folder):
    first, second = make_cache(budget=60_000), make_cache(budget=60_000)
    ask(first, position=1)
    assert ask(second, position=1) == 0
    for position in range(2, 20):
        ask(first if position % 2 else second, position=position)
        assert sum(path.stat().st_size for path in entries(folder)) <= 75_000
    for path in entries(folder):
        path.unlink()  # as if by the other one
    assert ask(first, position=19) == 1


def test_what_is_forgotten_is_gone_and_other_files_stay(make_cache, folder):
    cache = make_cache()
    for row in (ROW, OTHER):
        ask(cache, row=row)
        ask(cache, row=row, position=7)
    cache.forget(ROW.uuid)
    assert len(entries(folder)) == 2
    assert ask(cache) == 1
    assert ask(cache, row=OTHER) == 0


def test_leftovers_of_a_killed_process_go_and_files_of_others_stay(make_cache, folder):
    folder.mkdir()
    for name in (".tmp-young", ".tmp-old", "notes.txt", "0-zz-1-2"):
        (folder / name).write_bytes(b"x")
    os.utime(folder / ".tmp-old", (1, 1))
    make_cache()
    assert [path.name for path in entries(folder)] == [".tmp-young", "0-zz-1-2", "notes.txt"]


class FullDisk(LocalFileSystem):
    def rename(self, source, target):
        raise OSError(errno.ENOSPC, "no space left")


def test_a_disk_that_takes_nothing_costs_no_answer_and_leaves_nothing(make_cache, folder):
    cache = make_cache(filesystem=FullDisk())
    assert [ask(cache), ask(cache)] == [1, 1]
    assert entries(folder) == []


def test_an_error_of_the_store_is_the_callers(make_cache):
    def fetch():
        raise StoreUnavailableError("down")

    with pytest.raises(StoreUnavailableError):
        make_cache().get(ROW, 0, 10, fetch)
