"""`TableState`: which files and rows of a followed table are live, at each snapshot that was indexed.

A *step* is one indexed snapshot, numbered from 1. A data file has a number, which its entries carry, and
lives: from which step to which it was part of the table, and with which deleted rows. Both table formats
never change a data file and never use its name again, so (file, position) means one row for ever; what
changes is whether it is live.

A file of no kept snapshot is *dead*. Its number is then forgotten: the path gets another one if the table
brings the file back, so that merges may leave out the entries which carry the old one.

A state is never changed: `with_record` returns the next one, and who holds one sees one snapshot whole.

Depends on errors and numpy.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from tierdex.errors import InvalidRequestError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

FORMAT: Final = 1


class DeletesPlace(NamedTuple):
    """Where the deleted rows of a file lie: a part of a file of ours, and its checksum (crc32)."""

    file: str
    offset: int
    size: int
    rows: int
    crc: int


class Life(NamedTuple):
    """A file is part of the table from step `begin` on, up to but not including `end` (None: still).

    `mark` tells the deletes of this life from those of another, as the table's own metadata names them.
    """

    begin: int
    end: int | None
    deletes: DeletesPlace | None
    mark: str


@dataclass(frozen=True)
class TableFile:
    """A data file: its address below the table's, bytes, rows, and the values that it is partitioned by.

    Of a number that was forgotten only the rows are known: its path is empty.
    """

    number: int
    path: str
    size: int
    rows: int | None
    partition: Mapping[str, str | None]
    lives: tuple[Life, ...] = ()

    def life_at(self, step: int) -> Life | None:
        """Return the life at a step, None where the file is no part of the table."""
        for life in reversed(self.lives):
            if life.begin <= step:
                return life if life.end is None or step < life.end else None
        return None


class IndexedSnapshot(NamedTuple):
    """A snapshot that was indexed: its ID and version as the table names them, its time (int64 ms)."""

    step: int
    snapshot: str
    version: int
    time_ms: int
    columns: str  # the table's columns at this snapshot, JSON; "" for those of the one before


@dataclass(frozen=True)
class TableHead:
    """What a topic follows: fixed when it is first followed. `options` has no secrets."""

    topic: str
    source: str
    table: str  # as readers are told
    identity: str
    root: str
    keys: tuple[str, ...]
    message_id: str | None
    time: str | None
    options: Mapping[str, str] = field(default_factory=dict)
    partitions: tuple[str, ...] = ()  # NAME=VALUE: of the files that are indexed; none: of all

    def as_record(self) -> dict[str, Any]:
        return {"kind": "head", "format": FORMAT, **self.__dict__, "options": dict(self.options)}

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> TableHead:
        """Raises ValueError, KeyError for none, InvalidRequestError for one of another version of Tierdex."""
        if record["kind"] != "head":
            raise ValueError("the log does not begin with its head")
        if record["format"] != FORMAT:
            raise InvalidRequestError(
                f"the table was followed by another version of Tierdex (format {record['format']})",
                field="format",
            )
        said = {name: record[name] for name in cls.__dataclass_fields__ if name != "partitions"}
        partitions = tuple(record.get("partitions", ()))
        return cls(**{**said, "keys": tuple(said["keys"]), "partitions": partitions})


@dataclass(frozen=True)
class TableState:
    """The state of one followed table; see the module."""

    head: TableHead
    snapshots: tuple[IndexedSnapshot, ...] = ()
    files: tuple[TableFile, ...] = ()
    indexed: frozenset[int] = frozenset()  # numbers whose entries are durable, in no step yet
    first_columns: str = ""  # when it was first followed: the names that its keys have
    last_step: int = 0

    @property
    def newest(self) -> IndexedSnapshot | None:
        return self.snapshots[-1] if self.snapshots else None

    def number_of(self, path: str) -> int | None:
        return self._numbers.get(path)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {file.path: file.number for file in self.files if file.path}

    @cached_property
    def is_forgotten(self) -> np.ndarray:
        """Which numbers (b1[n]) no snapshot has any more, of this state or a later one."""
        return np.array([not file.path for file in self.files], bool)

    def dead_numbers(self) -> list[int]:
        """Return the files that no kept snapshot has, and that are not forgotten yet."""
        return [file.number for file in self.files if file.path and not file.lives]

    def live_paths(self) -> dict[str, Life]:
        """Return the files of the newest snapshot, by path."""
        newest = self.newest
        if newest is None:
            return {}
        lives = ((file.path, file.life_at(newest.step)) for file in self.files)
        return {path: life for path, life in lives if life is not None}

    def snapshot_of(self, asked: str | None) -> IndexedSnapshot:
        """Return the snapshot with an ID or version, None: the newest.

        Raises NotFoundError for one that is not kept.
        """
        if asked is None:
            return self.snapshots[-1]
        for each in reversed(self.snapshots):
            if asked in (each.snapshot, str(each.version)):
                return each
        kept = [str(each.version) for each in self.snapshots]
        said = f"{kept[0]} to {kept[-1]}" if kept else "none"
        raise NotFoundError(
            f"table {self.head.table} has no indexed snapshot {asked!r}: kept are {said}"
        )

    def columns_at(self, step: int) -> str:
        """Return the table's columns (JSON) at a step."""
        return next(s.columns for s in reversed(self.snapshots) if s.step <= step and s.columns)

    def deletes_files(self) -> set[str]:
        """Return the files that have deleted rows of any life."""
        lives = (life for file in self.files for life in file.lives)
        return {life.deletes.file for life in lives if life.deletes is not None}

    # -- records ---------------------------------------------------------------------------------

    def with_record(self, record: Mapping[str, Any]) -> TableState:
        """Return the state after a record of its log. Raises ValueError, KeyError, TypeError for none."""
        kind = record["kind"]
        if kind == "files":
            return self._with_files(record["files"])
        if kind == "indexed":
            return self._with_indexed(record["files"])
        if kind == "kept":
            return self._from_step(int(record["first"]))
        if kind == "step":
            return self._with_step(record)
        if kind == "forgotten":
            return self._without(set(record["files"]))
        if (
            kind == "head"
        ):  # another table, in the place of this one: no number has a second meaning
            begun = self._without(range(len(self.files)))
            return TableState(
                TableHead.of_record(record), files=begun.files, last_step=self.last_step
            )
        if kind == "base":
            return self._of_base(record)
        raise ValueError(f"{kind!r} is no record of a table")

    def records(self) -> list[dict[str, Any]]:
        """Return the records of a log that makes this state, as few as there can be."""
        files = [
            [file.number, file.path, file.size, file.rows, file.partition, file.lives]
            for file in self.files if file.path
        ]  # fmt: skip
        forgotten = [[file.number, file.rows] for file in self.files if not file.path]
        base = {
            "kind": "base", "files": files, "forgotten": forgotten, "snapshots": self.snapshots,
            "indexed": sorted(self.indexed), "first_columns": self.first_columns,
            "last_step": self.last_step,
        }  # fmt: skip
        return [self.head.as_record(), base]

    def _of_base(self, record: Mapping[str, Any]) -> TableState:
        files = [TableFile(number, "", 0, rows, {}) for number, rows in record["forgotten"]]
        for number, path, size, rows, partition, lives in record["files"]:
            lived = tuple(
                Life(begin, end, None if place is None else DeletesPlace(*place), mark)
                for begin, end, place, mark in lives
            )
            files.append(TableFile(number, path, size, rows, partition, lived))
        files.sort(key=lambda file: file.number)
        if [file.number for file in files] != list(range(len(files))):
            raise ValueError("numbers of files are missing")
        return replace(
            self,
            files=tuple(files),
            snapshots=tuple(IndexedSnapshot(*each) for each in record["snapshots"]),
            indexed=frozenset(record["indexed"]),
            first_columns=record["first_columns"],
            last_step=record["last_step"],
        )

    def _without(self, numbers: Container[int]) -> TableState:
        """Return the state in which files are forgotten."""
        files = tuple(
            TableFile(file.number, "", 0, file.rows, {}) if file.number in numbers else file
            for file in self.files
        )
        indexed = frozenset(number for number in self.indexed if number not in numbers)
        return replace(self, files=files, indexed=indexed)

    def _with_files(self, rows: Sequence[Sequence[Any]]) -> TableState:
        files = list(self.files)
        for number, path, size, count, partition in rows:
            if number != len(files):
                raise ValueError(f"file {number} follows {len(files) - 1}")
            files.append(TableFile(number, path, size, count, partition))
        return replace(self, files=tuple(files))

    def _with_indexed(self, rows: Sequence[Sequence[int]]) -> TableState:
        files = list(self.files)
        for number, count in rows:
            files[number] = replace(files[number], rows=count)
        numbers = frozenset(number for number, _ in rows)
        return replace(self, files=tuple(files), indexed=self.indexed | numbers)

    def _from_step(self, first: int) -> TableState:
        """Return the state without the snapshots before a step, and what only they had."""
        kept = [each for each in self.snapshots if each.step >= first]
        kept[0] = kept[0]._replace(columns=self.columns_at(first))
        files = []
        for file in self.files:
            lives = tuple(life for life in file.lives if life.end is None or life.end > first)
            files.append(file if len(lives) == len(file.lives) else replace(file, lives=lives))
        return replace(self, snapshots=tuple(kept), files=tuple(files))

    def _with_step(self, record: Mapping[str, Any]) -> TableState:
        step = int(record["step"])
        if step != self.last_step + 1:
            raise ValueError(f"step {step} follows {self.last_step}")
        files = list(self.files)
        for number in record["ended"]:
            *before, life = files[number].lives
            files[number] = replace(files[number], lives=(*before, life._replace(end=step)))
        for number, rows, mark, deletes in record["begun"]:
            place = None if deletes is None else DeletesPlace(*deletes)
            life = Life(step, None, place, mark)
            known = files[number]
            files[number] = replace(known, rows=rows, lives=(*known.lives, life))
        snapshot = IndexedSnapshot(
            step, record["snapshot"], record["version"], record["time_ms"], record["columns"]
        )
        return replace(
            self,
            files=tuple(files),
            snapshots=(*self.snapshots, snapshot),
            first_columns=self.first_columns or record["columns"],
            last_step=step,
            indexed=self.indexed - {number for number, *_ in record["begun"]},
        )
