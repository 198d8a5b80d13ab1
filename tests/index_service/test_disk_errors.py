"""Whatever call on the disk fails, a public call raises one of our errors, with the path and advice."""

from __future__ import annotations

import contextlib
import errno
import signal
from pathlib import Path

import pytest

from tests.index_service.conftest import offsets, put
from tests.simulation.scheduler import InlineExecutor
from tests.simulation.simulated_disk import SimulatedFileSystem
from tierdex import errors
from tierdex.disk_errors import disk_error
from tierdex.filesystem import LocalFileSystem
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of

_HARMLESS = ("close", "release")  # a descriptor is given back whatever happens
_FAULTS = (errno.EIO, errno.ENOSPC, errno.EMFILE, errno.EACCES)


class FailingDisk:
    """Fails the call number `fail_at`, counted from the last `arm`; 0: none."""

    def __init__(self):
        self.calls, self.fail_at, self.number = 0, 0, errno.EIO

    def arm(self, fail_at, number=errno.EIO):
        self.calls, self.fail_at, self.number = 0, fail_at, number

    def wrap(self, inner):
        return _Failing(inner, self)


class _Failing:
    """A file system, a file, a mapping or a lock in front of `inner`."""

    def __init__(self, inner, disk):
        self._inner, self._disk = inner, disk

    def __getattr__(self, name):
        found = getattr(self._inner, name)
        if not callable(found) or name in _HARMLESS:
            return found

        def call(*arguments, **named):
            self._disk.calls += 1
            if self._disk.calls == self._disk.fail_at:
                raise OSError(self._disk.number, "injected", f"/disk/{name}")
            result = found(*arguments, **named)
            return self._disk.wrap(result) if name in ("open", "map", "lock") else result

        return call


@pytest.fixture
def disk():
    return FailingDisk()


@pytest.fixture
def open_index(make_index, disk):
    """Return a factory of indexes over one failing disk and one store, which is well."""
    filesystem, store = SimulatedFileSystem(), MemoryStore()

    def make(**settings):
        settings = {"remote_interval": 0, "remote_timeout": 1, **settings}
        return make_index(
            Path("/data"), store=store, filesystem=disk.wrap(filesystem), executor=InlineExecutor(),
            **settings,
        )  # fmt: skip

    return make


def fill(index):
    """Leave a published file, a compacted one's worth of sealed entries, and an unsealed file."""
    for number in range(3):
        put(index, "K", number)
        put(index, "L", number)
        if number < 2:
            index.roll()
        if number < 1:
            index.run_compaction()
    index.flush("disk")


def _verify_all(index):
    for file in index.files():
        index.verify_file(file.file_id)


def _put_batch(index):
    index.put_batch(topic="t", keys=["A", "B"], queue_id=0, offset=[1, 2], size=1, timestamp=1)


CALLS = {
    "put": lambda index: put(index, "M", 9, durability="disk"),
    "put_batch": _put_batch,
    "flush-disk": lambda index: (put(index, "M", 9), index.flush("disk")),
    "flush-remote": lambda index: (put(index, "M", 9), index.flush("remote")),
    "roll": lambda index: (index.roll(), put(index, "M", 9, durability="os")),
    "run_compaction": lambda index: (index.roll(), index.run_compaction()),
    "refresh": lambda index: index.refresh(),
    "verify_file": _verify_all,
    "query": lambda index: (put(index, "M", 9), index.query("orders", key="K")),
    "query_batch": lambda index: index.query_batch([{"topic": "orders", "key": "K"}] * 3),
    "expire": lambda index: index.expire(before=1 << 60),
    "reading": lambda index: (index.files(), index.topics(), index.watermark("orders", 0)),
    "close": lambda index: (put(index, "M", 9), index.close()),
}


MANY_CALLS = {"flush-remote", "run_compaction"}  # `make torture` tries them all


