"""Which file of a followed folder is which partition: by what a file is, whatever its name.

A name tells nothing: logs are rotated, copied and cut, and another file stands under the name. A file is
known again by its device and inode, and by the bytes before the place up to which it was read::

    0        4 KiB           at - 4 KiB      at
    | first   |    .......    | last          |  not read yet
    +---------+               +---------------+
         digest of these two: the *mark* at `at`

    look    file of the known inode, if its mark is right         renamed, or just grown
       or   file of the known name, if its mark is right          written anew with the same begin
       or   another file of the folder with the right mark        the copy that `copytruncate` makes
       else the file is gone, and what stands under its name is another one: a new partition

A new file's number is a hash of its path and its first line, so it is the same when the memory is lost; a
file without a whole first line is none yet. Where the number is taken (the same name and first line as a file
before) the hash counts on.

Depends on errors, file_walk, filesystem and xxhash.
"""

from __future__ import annotations

import posixpath
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import xxhash

from tierdex.errors import PermissionDeniedError
from tierdex.file_walk import FoundFile, readable_name, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from tierdex.filesystem import FileSystem, OpenFile

END_BYTES: Final = 4 << 10  # of the begin, and of the end, of what a mark is made of
_FIRST_LINE_BYTES: Final = 64 << 10  # of a longer line, so many tell it
_PACKED: Final = (".gz", ".zst", ".bz2", ".xz", ".lz4", ".zip")


@dataclass
class KnownFile:
    """A file that is a partition: what it is called now, and what it is known by again.

    `origin` is the name under which it was first seen. `mark` is that at position `at`, behind its first line
    at least.
    """

    name: str
    origin: str
    device: int
    inode: int
    at: int
    mark: str

    @property
    def identity(self) -> tuple[int, int]:
        return self.device, self.inode


