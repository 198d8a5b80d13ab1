"""The files below a folder of a user: each once, and nothing that is no file.

::

    logs/a.jsonl            a file
    logs/p.jsonl            a pipe, socket, device, or a link to nothing: skipped, and told by its name
    logs/now -> a.jsonl     a link to a file that has a name of its own below the folder: that name counts
    logs/up -> ..           a link to a folder: entered, unless the walk was there already

Names are as the system has them; `readable_name` makes text of one that is not UTF-8.

Depends on filesystem and local_file.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tierdex.filesystem import FileSystem
    from tierdex.local_file import FileStat

_NOTHING = "a link to nothing"


class FoundFile(NamedTuple):
    """A file: its path below the folder, with slashes, and what it was when it was found."""

    name: str
    stat: FileStat


@dataclass
class Walk:
    """What is below a folder: `files` in order of their paths; `skipped`, by path, what is no file."""

    files: list[FoundFile] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)


def walk(
    filesystem: FileSystem, folder: Path, wanted: Callable[[str], bool] = lambda _name: True
) -> Walk:
    """Return what is below a folder, without the names that are not `wanted`. Raises OSError.

    A folder that is gone before it is read is empty. What was found is not opened.
    """
    found, seen = Walk(), set[tuple[int, int]]()
    top = filesystem.stat(folder)
    if top is None:
        return found
    files: list[FoundFile] = []
    folders = [("", top)]
    links: list[tuple[str, FileStat]] = []  # last, so that what is below has its own name first
    while folders or links:
        below, stat = folders.pop() if folders else links.pop(0)
        if stat.identity in seen:
            continue
        seen.add(stat.identity)
        for each in filesystem.list_folder(folder / below):
            if not wanted(each):
                continue
            name = f"{below}{each}"
            there = filesystem.stat(folder / name)
            if there is None:
                if _is_listed(filesystem, folder / name):
                    found.skipped[name] = _NOTHING
            elif there.kind == "folder":
                (links if there.is_link else folders).append((f"{name}/", there))
            elif there.kind == "file":
                files.append(FoundFile(name, there))
            else:
                found.skipped[name] = f"a {there.kind}"
    own = {file.stat.identity for file in files if not file.stat.is_link}
    for file in sorted(files, key=lambda each: each.name.split("/")):
        if not file.stat.is_link or file.stat.identity not in own:
            found.files.append(file)
            own.add(file.stat.identity)
    return found


def readable_name(name: str) -> str:
    r"""Return a name as text: bytes that are not UTF-8 are written as ``\xe9``."""
    return os.fsencode(name).decode(errors="backslashreplace")


def _is_listed(filesystem: FileSystem, path: Path) -> bool:
    return path.name in filesystem.list_folder(path.parent)
