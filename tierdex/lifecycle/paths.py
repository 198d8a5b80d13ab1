"""The names of files in each state, on disk and in the store: built and parsed in one place.

::

    DATA/LOCK                                   held by the one writing process
    DATA/unsealed/<number>   DATA/unsealed/next.ready
    DATA/sealed/<number>     DATA/compacted/<number>
    DATA/uploaded/<number>-<node>-<uuid>        sidecars: a cache, any of them may be missing
    DATA/uploaded/<the same>.kept               copies of whole published files: a cache as well
    DATA/quarantine/<state>-<name>              files that did not open; never changed again
    DATA/log/<folders as above>                 the message log's files; the index beside it is its own

    PREFIX/nodes/<node>/hint                    where the newest checkpoint is; the owner's live record
    PREFIX/nodes/<node>/probe-<hex>             tests conditional writes; deleted at once
    PREFIX/nodes/<node>/manifest/<number>       one commit each
    PREFIX/nodes/<node>/files/<manifest number that its writer had read>-<uuid>
    PREFIX/nodes/<node>/queues/<the same>-<uuid>    queue tables

Numbers have exactly 20 digits, so that names sort as numbers do; uuids are 32 lower-case hex
digits. A name ending in `.tmp` is half written, by definition: recovery removes it. Parsers return
None for a near miss, never a guess. A node's name contains no `/`; where it is part of a longer
name, the other parts have fixed lengths, so that a `-` in the node's name is not taken for a
separator.

Depends on file_state and the ground.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from tierdex.errors import InvalidRequestError
from tierdex.lifecycle.file_state import FileState
from tierdex.whole_file import TEMPORARY_SUFFIX, temporary_beside

if TYPE_CHECKING:
    from pathlib import Path


READY_NAME: Final = "next.ready"
LOCK_NAME: Final = "LOCK"
LOG_FOLDER: Final = "log"
GONE_NOTE: Final = "GONE"  # in it: what of the log is gone by its age
PUBLISHED_NOTE: Final = "PUBLISHED"  # in it: what of the log the store has
QUARANTINE: Final = "quarantine"
NODES_PREFIX: Final = "nodes/"
LOCAL_STATES: Final = (FileState.UNSEALED, FileState.SEALED, FileState.COMPACTED)
NUMBER_LIMIT: Final = 1 << 63  # 19 digits: every number fits the int64 of numpy, JSON and Spark

_KEPT_SUFFIX: Final = ".kept"
_NODE = r"[a-z0-9][a-z0-9._-]{0,62}"
_NUMBER = re.compile(r"[0-9]{20}")
_NODE_NAME = re.compile(_NODE)
_SIDECAR = re.compile(rf"([0-9]{{20}})-({_NODE})-([0-9a-f]{{32}})")
_OBJECT = re.compile(r"([0-9]{20})-([0-9a-f]{32})")
_QUARANTINED = re.compile(r"[a-z]+-([0-9]{20})(\.[0-9]+)?")


class SidecarName(NamedTuple):
    """The parts of a sidecar's name in `uploaded/`."""

    number: int
    node: str
    uuid: bytes


class ObjectName(NamedTuple):
    """The parts of an object's name: the manifest number its writer had read, the file's uuid."""

    read_number: int
    uuid: bytes


def format_number(number: int) -> str:
    """Return the 20 digits of a file or manifest number."""
    assert 0 <= number < NUMBER_LIMIT, number
    return f"{number:020d}"


def parse_number(name: str) -> int | None:
    """Return the number that `name` spells, None unless it is 20 ASCII digits below the limit."""
    if _NUMBER.fullmatch(name) is None or int(name) >= NUMBER_LIMIT:
        return None
    return int(name)


@lru_cache(maxsize=4096)  # every query needs some
def make_file_id(number: int, node: str) -> str:
    """Return the opaque id of a file, unique over nodes; ids sort as (number, node)."""
    assert _NODE_NAME.fullmatch(node), node
    return f"{format_number(number)}-{node}"


def parse_file_id(file_id: str) -> tuple[int, str]:
    """Return (number, node). Raises InvalidRequestError when it is not one of our ids."""
    digits, _, node = file_id.partition("-")
    number = parse_number(digits)
    if number is None or not is_node_name(node):
        raise InvalidRequestError("not a file id", field="file_id")
    return number, node


