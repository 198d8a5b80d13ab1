"""A data folder of tiny fake index files, and a file system that dies at the n-th call.

A fake file's bytes are `uuid hex|parts hex,...|items|sealed?|good?`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierdex.errors import CorruptFileError
from tierdex.filesystem import LocalFileSystem
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.folders.folder_listing import Identity, list_folders
from tierdex.lifecycle.folders.recovery import apply_recovery, plan_recovery
from tierdex.lifecycle.paths import DataPaths

if TYPE_CHECKING:
    from pathlib import Path

CHANGING = ("rename", "unlink", "link", "sync_folder", "make_folder", "open")


class Died(Exception):
    """The process ended here."""


class DyingFileSystem(LocalFileSystem):
    """The local file system; the call number `last` + 1 of those that change anything dies."""

    def __init__(self, last: int = 1 << 30) -> None:
        self.last = last
        self.calls: list[str] = []

    def __getattribute__(self, name):
        attribute = super().__getattribute__(name)
        if name not in CHANGING:
            return attribute

        def call(*arguments, **options):
            if len(self.calls) >= self.last:
                raise Died(name)
            self.calls.append(name)
            return attribute(*arguments, **options)

        return call


class Repair:
    """What recovery asks about fake files."""

    def verify(self, state, path):
        fields = path.read_text().split("|")
        return [] if fields[-1] == "good" else ["a page does not verify"]

    def seal(self, path):
        uuid, parts, items, _, good = path.read_text().split("|")
        if good != "good":
            raise CorruptFileError(path, "the header is broken")
        path.write_text("|".join([uuid, parts, items, "sealed", good]))
        return int(items)


def identify(state, path):
    fields = path.read_text().split("|")
    if len(fields) != 5:
        raise CorruptFileError(path, "not an index file")
    parts = tuple(bytes.fromhex(part) for part in fields[1].split(",") if part)
    return Identity(bytes.fromhex(fields[0]), fields[3] == "sealed", parts)


def make_file(
    paths: DataPaths, state: FileState, number: int, *, uuid=None, parts=(), items=1, sealed=None,
    good=True,
) -> Path:  # fmt: skip
    from tests.lifecycle.rows import make_uuid

    is_sealed = state is not FileState.UNSEALED if sealed is None else sealed
    fields = [
        make_uuid(number if uuid is None else uuid).hex(),
        ",".join(make_uuid(part).hex() for part in parts),
        str(items),
        "sealed" if is_sealed else "",
        "good" if good else "bad",
    ]
    path = paths.path_of(state, number)
    path.write_text("|".join(fields))
    return path


def make_folders(root: Path) -> DataPaths:
    paths = DataPaths(root)
    for folder in paths.folders:
        folder.mkdir(parents=True, exist_ok=True)
    return paths


def recover(paths: DataPaths, published=(), filesystem=None):
    """Run recovery; return (Recovered, {state name: numbers})."""
    from tests.lifecycle.rows import make_uuid

    filesystem = filesystem or LocalFileSystem()
    known = {make_uuid(seed) for seed in published}
    listing = list_folders(filesystem, paths, identify)
    actions = plan_recovery(listing, known.__contains__)
    recovered = apply_recovery(filesystem, paths, actions, Repair())
    return recovered, [(state.value, number) for state, number, _ in recovered.files]


def tree(paths: DataPaths) -> list[str]:
    """Return every file in the data folder, as `folder/name` with leading zeros left out."""
    return sorted(
        f"{path.parent.name}/{path.name.lstrip('0')}"
        for path in paths.root.rglob("*")
        if path.is_file()
    )
