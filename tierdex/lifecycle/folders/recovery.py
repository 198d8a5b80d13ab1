"""Recovery of a data folder after a stop, clean or not: a pure plan, and its execution.

::

    list_folders -> plan_recovery(listing, published) -> [action, ...] -> apply_recovery -> Recovered

The folder of a file tells its state, the manifest tells which files are published, and headers
identify the files. The plan covers every crash point of `transition` and needs no operator.
Recovery may itself be cut off at any point and run again: each action leaves a folder that the next
plan handles.

===============================  ==================================================================
found                            done
===============================  ==================================================================
`*.tmp`, `next.ready`            removed: half written, or empty
a name that is not ours,         moved to quarantine/ and reported (not deleted: it may be the only
a file whose header is broken    copy of something)
one file in two states           the later wins if it verifies, else it is removed
a source beside its merge        the merge wins if it verifies, else it goes to quarantine
a file that the manifest knows   the local copy is removed (the object is durable and listed); an
                                 unsealed one, which only an old copy of the folder has, quarantined
unsealed, not the newest         sealed: the writer was between two files
unsealed, the newest             kept: the writer goes on with it; one that does not open then, damaged
                                 or cut, is quarantined by the caller
sealed, compacted                kept: the compactor goes on with it
===============================  ==================================================================

Depends on file_state, paths, transition and filesystem. What is inside a file: the callbacks know.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tierdex.errors import CorruptFileError
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.folders.transition import move_by_rename, sync_folders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from tierdex.filesystem import FileSystem
    from tierdex.lifecycle.folders.folder_listing import FolderListing, FoundFile, Identity
    from tierdex.lifecycle.paths import DataPaths

logger = logging.getLogger(__name__)


# -- actions ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RemoveLeftover:
    """A half-written or empty file: no entry of it was ever acknowledged or counted."""

    path: Path


@dataclass(frozen=True, slots=True)
class Quarantine:
    """A file that is not ours or does not open: moved away, kept, reported."""

    state: FileState
    path: Path
    reason: str


@dataclass(frozen=True, slots=True)
class SettleCopies:
    """Two states of one file, or a merge and its sources: the later decides."""

    later: FoundFile
    earlier: tuple[FoundFile, ...]
    is_merge: bool = False


@dataclass(frozen=True, slots=True)
class DropPublished:
    """The local copy of a file that the newest manifest lists."""

    file: FoundFile


@dataclass(frozen=True, slots=True)
class Seal:
    """An unsealed file behind a newer one: no writer appends to it."""

    file: FoundFile


@dataclass(frozen=True, slots=True)
class Keep:
    """A file that stays; the caller opens it and puts it into the table."""

    file: FoundFile


Action = RemoveLeftover | Quarantine | SettleCopies | DropPublished | Seal | Keep


class Repair(Protocol):
    """The layers above, which read the content of a file."""

    def verify(self, state: FileState, path: Path) -> Sequence[str]:
        """Return the broken rules of a sealed or compacted file, in words; read all of it."""
        ...

    def seal(self, path: Path) -> int:
        """Recover an unsealed file, seal and sync it; return its item count. Raises CorruptFileError."""
        ...


@dataclass(slots=True)
class Recovered:
    """The result: files to open, and what was quarantined and removed."""

    files: list[tuple[FileState, int, Path]] = field(default_factory=list)
    quarantined: list[tuple[Path, str]] = field(default_factory=list)
    removed: list[Path] = field(default_factory=list)


def plan_recovery(listing: FolderListing, is_published: Callable[[bytes], bool]) -> list[Action]:
    """Return the actions, in an order in which every prefix is safe. Pure.

    `is_published` tells whether the newest manifest knows a uuid (`ManifestState.knows`). When the
    store cannot be read it returns False, and no file is dropped.
    """
    actions: list[Action] = [RemoveLeftover(path) for path in listing.leftovers]
    actions += [Quarantine(state, path, "not a name of ours") for state, path in listing.foreign]

    sound = [file for file in listing.files if file.identity is not None]
    broken = [file for file in listing.files if file.identity is None]
    actions += [_plan_broken(file, sound) for file in broken]

    published = [file for file in sound if is_published(_identity(file).uuid)]
    actions += [_plan_published(file) for file in published]
    local = [file for file in sound if file not in published]

    copies, single = _plan_copies(local)
    merges = _plan_merges(local)
    strangers, single = _plan_strangers(single)
    actions += strangers
    actions += copies
    newest = max((f.number for f in single if f.state is FileState.UNSEALED), default=0)
    decided_by_merge = {action.later for action in merges}
    for file in single:
        is_open = file.state is FileState.UNSEALED and not _identity(file).is_sealed
        if file in decided_by_merge:
            continue
        if file.state is FileState.UNSEALED and (file.number < newest or not is_open):
            actions.append(Seal(file))
        else:
            actions.append(Keep(file))
    # Last: a source that was kept above is removed again when its merge verifies.
    return [*actions, *merges]


def apply_recovery(
    filesystem: FileSystem, paths: DataPaths, actions: Iterable[Action], mending: Repair
) -> Recovered:
    """Execute the plan. Raises OSError; then run recovery again."""
    recovered = Recovered()
    for folder in paths.folders:
        filesystem.make_folder(folder)
    filesystem.sync_folder(paths.root)  # the folders themselves are durable
    for action in actions:
        match action:
            case RemoveLeftover(path):
                _remove(filesystem, path, recovered)
            case Quarantine(state, path, reason):
                quarantine(filesystem, paths, state, path, reason, recovered)
            case DropPublished(file):
                # Durable before: the commit that lists the file, read after this process started.
                _remove(filesystem, file.path, recovered)
            case SettleCopies():
                _settle(filesystem, paths, action, mending, recovered)
            case Seal(file):
                _seal(filesystem, paths, file, mending, recovered)
            case Keep(file):
                recovered.files.append((file.state, file.number, file.path))
    # One sync for all removals: a name that a crash brings back is removed by the next recovery.
    for folder in paths.folders:
        filesystem.sync_folder(folder)
    recovered.files.sort(key=lambda found: found[1])
    return recovered


# -- planning ---------------------------------------------------------------------------------


def _identity(file: FoundFile) -> Identity:
    assert file.identity is not None
    return file.identity


def _plan_broken(file: FoundFile, sound: Sequence[FoundFile]) -> Action:
    """Remove a later copy that does not open if an earlier one is there, else quarantine it."""
    has_earlier = any(
        other.number == file.number and other.state.age < file.state.age for other in sound
    )
    if has_earlier and file.state is FileState.COMPACTED:
        return RemoveLeftover(file.path)
    return Quarantine(file.state, file.path, file.reason)


def _plan_published(file: FoundFile) -> Action:
    """Drop the local copy, unless it still accepts entries: then the folder is an old copy.

    If the writer went on with such a file, its new entries would be dropped as published.
    """
    if file.state is FileState.UNSEALED:
        return Quarantine(file.state, file.path, "published already: the folder is an old copy")
    return DropPublished(file)


def _plan_copies(files: list[FoundFile]) -> tuple[list[SettleCopies], list[FoundFile]]:
    """Settle files that lie in several states; return the actions and the files that do not."""
    by_uuid: dict[bytes, list[FoundFile]] = {}
    for file in files:
        by_uuid.setdefault(_identity(file).uuid, []).append(file)
    actions: list[SettleCopies] = []
    single: list[FoundFile] = []
    for copies in by_uuid.values():
        *earlier, later = sorted(copies, key=lambda file: (file.state.age, file.number))
        if earlier:
            actions.append(SettleCopies(later, tuple(earlier)))
        else:
            single.append(later)
    return actions, single


def _plan_merges(files: list[FoundFile]) -> list[SettleCopies]:
    """Settle merges against their sources, in whatever state these are."""
    actions: list[SettleCopies] = []
    for file in files:
        parts = set(_identity(file).parts)
        found = tuple(other for other in files if _identity(other).uuid in parts)
        if found:
            actions.append(SettleCopies(file, found, is_merge=True))
    return actions


def _plan_strangers(files: list[FoundFile]) -> tuple[list[Quarantine], list[FoundFile]]:
    """Quarantine the earlier of two files that share a number and nothing else.

    None of our steps leaves such files; a folder assembled by hand might. A merge may have the
    number of its newest source and is no stranger.
    """
    latest: dict[int, FoundFile] = {}
    strangers: list[Quarantine] = []
    for file in sorted(files, key=lambda file: file.state.age, reverse=True):
        holder = latest.setdefault(file.number, file)
        if holder is not file and _identity(file).uuid not in _identity(holder).parts:
            reason = f"another file has its number: {holder.path}"
            strangers.append(Quarantine(file.state, file.path, reason))
    moved = {action.path for action in strangers}
    return strangers, [file for file in files if file.path not in moved]


# -- doing ------------------------------------------------------------------------------------


def _remove(filesystem: FileSystem, path: Path, recovered: Recovered) -> None:
    filesystem.unlink(path)
    recovered.removed.append(path)
    recovered.files = [found for found in recovered.files if found[2] != path]
    logger.info("removed", extra={"path": str(path)})


def quarantine(
    filesystem: FileSystem,
    paths: DataPaths,
    state: FileState,
    path: Path,
    reason: str,
    recovered: Recovered,
) -> None:
    """Move a file that does not open to quarantine/, durably, and note it. Raises OSError."""
    taken = set(filesystem.list_folder(paths.quarantine))
    target = paths.quarantined(state, path.name)
    attempt = 0
    while target.name in taken:  # never over a file that is there already
        attempt += 1
        target = paths.quarantined(state, f"{path.name}.{attempt}")
    filesystem.rename(path, target)  # visible there; nothing opens it any more
    sync_folders(filesystem, target, path)
    recovered.quarantined.append((target, reason))
    logger.warning("quarantined", extra={"path": str(target), "reason": reason})


def _settle(
    filesystem: FileSystem,
    paths: DataPaths,
    action: SettleCopies,
    mending: Repair,
    recovered: Recovered,
) -> None:
    later, earlier = action.later, list(action.earlier)
    wrong = mending.verify(later.state, later.path)
    if action.is_merge and wrong:
        # It may have taken the name of one of its sources and be the only copy of it. The other
        # sources were kept by actions of their own.
        quarantine(filesystem, paths, later.state, later.path, "; ".join(wrong), recovered)
        return
    while wrong:
        _remove(filesystem, later.path, recovered)
        later = earlier.pop()
        # The last copy stays, also when it is damaged: there is no better one.
        wrong = mending.verify(later.state, later.path) if earlier else []
    sync_folders(
        filesystem, later.path
    )  # its name is durable before the earlier copies are removed
    for file in reversed(earlier):
        _remove(filesystem, file.path, recovered)
    if later.state is FileState.UNSEALED:  # a later copy was there, so no writer appends to it
        _seal(filesystem, paths, later, mending, recovered)
    else:
        recovered.files.append((later.state, later.number, later.path))


def _seal(
    filesystem: FileSystem,
    paths: DataPaths,
    file: FoundFile,
    mending: Repair,
    recovered: Recovered,
) -> None:
    try:
        item_count = mending.seal(file.path)  # durable: items, footer
    except CorruptFileError as error:
        quarantine(filesystem, paths, file.state, file.path, error.reason, recovered)
        return
    if item_count == 0:
        _remove(filesystem, file.path, recovered)
        return
    target = paths.path_of(FileState.SEALED, file.number)
    move_by_rename(filesystem, file.path, target)  # visible and durable as sealed
    recovered.files.append((FileState.SEALED, file.number, target))
