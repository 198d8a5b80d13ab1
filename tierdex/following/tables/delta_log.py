"""The transaction log of a Delta table: its commits and checkpoints, read as the protocol says.

Source: PROTOCOL.md of Delta Lake ("Delta Log Entries", "Checkpoints", "V2 Spec", "Action Reconciliation").
deltalake reads snapshots and no changes between them, and builds a row of booleans for each deletion vector;
what is needed of the log is small, so it is read here, on any store that we have.

::

    _delta_log/00000000000000000012.json                     the actions of version 12
    _delta_log/00000000000000000010.checkpoint.parquet       all that is live at version 10
    _delta_log/….checkpoint.0000000001.0000000002.parquet    the same in parts
    _delta_log/….checkpoint.UUID.{json,parquet}              the same, and parts in _sidecars/

Depends on errors, files, deletion_vectors and pyarrow.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pyarrow as pa

from tierdex.errors import CorruptFileError, InvalidRequestError, NotFoundError
from tierdex.files.object_file import address_below
from tierdex.files.parquet_file import open_parquet
from tierdex.following.tables.deletion_vectors import mark_of_delta

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tierdex.files.folder import FileFolder

_LOG: Final = "_delta_log"
_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(
    r"(\d{20})\.checkpoint(?:\.(?:(\d{10})\.(\d{10})|([0-9a-fA-F-]{36})))?\.(parquet|json)"
)
_COLUMNS: Final = {
    "add": ("path", "partitionValues", "size", "deletionVector"),
    "sidecar": ("path",),
    "metaData": ("id", "name", "schemaString", "partitionColumns", "configuration", "format"),
    "protocol": ("minReaderVersion", "minWriterVersion", "readerFeatures", "writerFeatures"),
}


@dataclass
class DeltaState:
    """The actions that are in force at a version. `adds` by the file's path, as `path_of` has it."""

    version: int
    time_ms: int = 0
    protocol: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    adds: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def take(self, actions: Iterable[Mapping[str, Any]]) -> None:
        """Apply the actions of one commit, or of a checkpoint: removes first, an add may follow them."""
        added = []
        for action in actions:
            for name, value in action.items():
                if value is None or not any(each is not None for each in value.values()):
                    continue  # a checkpoint has every action in every row, most of them empty
                if name == "add":
                    added.append(value)
                elif name == "remove":
                    self._remove(value)
                elif name == "metaData":
                    self.metadata = value
                elif name == "protocol":
                    self.protocol = value
                elif name == "commitInfo":
                    told = value.get("inCommitTimestamp") or value.get("timestamp")
                    if isinstance(told, int):
                        self.time_ms = told
        for add in added:
            self.adds[path_of(add)] = add

    def _remove(self, value: Mapping[str, Any]) -> None:
        """Take a file out with the vector that the action names: another one is another logical file."""
        path = path_of(value)
        known = self.adds.get(path)
        if known is not None and mark_of_add(known) == mark_of_add(value):
            del self.adds[path]


def mark_of_add(action: Mapping[str, Any]) -> str:
    """Return what tells a file's vector from another one of it; a checkpoint has empty ones."""
    vector = action.get("deletionVector")
    return mark_of_delta(None if not vector or vector.get("storageType") is None else vector)


def path_of(action: Mapping[str, Any]) -> str:
    """Return the path of an action, decoded; one of several spellings of a local address."""
    path = unquote(action["path"])
    if path.startswith("file:/"):
        path = "/" + path.removeprefix("file:").lstrip("/")
    return path.replace("s3a://", "s3://", 1)


@dataclass(frozen=True)
class _Listing:
    commits: Mapping[int, int]  # version: last change of the file, int64 ms
    checkpoints: Mapping[int, list[str]]  # names, whole ones alone

    @property
    def newest(self) -> int:
        return max(self.commits.keys() | self.checkpoints.keys())