class FolderFiles:
    """The files of one folder as partitions. `look` first; not for several threads."""

    def __init__(
        self, filesystem: FileSystem, folder: Path, is_followed: Callable[[str], bool]
    ) -> None:
        self._filesystem = filesystem
        self._folder = folder
        self._is_followed = is_followed
        self._known: dict[int, KnownFile] = {}
        self._found: dict[int, FoundFile] = {}
        self._right: dict[int, tuple[Any, ...]] = {}  # what a file was when its mark was right
        self._wrong: set[tuple[int, int, tuple[int, int]]] = set()  # no copy: number, at, identity
        self._searched: dict[int, Any] = {}  # among which files a copy was looked for in vain
        self.skipped: dict[str, str] = {}
        self.replaced = 0  # names under which another file began

    # -- what is remembered -------------------------------------------------------------------------

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Know again what `memory` told, in another process perhaps; then `look`."""
        self._known = {int(number): KnownFile(**row) for number, row in memory.items()}
        self._found = {}

    def memory(self) -> dict[str, Any]:
        """Return what is known of every file, for JSON."""
        return {str(number): vars(known).copy() for number, known in self._known.items()}

    def note(self, partition: int, at: int, mark: str) -> None:
        """Remember the mark of a file at the position up to which it was read."""
        known = self._known[partition]
        if at > known.at:
            known.at, known.mark = at, mark

    # -- what is there ------------------------------------------------------------------------------

    @property
    def numbers(self) -> list[int]:
        return sorted(self._found)

    def __contains__(self, partition: int) -> bool:
        return partition in self._found

    def name_of(self, partition: int) -> str | None:
        """Return what a partition's file is called, or was; None for a number that was never seen."""
        known = self._known.get(partition)
        return None if known is None else known.name

    def path_of(self, partition: int) -> Path:
        """Return where a file is. Raises FileNotFoundError for one that is gone."""
        if partition not in self._found:
            raise FileNotFoundError(partition)
        return self._folder / self._found[partition].name

    def has_mark(self, partition: int, file: OpenFile) -> bool:
        """Return whether an open file is the partition's, and was not written anew since it was read."""
        known = self._known[partition]
        return file.size() >= known.at and mark_of(file, known.at) == known.mark

    def identity_of(self, partition: int) -> tuple[int, int]:
        return self._known[partition].identity

    def look(self) -> None:
        """See what is in the folder now. Raises OSError, PermissionDeniedError."""
        seen = walk(self._filesystem, self._folder)
        self.skipped = {name: why for name, why in seen.skipped.items() if self._is_followed(name)}
        free = {file.name: file for file in seen.files}
        self._found = {}
        by_identity = {file.stat.identity: file for file in seen.files}
        for number, known in self._known.items():
            if known.identity in by_identity:
                self._claim(number, free, [by_identity[known.identity]])
        for number, known in self._absent():
            if known.name in free:
                self._claim(number, free, [free[known.name]])
        self._find_copies(free)
        for file in [file for file in free.values() if self._is_followed(file.name)]:
            self._add(file)

    def _absent(self) -> list[tuple[int, KnownFile]]:
        return [pair for pair in self._known.items() if pair[0] not in self._found]

    def _find_copies(self, free: dict[str, FoundFile]) -> None:
        """Search the unassigned files in the folder for the files that are gone."""
        beside: dict[str, list[FoundFile]] = {}
        for file in free.values():
            if not file.name.endswith(_PACKED):
                beside.setdefault(posixpath.dirname(file.name), []).append(file)
        among = {
            folder: [(file.stat.identity, file.stat.size) for file in files]
            for folder, files in beside.items()
        }
        for number, known in self._absent():
            folder = posixpath.dirname(known.name)
            if folder in beside and self._searched.get(number) != among[folder]:
                self._claim(number, free, beside[folder])
                self._searched[number] = among[folder]

    def _claim(
        self, number: int, free: dict[str, FoundFile], candidates: Iterable[FoundFile]
    ) -> None:
        """Give a partition the first of the files that has its mark."""
        known = self._known[number]
        for file in candidates:
            if file.name in free and self._has_mark_of(number, known, file):
                self._found[number] = free.pop(file.name)
                known.name = file.name
                known.device, known.inode = file.stat.identity
                return

    def _has_mark_of(self, number: int, known: KnownFile, file: FoundFile) -> bool:
        stat = file.stat
        if stat.size < known.at:
            return False
        now = (known.at, known.mark, *stat.identity, stat.size, stat.modified_ns)
        was_wrong = (number, known.at, stat.identity)
        if self._right.get(number) == now:
            return True
        is_other = stat.identity != known.identity
        if is_other and was_wrong in self._wrong:
            return False  # bytes before a place do not change, but for a file that is written anew
        try:
            with closing(self._filesystem.open(self._folder / file.name)) as opened:
                is_right = mark_of(opened, known.at) == known.mark
        except (FileNotFoundError, PermissionError):
            return False
        if is_right:
            self._right[number] = now
        elif is_other:
            self._wrong.add(was_wrong)
        return is_right

    def _add(self, file: FoundFile) -> None:
        first = self._first_line(file)
        if first is None:
            return
        begun_anew = any(known.origin == file.name for known in self._known.values())
        number = _number(file.name, first, 0)
        turn = 0
        while number in self._known:
            turn += 1
            number = _number(file.name, first, turn)
        at = len(first)
        known = mark(first[:END_BYTES], first[-END_BYTES:])
        self._known[number] = KnownFile(file.name, file.name, *file.stat.identity, at, known)
        self._found[number] = file
        self.replaced += begun_anew

    def _first_line(self, file: FoundFile) -> bytes | None:
        """Return what a file begins with; None while its first line is being written."""
        if not file.stat.size:
            return None
        try:
            with closing(open_file(self._filesystem, self._folder / file.name)) as opened:
                data = opened.read_at(0, _FIRST_LINE_BYTES)
        except FileNotFoundError:
            return None
        line, end, _ = data.partition(b"\n")
        return line + end if end or len(data) == _FIRST_LINE_BYTES else None


def open_file(filesystem: FileSystem, path: Path) -> OpenFile:
    """Open a file of the folder. Raises FileNotFoundError, PermissionDeniedError."""
    try:
        return filesystem.open(path)
    except PermissionError as error:
        raise PermissionDeniedError(f"{readable_name(str(path))} may not be read") from error


def mark_of(file: OpenFile, at: int) -> str:
    """Return the mark of a file at a position."""
    first = file.read_at(0, min(at, END_BYTES))
    last = file.read_at(max(0, at - END_BYTES), min(at, END_BYTES))
    return mark(first, last)


def mark(first: bytes, last: bytes) -> str:
    """Return the mark of what lies before a position, of which these are the first and the last bytes."""
    return xxhash.xxh3_128_hexdigest(first + last)


def _number(name: str, first_line: bytes, turn: int) -> int:
    text = name.encode("utf-8", "surrogateescape") + b"\0" + first_line
    return xxhash.xxh64_intdigest(text, turn) & 0x7FFFFFFF
