"""What lies in the folders of the local states: every name, and the identity of every file.

Depends on filesystem, errors, file_state and paths.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from tierdex.errors import CorruptFileError
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.paths import LOCAL_STATES, READY_NAME, DataPaths, is_temporary, parse_number

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tierdex.filesystem import FileSystem


class Identity(NamedTuple):
    """The identity in a file's header and footer, read without a scan of the file."""

    uuid: bytes
    is_sealed: bool = False  # an unsealed file with a footer: the crash came before the rename
    parts: tuple[bytes, ...] = ()  # uuids of files merged into it


class FoundFile(NamedTuple):
    """A file with a name of ours. `identity` is None when the header is broken; `reason` tells why."""

    state: FileState
    number: int
    path: Path
    identity: Identity | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class FolderListing:
    """Every name in the folders of the local states."""

    files: tuple[FoundFile, ...] = ()
    leftovers: tuple[Path, ...] = ()  # temporary names and the ready-made next file
    foreign: tuple[tuple[FileState, Path], ...] = ()


def list_folders(
    filesystem: FileSystem, paths: DataPaths, identify: Callable[[FileState, Path], Identity]
) -> FolderListing:
    """List the folders and identify every file.

    `identify` raises CorruptFileError for a file that does not open. An OSError ends the recovery:
    when the disk cannot be read, no file is moved.
    """
    files: list[FoundFile] = []
    leftovers: list[Path] = []
    foreign: list[tuple[FileState, Path]] = []
    for state in LOCAL_STATES:
        folder = paths.folder(state)
        for name in filesystem.list_folder(folder):
            path = folder / name
            number = parse_number(name)
            if is_temporary(name) or (state is FileState.UNSEALED and name == READY_NAME):
                leftovers.append(path)
            elif number is None:
                foreign.append((state, path))
            else:
                files.append(_identified(state, number, path, identify))
    return FolderListing(tuple(files), tuple(leftovers), tuple(foreign))


def list_beside_writer(
    filesystem: FileSystem, paths: DataPaths
) -> dict[int, tuple[FileState, Path]]:
    """Return each number's state and path in a folder that another process changes. Raises OSError.

    The younger state first: a file that moves meanwhile is found in one of the two. Of two copies the later
    wins: it is whole once it has its name.
    """
    found: dict[int, tuple[FileState, Path]] = {}
    for state in LOCAL_STATES:
        folder = paths.folder(state)
        for name in filesystem.list_folder(folder):
            number = parse_number(name)
            if number is not None:
                found[number] = (state, folder / name)
    return found


class Opened(Protocol):
    """A file that is open."""

    def release(self) -> None: ...


_Opened = TypeVar("_Opened", bound=Opened)


def open_beside_writer(
    filesystem: FileSystem, path: Path, open_file: Callable[[], _Opened]
) -> _Opened:
    """Open a file that still has its name afterwards, in a folder that another process changes.

    One that was given up between the listing and its opening may be another file by now: it is no damage
    then, but FileNotFoundError. Raises CorruptFileError, OSError.
    """
    try:
        opened = open_file()
    except CorruptFileError:
        _refuse_unless_there(filesystem, path)
        raise
    try:
        _refuse_unless_there(filesystem, path)
    except BaseException:
        opened.release()
        raise
    return opened


def _refuse_unless_there(filesystem: FileSystem, path: Path) -> None:
    if not filesystem.exists(path):
        raise FileNotFoundError(errno.ENOENT, "moved while it was opened", str(path))


def _identified(
    state: FileState, number: int, path: Path, identify: Callable[[FileState, Path], Identity]
) -> FoundFile:
    try:
        return FoundFile(state, number, path, identify(state, path))
    except CorruptFileError as error:
        return FoundFile(state, number, path, None, error.reason)
