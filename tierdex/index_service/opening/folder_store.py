"""The store of a data folder: a small file `DATA/STORE` with its URL, written when the node is claimed there.

A folder's files, its node's manifest and what it has published belong together. Opened with another store
it would look as if that had lost a manifest. So the store is taken from the folder where none is named, and
another one is refused, unless the folder is *adopted*.

A store inside the folder is written relative to it: both may be moved together. A store that moved is named
by writing its new URL into the file (docs/operations.md). Stores in memory are not recorded, nor those that
a caller opened.

Depends on storage_layer and the ground.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from tierdex.errors import CorruptFileError, InvalidRequestError
from tierdex.storage_layer.open import folder_of_url
from tierdex.whole_file import read_head, replace_file

if TYPE_CHECKING:
    from pathlib import Path

    from tierdex.filesystem import FileSystem
    from tierdex.storage_layer.base import Store

DEFAULT_STORE: Final = "store"
_NAME: Final = "STORE"
_BYTES_MAX: Final = 4096
_MEMORY: Final = "memory://"


def store_of_folder(filesystem: FileSystem, root: Path) -> str:
    """Return the URL of a folder's store: the recorded one, else `DATA/store`. Raises CorruptFileError."""
    recorded = _read(filesystem, root)
    return str(root / DEFAULT_STORE) if recorded is None else recorded


def belongs_to(filesystem: FileSystem, root: Path, store: str) -> bool:
    """Return whether a store is the one of a folder. Raises CorruptFileError."""
    return _identity(store) == _identity(store_of_folder(filesystem, root))


def settle_store(
    filesystem: FileSystem, root: Path, store: str | os.PathLike[str] | Store | None, *, adopt: bool
) -> str | Store:
    """Return the store to open. Raises InvalidRequestError for another than the folder's."""
    if store is None:
        return store_of_folder(filesystem, root)
    if not isinstance(store, str | os.PathLike):
        return store
    named = os.fspath(store)
    recorded = _read(filesystem, root)
    if recorded is None or adopt or _identity(named) == _identity(recorded):
        return named
    raise InvalidRequestError(
        f"the folder {root} belongs to store {recorded}, not {named}: leave `store` out. If its store was "
        f"moved on purpose, write the new one into {root / _NAME}",
        field="store",
    )


def note_store(filesystem: FileSystem, root: Path, store: str | Store) -> None:
    """Record the store of a folder whose node was claimed there, durably. Raises OSError."""
    if not isinstance(store, str) or store.startswith(_MEMORY):
        return
    folder = folder_of_url(store)
    text = store if folder is None else str(folder.absolute())
    if _read(filesystem, root) == text:
        return
    if folder is not None and folder.absolute().is_relative_to(root):
        text = str(folder.absolute().relative_to(root))
    replace_file(filesystem, root / _NAME, f"{text}\n".encode())


def _read(filesystem: FileSystem, root: Path) -> str | None:
    """Return the recorded store, a folder as an absolute path; None without one."""
    path = root / _NAME
    data = read_head(filesystem, path, _BYTES_MAX + 1)
    if data is None:
        return None
    text = data.decode("utf-8", "replace").strip()
    if not text or len(data) > _BYTES_MAX or not text.isprintable():
        raise CorruptFileError(
            path, "does not hold the URL of a store; write the correct one into it"
        )
    return text if "://" in text else str(root / text)


def _identity(url: str) -> tuple[str, str]:
    """Return what tells stores apart: a folder, or bucket and prefix, wherever the bucket is served."""
    folder = folder_of_url(url)
    if folder is not None:
        return "file", os.path.realpath(folder)
    parts = urlsplit(url)
    return parts.scheme, f"{parts.netloc}/{parts.path.strip('/')}"
