"""`TableSource`: what a table format must offer to be followed. One follower reads all of them, by this.

What every source promises:

* `steps` tells each snapshot after a known one as the *whole* set of its data files: their difference to the
  snapshot before is the follower's to find, so that a roll back, a restore and a log with gaps are all the
  same;
* a data file never changes, and its path never means another one;
* a feature, a file format or a type that it cannot read exactly raises InvalidRequestError, which names it,
  before anything of the snapshot is told;
* what does not answer raises UnavailableError, and the next look tries again.

Depends on errors and files.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from contextlib import AbstractContextManager

    import numpy as np

    from tierdex.files.table_columns import TableColumns


@dataclass(frozen=True)
class LiveFile:
    """A data file of a snapshot: `path` below the table's root, or an address.

    `mark` tells its deletes from others; `deletes` reads them: rows (u8, rising). None: no row is deleted.
    """

    path: str
    size: int
    partition: Mapping[str, str | None] = field(default_factory=dict)
    mark: str = ""
    deletes: Callable[[], np.ndarray] | None = None


@dataclass(frozen=True)
class TableStep:
    """A snapshot: its ID, version and commit time (int64 ms), its columns as JSON, its files by path."""

    snapshot: str
    version: int
    time_ms: int
    columns: str
    files: Mapping[str, LiveFile]


def prefixes_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the addresses that files of a table may lie below, besides its own: the option `prefixes`."""
    return tuple(each for each in options.get("prefixes", "").split(",") if each)


def of_partitions(step: TableStep, columns: TableColumns, wanted: Collection[str]) -> TableStep:
    """Return a step with the files of some partitions, NAME=VALUE, alone; values of a name are alternatives.

    Values are the texts of the table's log. Raises InvalidRequestError where a file has no such partition.
    """
    if not wanted:
        return step
    chosen: dict[str, set[str | None]] = {}
    for each in wanted:
        name, equals, value = each.partition("=")
        column = columns.column(name)
        if not equals or column is None:
            raise InvalidRequestError(
                f"{each!r} is not NAME=VALUE with a column of the table", field="partitions"
            )
        chosen.setdefault(column.physical, set()).add(value or None)
    files = {}
    for path, file in step.files.items():
        for name in chosen.keys() - file.partition.keys():
            raise InvalidRequestError(f"{path} is not partitioned by {name!r}", field="partitions")
        if all(file.partition[name] in values for name, values in chosen.items()):
            files[path] = file
    return replace(step, files=files)


class TableSource(Protocol):
    """A table that can be followed."""

    @property
    def name(self) -> str:
        """What readers are told: where the table is, without any secret."""
        ...

    @property
    def topic(self) -> str:
        """The topic that its rows are indexed under when the caller names none."""
        ...

    @property
    def root(self) -> str:
        """The address that paths of its files are below."""
        ...

    def identity(self) -> str:
        """Return what tells this table from another one of its name: its UUID."""
        ...

    def behind(self, since: str | None) -> int:
        """Return how many snapshots follow `since`, an ID, at least; 0: it is the newest one."""
        ...

    def steps(self, since: str | None, upto: str | None) -> Iterator[TableStep]:
        """Yield the snapshots after `since`, an ID, up to `upto` (None: the newest), oldest first.

        Where the way from `since` is not known any more, and with `since` None, the last one alone.
        Raises NotFoundError when the table has no snapshot `upto`.
        """
        ...

    def opened(self, file: LiveFile) -> AbstractContextManager[Any]:
        """Open a data file: a file-like that seeks."""
        ...

    def close(self) -> None:
        """End connections. Idempotent."""
        ...