def is_node_name(name: str) -> bool:
    return _NODE_NAME.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class DataPaths:
    """The names inside one data folder."""

    root: Path

    @property
    def lock(self) -> Path:
        return self.root / LOCK_NAME

    @property
    def ready(self) -> Path:
        """The name of the next file while it waits, empty, for the roll."""
        return self.root / FileState.UNSEALED.folder / READY_NAME

    @property
    def quarantine(self) -> Path:
        return self.root / QUARANTINE

    @property
    def folders(self) -> tuple[Path, ...]:
        """Every folder of a data folder."""
        states = (*LOCAL_STATES, FileState.UPLOADED)
        return (*(self.folder(state) for state in states), self.quarantine)

    def folder(self, state: FileState) -> Path:
        assert state is not FileState.EXPIRED, "an expired file lies in no folder"
        return self.root / state.folder

    def path_of(self, state: FileState, number: int) -> Path:
        """Return the path of the file with this number in this state (`sidecar`: for uploaded)."""
        return self.folder(state) / format_number(number)

    def temporary(self, state: FileState, number: int) -> Path:
        """Return the path under which the file is written: beside its final one."""
        return temporary_beside(self.path_of(state, number))

    def sidecar(self, number: int, node: str, uuid: bytes) -> Path:
        """Return the path of the cached sidecar of a published file of any node."""
        name = f"{make_file_id(number, node)}-{uuid.hex()}"
        return self.folder(FileState.UPLOADED) / name

    def kept_copy(self, number: int, node: str, uuid: bytes) -> Path:
        """Return the path of the local copy of a published file that is kept for reads."""
        sidecar = self.sidecar(number, node, uuid)
        return sidecar.with_name(sidecar.name + _KEPT_SUFFIX)

    def quarantined(self, state: FileState, name: str) -> Path:
        return self.quarantine / f"{state.folder}-{name}"


def is_temporary(name: str) -> bool:
    return name.endswith(TEMPORARY_SUFFIX)


def parse_quarantined_name(name: str) -> int | None:
    """Return the number of a file in `quarantine/`, None when it had no name of ours."""
    found = _QUARANTINED.fullmatch(name)
    return None if found is None else parse_number(found[1])


def parse_sidecar_name(name: str) -> SidecarName | None:
    """Return the parts of a sidecar's file name, None for a near miss."""
    found = _SIDECAR.fullmatch(name)
    if found is None or (number := parse_number(found[1])) is None:
        return None
    return SidecarName(number, found[2], bytes.fromhex(found[3]))


def parse_kept_name(name: str) -> SidecarName | None:
    """Return the parts of a kept copy's file name, None for a near miss."""
    plain = name.removesuffix(_KEPT_SUFFIX)
    return None if plain == name else parse_sidecar_name(plain)


@dataclass(frozen=True, slots=True)
class StorePaths:
    """The keys of one node's objects, below the store's prefix."""

    node: str

    def __post_init__(self) -> None:
        if not is_node_name(self.node):
            raise InvalidRequestError(
                "a node's name has 1 to 63 of a-z 0-9 . _ - and begins with a letter or digit",
                field="node",
            )

    @property
    def prefix(self) -> str:
        return f"{NODES_PREFIX}{self.node}/"

    @property
    def manifest_prefix(self) -> str:
        return f"{self.prefix}manifest/"

    @property
    def files_prefix(self) -> str:
        return f"{self.prefix}files/"

    @property
    def queues_prefix(self) -> str:
        return f"{self.prefix}queues/"

    @property
    def hint(self) -> str:
        return f"{self.prefix}hint"

    def manifest(self, number: int) -> str:
        return self.manifest_prefix + format_number(number)

    def parse_manifest(self, key: str) -> int | None:
        """Return the manifest number of a key, None for a key of another kind or node."""
        if not key.startswith(self.manifest_prefix):
            return None
        return parse_number(key.removeprefix(self.manifest_prefix))

    def file_object(self, read_number: int, uuid: bytes) -> str:
        """Return the key of a file's object; `read_number` is the newest manifest number read."""
        assert len(uuid) == 16, uuid
        return f"{self.files_prefix}{format_number(read_number)}-{uuid.hex()}"

    def queue_table(self, read_number: int, uuid: bytes) -> str:
        """Return the key of a queue table, named as a file's object is."""
        assert len(uuid) == 16, uuid
        return f"{self.queues_prefix}{format_number(read_number)}-{uuid.hex()}"

    def parse_object(self, key: str) -> ObjectName | None:
        """Return the parts of the key of a file or queue table, None for any other key."""
        for prefix in (self.files_prefix, self.queues_prefix):
            if key.startswith(prefix):
                break
        else:
            return None
        found = _OBJECT.fullmatch(key.removeprefix(prefix))
        if found is None or (number := parse_number(found[1])) is None:
            return None
        return ObjectName(number, bytes.fromhex(found[2]))
