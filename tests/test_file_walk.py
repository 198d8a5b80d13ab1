"""What is below a folder: each file once, whatever links lead to it; what is no file by its name."""

from __future__ import annotations

import os
import socket

import pytest

from tierdex.file_walk import readable_name, walk
from tierdex.filesystem import LocalFileSystem


def names(folder, **wanted):
    return [file.name for file in walk(LocalFileSystem(), folder, **wanted).files]


def test_files_come_in_order_of_their_paths(tmp_path):
    for name in ("b/2", "b/1", "a", "b.x", "c/d/e"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    assert names(tmp_path) == ["a", "b/1", "b/2", "b.x", "c/d/e"]
    assert names(tmp_path, wanted=lambda name: name != "b") == ["a", "b.x", "c/d/e"]
    assert names(tmp_path / "absent") == []


def test_what_links_lead_to_is_there_once_under_its_own_name(tmp_path):
    (tmp_path / "z").mkdir()
    (tmp_path / "z/f").write_text("x")
    (tmp_path / "z/up").symlink_to("..")
    (tmp_path / "a").symlink_to("z")
    (tmp_path / "current").symlink_to("z/f")
    assert names(tmp_path) == ["z/f"]
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/g").write_text("y")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/one").symlink_to(tmp_path / "outside/g")
    (tmp_path / "logs/two").symlink_to(tmp_path / "outside/g")
    (tmp_path / "logs/w").symlink_to(tmp_path / "outside")
    assert names(tmp_path / "logs") == ["w/g"]
    (tmp_path / "logs/w").unlink()
    assert names(tmp_path / "logs") == ["one"]


def test_what_is_no_file_is_told_by_name(tmp_path):
    os.mkfifo(tmp_path / "p")
    (tmp_path / "gone").symlink_to("absent")
    (tmp_path / "file").write_text("x")
    (tmp_path / "null").symlink_to("/dev/null")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "s"))
    found = walk(LocalFileSystem(), tmp_path)
    assert [file.name for file in found.files] == ["file"]
    assert found.skipped == {
        "p": "a pipe", "gone": "a link to nothing", "null": "a device", "s": "a socket"
    }  # fmt: skip


def test_name_that_is_no_text_is_found_and_can_be_told(tmp_path):
    with open(os.fsencode(tmp_path) + b"/caf\xe9", "wb"):
        pass
    (name,) = names(tmp_path)
    assert readable_name(name) == "caf\\xe9"
    assert (tmp_path / name).exists()
    with pytest.raises(UnicodeEncodeError):
        name.encode()
