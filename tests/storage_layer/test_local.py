from __future__ import annotations

import errno
import os

import pytest

from tierdex.clock import ManualClock
from tierdex.errors import NotFoundError, StoreRefusedError, StoreUnavailableError
from tierdex.filesystem import LocalFileSystem
from tierdex.storage_layer.local import LEFTOVER_AGE_MS, LocalStore
from tierdex.testing.store_contract import PatternSource


class RecordingFileSystem(LocalFileSystem):
    """The real file system; says what was done to names, and fails what it is told to."""

    def __init__(self, root):
        self.root = root
        self.steps = []
        self.failing = {}

    def _step(self, verb, *paths):
        if verb in self.failing:
            raise OSError(self.failing[verb], os.strerror(self.failing[verb]))
        shown = [
            str(p.relative_to(self.root)) if p.is_relative_to(self.root) else "" for p in paths
        ]
        self.steps.append(" ".join([verb, *("TEMPORARY" if ".put-" in s else s for s in shown)]))

    def open(self, path, *, writable=False, create=False, exclusive=False):
        if create:
            self._step("create", path)
        file = super().open(path, writable=writable, create=create, exclusive=exclusive)
        real_sync = file.sync

        def sync():
            self._step("sync", path)
            real_sync()

        file.sync = sync
        return file

    def make_folder(self, path):
        self._step("make", path)
        super().make_folder(path)

    def rename(self, source, target):
        self._step("rename", source, target)
        super().rename(source, target)

    def link(self, source, target):
        self._step("link", source, target)
        super().link(source, target)

    def unlink(self, path):
        self._step("unlink", path)
        super().unlink(path)

    def sync_folder(self, path):
        self._step("sync-folder", path)
        super().sync_folder(path)


@pytest.fixture
def filesystem(tmp_path):
    return RecordingFileSystem(tmp_path)


@pytest.fixture
def store(filesystem, tmp_path):
    return LocalStore(tmp_path / "root", filesystem=filesystem)


def names_below(path):
    return sorted(str(p.relative_to(path)) for p in path.rglob("*") if p.is_file())


def test_put_syncs_every_new_folder_and_then_file_and_name(store, filesystem):
    store.put("a/key", b"x")
    assert filesystem.steps == [
        "sync-folder ",  # the folder that is there already may be new as well
        "make root",
        "sync-folder .",
        "make root/a",
        "sync-folder root",
        "create TEMPORARY",
        "sync TEMPORARY",
        "rename TEMPORARY root/a/key",
        "unlink TEMPORARY",
        "sync-folder root/a",
    ]


def test_put_if_absent_links_a_synced_file_and_syncs_the_folder(store, filesystem):
    store.put("a/other", b"")
    filesystem.steps.clear()
    store.put_if_absent("a/key", b"x")
    assert filesystem.steps == [
        "create TEMPORARY",
        "sync TEMPORARY",
        "link TEMPORARY root/a/key",
        "unlink TEMPORARY",
        "sync-folder root/a",
    ]


def test_own_earlier_attempt_is_made_durable_before_it_counts_as_success(store, filesystem):
    store.put_if_absent("key", b"x")
    filesystem.steps.clear()
    store.put_if_absent("key", b"x")
    assert filesystem.steps[-1] == "sync-folder root"


def test_opening_and_reading_make_no_folder(tmp_path):
    store = LocalStore(tmp_path / "root")
    assert list(store.list("")) == []
    assert store.list_folders("") == []
    store.delete("key")
    with pytest.raises(NotFoundError):
        store.get("key")
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize("verb", ["create", "sync", "rename", "sync-folder", "make"])
@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOSPC, StoreUnavailableError),
        (errno.EIO, StoreUnavailableError),
        (errno.EROFS, StoreRefusedError),
    ],
)
def test_failed_step_is_reported_and_the_next_attempt_succeeds(
    store, filesystem, tmp_path, verb, number, expected
):
    filesystem.failing[verb] = number
    with pytest.raises(expected):
        store.put("a/key", b"x")
    filesystem.failing.clear()
    store.put("a/key", b"y")
    assert names_below(tmp_path) == ["root/a/key"]
    assert store.get("a/key") == b"y"


def test_failed_sync_of_an_upload_leaves_the_old_object(store, filesystem, tmp_path):
    store.put("key", b"old")
    filesystem.failing["sync"] = errno.EIO
    with pytest.raises(StoreUnavailableError):
        store.upload("key", PatternSource(100), 100)
    assert store.get("key") == b"old"
    assert names_below(tmp_path) == ["root/key"]


def test_leftover_of_a_crash_is_invisible_and_removed_when_old(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / ".put-dead").write_bytes(b"half")
    now_ms = (folder / ".put-dead").stat().st_mtime_ns // 1_000_000

    young = LocalStore(tmp_path, clock=ManualClock(now_ms + LEFTOVER_AGE_MS // 2))
    young.put("a/one", b"")
    assert [found.key for found in young.list("")] == ["a/one"]
    assert (folder / ".put-dead").exists()  # its writer may be alive

    LocalStore(tmp_path, clock=ManualClock(now_ms + 2 * LEFTOVER_AGE_MS)).put("a/two", b"")
    assert names_below(tmp_path) == ["a/one", "a/two"]


def test_object_below_an_object_is_refused_with_a_reason(store):
    store.put("a", b"")
    with pytest.raises(StoreRefusedError, match="File exists"):
        store.put("a/b", b"")
    store.put("f/x", b"")
    with pytest.raises(StoreRefusedError, match="Is a directory"):
        store.put("f", b"")


def test_folder_removed_behind_our_back_is_made_again(store, tmp_path):
    store.put("a/key", b"x")
    (tmp_path / "root/a/key").unlink()
    (tmp_path / "root/a").rmdir()
    with pytest.raises(StoreUnavailableError):
        store.put("a/key", b"y")
    store.put("a/key", b"z")
    assert store.get("a/key") == b"z"


def test_listing_looks_at_no_name_before_its_start(store, filesystem, monkeypatch):
    for number in range(20):
        store.put(f"manifest/{number:02d}", b"")
    looked_at = []
    monkeypatch.setattr(
        filesystem, "is_folder", lambda path: looked_at.append(path.name) or path.is_dir()
    )
    assert [found.key for found in store.list("manifest/", "manifest/17")] == [
        "manifest/18",
        "manifest/19",
    ]
    assert len(looked_at) <= 3


def test_listing_that_cannot_look_at_a_name_says_that_the_store_is_unavailable(
    store, filesystem, monkeypatch
):
    store.put("manifest/01", b"")

    def refuse(path):
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    monkeypatch.setattr(filesystem, "is_folder", refuse)
    with pytest.raises(StoreUnavailableError):
        list(store.list("manifest/"))
    with pytest.raises(StoreUnavailableError):
        store.list_folders("")