@pytest.mark.parametrize("name", CALLS)
def test_any_failing_call_on_the_disk_becomes_a_typed_error(name, open_index, disk, clock):
    index = open_index()
    fill(index)
    for nth in range(1, 400, 5 if name in MANY_CALLS else 1):
        index = _reopened(index, open_index)
        put(index, "N", nth)
        index.flush("disk")
        clock.advance(1.0)  # the disk budget looks again
        said = "/disk/"
        disk.arm(nth, _FAULTS[nth % len(_FAULTS)])
        try:
            CALLS[name](index)
        except errors.TierdexError as error:
            said = str(error)
        reached, _ = disk.calls >= nth, disk.arm(0)
        assert "/disk/" in said
        if not reached:
            break
    else:
        pytest.fail("there are more calls than were tried")
    index = _reopened(index, open_index)
    assert set(offsets(index.query("orders", key="K"))) >= {0, 1, 2} or name == "expire"


def _reopened(index, open_index):
    with contextlib.suppress(errors.UnavailableError):
        index.close()
    return open_index()


@pytest.mark.parametrize("read_only", [False, True])
def test_open_raises_a_typed_error_and_gives_the_folder_back(read_only, open_index, disk):
    index = open_index()
    fill(index)
    index.close()
    opened = 0
    for nth in range(1, 400):
        said = "/disk/"
        disk.arm(nth, _FAULTS[nth % len(_FAULTS)])
        try:
            index = open_index(read_only=read_only)
        except errors.TierdexError as error:
            said = str(error)
        else:
            opened += 1
        reached, _ = disk.calls >= nth, disk.arm(0)
        assert "/disk/" in said
        with contextlib.suppress(errors.UnavailableError):  # as its first sync failed, perhaps
            index.close()
        with open_index() as index:  # whatever became of it
            assert offsets(index.query("orders", key="K")) == [2, 1, 0]
        if not reached:
            break
    else:
        pytest.fail("there are more calls than were tried")
    assert opened


def test_sidecars_that_cannot_be_listed_are_fetched_again(make_index, tmp_path):
    index = make_index(store=str(tmp_path / "store"), remote_interval=0)
    put(index, "K", 1)
    index.flush("remote")
    index.close()

    class WithoutSidecars(LocalFileSystem):
        def list_folder(self, path):
            if path.name == "uploaded":
                raise OSError(errno.EIO, "injected", str(path))
            return super().list_folder(path)

        def file_size(self, path):
            if path.parent.name == "uploaded":
                raise OSError(errno.EIO, "injected", str(path))
            return super().file_size(path)

    with make_index(store=str(tmp_path / "store"), filesystem=WithoutSidecars()) as index:
        answer = index.query("orders", key="K", explain=True)
        assert (offsets(answer), answer.complete) == ([1], True)
        assert answer.explain.requests >= 1


@pytest.mark.parametrize(
    ("number", "kind", "advice"),
    [
        (errno.ENOSPC, errors.BacklogFullError, "free some space"),
        (errno.EMFILE, errors.UnavailableError, "ulimit"),
        (errno.EACCES, errors.UnavailableError, "right"),
        (errno.EIO, errors.UnavailableError, "disk"),
    ],
)
def test_error_names_the_path_and_what_to_do(number, kind, advice):
    error = disk_error(OSError(number, "injected", "/data/sealed/1.idx"))
    assert type(error) is kind
    assert "/data/sealed/1.idx" in str(error)
    assert advice in str(error)


def test_error_of_a_signal_handler_passes_unchanged(index, monkeypatch):
    def raise_timeout(*_):
        raise TimeoutError("my own deadline")

    before = signal.signal(signal.SIGUSR1, raise_timeout)
    try:
        monkeypatch.setattr(
            components_of(index).catalogue, "topics", lambda: signal.raise_signal(signal.SIGUSR1)
        )
        with pytest.raises(TimeoutError, match="my own deadline"):
            index.topics()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_local_files_errors_name_their_path(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12")
    file = LocalFileSystem().open(path)
    with pytest.raises(OSError, match=r"2 bytes.*file"):
        file.map(4096, writable=False)
    with pytest.raises(OSError, match=str(path)):
        file.write_at(0, b"x")  # opened for reading
    file.close()
