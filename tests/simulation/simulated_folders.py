"""The names of a simulated disk: folders, what programs see in them, what a power cut may leave.

A change of names is one effect: one or two assignments of a name to a node (or to nothing). A
rename's two assignments persist together, and certainly once both folders are synced. A new folder
is a name in its parent: before the parent's sync its whole content may disappear with it.

Depends on simulated_file only.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.simulation.simulated_file import Effect, EffectState, SimulatedFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import PurePath


@dataclass(eq=False)
class Folder:
    """A folder's names now, and those that are certainly on the device."""

    path: str
    entries: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)


Node = SimulatedFile | Folder
Assignment = tuple[Folder, str, Node | None]


@dataclass(eq=False)
class NameEffect(Effect):
    """A change of names that persists whole or not at all."""

    assignments: tuple[Assignment, ...] = ()
    unsynced: list[Folder] = field(default_factory=list)


class FolderTree:
    """All names of a disk. Not safe to share between threads: the disk's lock guards it."""

    def __init__(self, root: Folder | None = None) -> None:
        self.root = root or Folder("/")
        self.log: list[NameEffect] = []

    def find(self, path: PurePath) -> Node | None:
        """Return the node of a path, or None. Raises NotADirectoryError on the way through a file."""
        node: Node | None = self.root
        for part in parts_of(path):
            if isinstance(node, SimulatedFile):
                raise failure(errno.ENOTDIR, path)
            if node is None:
                return None
            node = node.entries.get(part)
        return node

    def file(self, path: PurePath) -> SimulatedFile:
        node = self.find(path)
        if node is None:
            raise failure(errno.ENOENT, path)
        if isinstance(node, Folder):
            raise failure(errno.EISDIR, path)
        return node

    def folder(self, path: PurePath) -> Folder:
        node = self.find(path)
        if node is None:
            raise failure(errno.ENOENT, path)
        if isinstance(node, SimulatedFile):
            raise failure(errno.ENOTDIR, path)
        return node

    def assign(self, kind: str, path: PurePath, *assignments: Assignment) -> None:
        """Change names at once for programs, and by one effect for the device."""
        folders = list(dict.fromkeys(folder for folder, _, _ in assignments))
        apply_names([(folder, name, node) for folder, name, node in assignments])
        self.log.append(NameEffect(kind, str(path), assignments=assignments, unsynced=folders))

    def sync(self, folder: Folder) -> None:
        """Make the names of one folder durable; a rename waits for its other folder."""
        for effect in self.log:
            if folder in effect.unsynced:
                effect.unsynced.remove(folder)
            if not effect.unsynced:
                effect.state = EffectState.DURABLE
        while self.log and self.log[0].state is EffectState.DURABLE:
            for parent, name, node in self.log.pop(0).assignments:
                set_name(parent.durable, name, node)

    def uncertain(self) -> list[Effect]:
        return [effect for effect in self.log if effect.state is not EffectState.DURABLE]

    def files(self) -> Iterator[SimulatedFile]:
        """Yield, once each, the files that have a name now, on the device, or in an effect between."""
        seen: set[int] = set()
        waiting: list[Node] = [self.root]
        for effect in self.log:
            waiting.extend(node for _, _, node in effect.assignments if node is not None)
        while waiting:
            node = waiting.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            if isinstance(node, SimulatedFile):
                yield node
            else:
                waiting += [*node.durable.values(), *node.entries.values()]

    def linked_files(self) -> set[SimulatedFile]:
        """Return the files that programs can reach by a name."""
        found: set[SimulatedFile] = set()
        waiting: list[Node] = [self.root]
        while waiting:
            node = waiting.pop()
            if isinstance(node, SimulatedFile):
                found.add(node)
            else:
                waiting += node.entries.values()
        return found

    def name_count(self, file: SimulatedFile) -> int:
        """Return how many names lead to a file now."""
        waiting, count = [self.root], 0
        while waiting:
            for node in waiting.pop().entries.values():
                if isinstance(node, Folder):
                    waiting.append(node)
                count += node is file
        return count

    def after_crash(self, choose: Callable[[Effect], bool]) -> FolderTree:
        """Return a tree of new nodes with what is left when `choose` decides the uncertain effects."""
        left: dict[int, dict[str, Node]] = {}

        def names(folder: Folder) -> dict[str, Node]:
            return left.setdefault(id(folder), dict(folder.durable))

        for effect in self.log:
            if effect.state is EffectState.DURABLE or choose(effect):
                for folder, name, node in effect.assignments:
                    set_name(names(folder), name, node)
        copies: dict[int, Node] = {}

        def copy(node: Node) -> Node:
            if id(node) in copies:
                return copies[id(node)]
            if isinstance(node, SimulatedFile):
                content = node.after_crash(choose)
                file = SimulatedFile(node.path, content, node.modified_ms)
                file.permissions = node.permissions
                copies[id(node)] = file
            else:
                folder = copies[id(node)] = Folder(node.path)
                folder.entries = {name: copy(child) for name, child in names(node).items()}
                folder.durable = dict(folder.entries)
            return copies[id(node)]

        root = copy(self.root)
        assert isinstance(root, Folder)
        return FolderTree(root)


def parts_of(path: PurePath) -> tuple[str, ...]:
    """Return a path's names below the root; a relative path hangs at the root."""
    return path.parts[1:] if path.is_absolute() else path.parts


def failure(number: int, path: object) -> OSError:
    """Return the OSError that the kernel would raise; Python picks its subclass by the number."""
    return OSError(number, os.strerror(number), str(path))


def apply_names(assignments: list[Assignment]) -> None:
    for folder, name, node in assignments:
        set_name(folder.entries, name, node)


def set_name(entries: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        entries.pop(name, None)
    else:
        entries[name] = node
