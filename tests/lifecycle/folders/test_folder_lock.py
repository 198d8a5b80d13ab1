import subprocess
import sys

import pytest

from tierdex.clock import ManualClock
from tierdex.errors import FolderInUseError
from tierdex.filesystem import LocalFileSystem
from tierdex.lifecycle.folders.folder_lock import acquire_folder_lock, make_holder_text, read_holder

FS = LocalFileSystem()


def test_second_writer_is_refused_and_told_who_holds_it(tmp_path):
    lock = acquire_folder_lock(FS, tmp_path / "data", "pid 7 on host")
    with pytest.raises(FolderInUseError, match="pid 7 on host") as caught:
        acquire_folder_lock(FS, tmp_path / "data", "pid 8 on host")
    assert caught.value.holder == "pid 7 on host"
    lock.release()
    acquire_folder_lock(FS, tmp_path / "data", "pid 8 on host").release()


def test_lock_ends_with_the_process_that_holds_it(tmp_path):
    code = (
        "import os, sys; from pathlib import Path; from tierdex.filesystem import LocalFileSystem;"
        "from tierdex.lifecycle.folders.folder_lock import acquire_folder_lock;"
        "lock = acquire_folder_lock(LocalFileSystem(), Path(sys.argv[1]), 'gone'); os._exit(9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert done.returncode == 9
    acquire_folder_lock(FS, tmp_path, "here").release()


@pytest.mark.parametrize("content", [b"", b"\xff\x00\n" * 400, b"x" * 10_000])
def test_damaged_lock_file_never_decides(tmp_path, content):
    (tmp_path / "LOCK").write_bytes(content)
    assert len(read_holder(FS, tmp_path)) <= 200
    assert read_holder(FS, tmp_path).isprintable()
    acquire_folder_lock(FS, tmp_path, "here").release()


def test_holder_text_names_process_host_and_time():
    text = make_holder_text(ManualClock(1_700_000_000_000))
    assert text.startswith("pid ")
    assert text.endswith("since 2023-11-14T22:13:20+00:00")


def test_folder_without_a_lock_file_has_no_holder(tmp_path):
    assert read_holder(FS, tmp_path) == ""
