"""Where a read takes published messages from, the store or local copies; and how much it reads.

    NOT_IN_DISK   here, as far as they do; else from the store
    NOT_IN_MEM    here only if they are in memory, so that reads of the past leave the disk to writers
    FORCE         from the store
    DISABLE       here; what lies in the store only is named as missing

What is not published yet is read here in any case. Pages that are decoded in memory serve a policy by where
their bytes came from: FORCE takes the store's alone, DISABLE those of local files and copies.

Depends on levels and errors only.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from tierdex.log_service.levels import Level


class ReadPolicy(StrEnum):
    """A policy, by the name that callers use."""

    DISABLE = "DISABLE"
    NOT_IN_DISK = "NOT_IN_DISK"
    NOT_IN_MEM = "NOT_IN_MEM"
    FORCE = "FORCE"


def policy_of(name: object, field: str) -> ReadPolicy:
    """Return the policy that a caller named. Raises InvalidRequestError."""
    try:
        return ReadPolicy(name)  # type: ignore[arg-type]
    except ValueError:
        known = ", ".join(ReadPolicy)
        raise InvalidRequestError(f"must be one of {known}", field=field) from None


@dataclass(slots=True)
class ReadExplain:
    """From where the bytes of an answer came: rows of journals, pages of other files as they are stored.

    `memory`: a journal's stage or mapping. `arena`: pages in memory, decoded; bytes as stored. `disk`: local
    files, `kept_copy`: local copies of published ones; both may come from the page cache. `read_ahead`: of
    the store, fetched before. `store`: fetched for this read. `requests`: how many GETs this read sent, for
    what it needed and for what may come next; not those for filters and directories of files.
    """

    memory: int = 0
    arena: int = 0
    disk: int = 0
    kept_copy: int = 0
    read_ahead: int = 0
    store: int = 0
    requests: int = 0

    def add(self, other: ReadExplain) -> None:
        self.memory += other.memory
        self.arena += other.arena
        self.disk += other.disk
        self.kept_copy += other.kept_copy
        self.read_ahead += other.read_ahead
        self.store += other.store
        self.requests += other.requests


READ_SOURCES: Final = tuple(each.name for each in fields(ReadExplain) if each.name != "requests")


class ReadLimits(NamedTuple):
    """How much of a queue to read, and how safe it has to be."""

    max_count: int
    max_bytes: int
    level: Level
    group: str | None = None  # of a reader that says that it reads on
    policy: ReadPolicy = ReadPolicy.NOT_IN_DISK
