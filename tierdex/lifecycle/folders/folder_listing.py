"""What lies in the folders of the local states: every name, and the identity of every file.

Depends on filesystem, errors, file_state and paths.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

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


def _identified(
    state: FileState, number: int, path: Path, identify: Callable[[FileState, Path], Identity]
) -> FoundFile:
    try:
        return FoundFile(state, number, path, identify(state, path))
    except CorruptFileError as error:
        return FoundFile(state, number, path, None, error.reason)
