"""Moves a file between state folders, so that no crash between two system calls loses or doubles it.

Rename only (unsealed -> sealed)::

    1 rename                visible in the new folder, gone from the old, at once
    2 sync both folders     durable

Write a new file, then swap (sealed -> compacted)::

    1 write NAME.tmp        invisible: the suffix says half written
    2 sync it               its bytes are durable
    3 verify it whole       read back, every checksum
    4 rename into place     visible; the old file still lies in its folder
    5 sync both folders     the new name is durable
    6 unlink the old file   only now: a crash before leaves both, recovery keeps the later one
    7 sync the old folder   the removal is durable (if the name comes back, recovery removes it)

Errors are OSError and CorruptFileError; after one of them the old file is in its place.

Depends on the ground.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from tierdex.errors import CorruptFileError
from tierdex.whole_file import temporary_beside

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tierdex.filesystem import FileSystem

T = TypeVar("T")


def move_by_rename(filesystem: FileSystem, source: Path, target: Path) -> None:
    """Move a whole, synced file into another folder. Harmless when repeated after a crash."""
    if filesystem.exists(source) or not filesystem.exists(target):  # else an earlier attempt did
        filesystem.rename(source, target)  # visible under its new state
    sync_folders(filesystem, target, source)  # durable there


def swap_in(
    filesystem: FileSystem,
    *,
    target: Path,
    old: Sequence[Path],
    write: Callable[[Path], T],
    verify: Callable[[Path], Sequence[str]],
) -> T:
    """Write a file in place of the `old` files; return the result of `write`.

    `write` creates the file at the path that it is given and closes it. `verify` returns its broken
    rules, in words; if there are any, CorruptFileError is raised.
    """
    temporary = temporary_beside(target)
    filesystem.unlink(temporary)  # of an earlier attempt
    written = write(temporary)
    sync_file(filesystem, temporary)  # its bytes are durable; it is still invisible
    verify_temporary(filesystem, temporary, verify)
    install(filesystem, temporary, target, old)  # visible and durable from here on
    retire(filesystem, [path for path in old if path != target])
    return written


def sync_file(filesystem: FileSystem, path: Path) -> None:
    """Make a closed file's bytes durable. Raises OSError: then write it anew, never sync it again."""
    file = filesystem.open(path, writable=True)
    try:
        file.sync()
    finally:
        file.close()


def verify_temporary(
    filesystem: FileSystem, temporary: Path, verify: Callable[[Path], Sequence[str]]
) -> None:
    """Raise CorruptFileError, and remove the file, if `verify` returns a broken rule."""
    wrong = list(verify(temporary))
    if wrong:
        filesystem.unlink(temporary)
        raise CorruptFileError(temporary, "; ".join(wrong[:5]))


def install(
    filesystem: FileSystem, temporary: Path, target: Path, old: Sequence[Path] = ()
) -> None:
    """Give a synced, verified file its name: visible, durable, and preferred to `old`."""
    filesystem.rename(temporary, target)
    sync_folders(filesystem, target, *old)


def retire(filesystem: FileSystem, old: Sequence[Path]) -> None:
    """Remove files whose successor is durable."""
    for path in old:
        filesystem.unlink(path)
    sync_folders(filesystem, *old)


def sync_folders(filesystem: FileSystem, *paths: Path) -> None:
    """Make the names of these files durable, each folder once, in the order given."""
    for folder in dict.fromkeys(path.parent for path in paths):
        filesystem.sync_folder(folder)