class DeltaLog:
    """The log of one table. Not thread-safe."""

    def __init__(self, folder: FileFolder) -> None:
        self._folder = folder
        self._listed: _Listing | None = None

    def commit(self, version: int) -> list[dict[str, Any]] | None:
        """Return the actions of a version; None when the log has no such commit.

        Raises CorruptFileError, UnavailableError.
        """
        name = f"{_LOG}/{version:020}.json"
        data = self._folder.read(name)
        return None if data is None else _actions(data, name)

    def has_commit(self, version: int) -> bool:
        """Say whether the log has a version, by one request."""
        return self._folder.exists(f"{_LOG}/{version:020}.json")

    def newest_version(self) -> int:
        """Return the newest version. Raises NotFoundError for a folder that is no Delta table."""
        self._listed = self._listing()
        return self._listed.newest

    def state(self, version: int | None) -> DeltaState:
        """Return the table at a version, None for the newest.

        The log is listed, but for a version that `newest_version` listed just now. Raises NotFoundError for
        one that the log has not, or no more.
        """
        found, self._listed = self._listed, None
        if found is None or version is None or version > found.newest:
            found = self._listing()
        wanted = found.newest if version is None else version
        if not 0 <= wanted <= found.newest:
            raise NotFoundError(
                f"{self._folder.root} has no version {wanted}: the newest is {found.newest}"
            )
        for base in sorted((v for v in found.checkpoints if v <= wanted), reverse=True):
            if all(each in found.commits for each in range(base + 1, wanted + 1)):
                state = DeltaState(base, found.commits.get(base, 0))
                state.take(self._checkpoint(found.checkpoints[base]))
                break
        else:
            if any(each not in found.commits for each in range(wanted + 1)):
                raise NotFoundError(
                    f"{self._folder.root} cannot be read at version {wanted}: its log of before is gone"
                )
            state, base = DeltaState(-1), -1
        if base == wanted and (own := self.commit(base)) is not None:
            state.take({"commitInfo": a["commitInfo"]} for a in own if "commitInfo" in a)
        for each in range(base + 1, wanted + 1):
            self.go_on(state, found.commits[each])
        return state

    def go_on(self, state: DeltaState, modified_ms: int | None = None) -> bool:
        """Apply the next commit to a state; return False when there is none yet."""
        actions = self.commit(state.version + 1)
        if actions is None:
            return False
        state.version += 1
        if modified_ms is not None:
            state.time_ms = modified_ms
        state.take(actions)
        return True

    def _listing(self) -> _Listing:
        commits: dict[int, int] = {}
        parts: dict[tuple[int, str], list[str]] = {}
        whole: dict[int, list[str]] = {}
        for name, modified_ms in self._folder.names(_LOG):
            commit = _COMMIT.fullmatch(name)
            if commit is not None:
                commits[int(commit[1])] = modified_ms
                continue
            found = _CHECKPOINT.fullmatch(name)
            if found is None:
                continue
            version, _, count, _, _ = found.groups()
            if count is None:
                whole.setdefault(int(version), [name])
            else:
                parts.setdefault((int(version), count), []).append(name)
        for (number, count), names in parts.items():
            if len(names) == int(count):
                whole.setdefault(number, sorted(names))
        if not commits and not whole:
            raise NotFoundError(
                f"{self._folder.root} is no Delta table: it has no {_LOG} with commits"
            )
        return _Listing(commits, whole)

    def _checkpoint(self, names: list[str]) -> Iterator[Mapping[str, Any]]:
        sidecars: list[str] = []
        for name in names:
            for action in self._rows(f"{_LOG}/{name}"):
                if action.get("sidecar") is not None:
                    sidecars.append(action["sidecar"]["path"])
                else:
                    yield action
        for path in sidecars:
            yield from self._rows(address_below(f"{_LOG}/_sidecars", path))

    def _rows(self, name: str) -> Iterator[Mapping[str, Any]]:
        data = self._folder.read(name)
        if data is None:
            raise CorruptFileError(name, "is gone, and the table's log names it")
        if name.endswith(".json"):
            yield from _actions(data, name)
            return
        try:
            with open_parquet(data, name, "us") as parquet:
                there = {f.name: f.type for f in parquet.schema_arrow}
                leaves = [
                    f"{root}.{each}"
                    for root, fields in _COLUMNS.items()
                    if root in there
                    for each in fields
                    if there[root].get_field_index(each) >= 0
                ]
                for batch in parquet.iter_batches(columns=leaves):
                    yield from map(_plain, batch.to_pylist(maps_as_pydicts="strict"))
        except (InvalidRequestError, pa.ArrowInvalid, OSError) as error:
            raise CorruptFileError(name, f"is no checkpoint: {error}") from error


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return the actions of a checkpoint's row that there are."""
    return {name: value for name, value in row.items() if value is not None}


def _actions(data: bytes, name: str) -> list[dict[str, Any]]:
    try:
        rows = [json.loads(line) for line in data.splitlines() if line.strip()]
    except ValueError as error:
        raise CorruptFileError(name, f"is no commit: {error}") from error
    if not all(isinstance(row, dict) for row in rows):
        raise CorruptFileError(name, "is no commit: a line is no action")
    return rows
