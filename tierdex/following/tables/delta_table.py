"""`DeltaTable`: a Delta table as a source: `delta:PATH` or `delta:s3://BUCKET/PATH`.

Reader features that change which rows are live, or what a value is, are read or refused by name. `steps` goes
from version to version by the commits; where the way is gone, it takes the newest version whole.

Depends on errors, files, delta_log, deletion_vectors and table_source.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tierdex.errors import InvalidRequestError, NotFoundError
from tierdex.files.folder import FileFolder
from tierdex.files.table_columns import TableColumn, TableColumns
from tierdex.following.tables.deletion_vectors import rows_of_delta
from tierdex.following.tables.delta_log import DeltaLog, DeltaState, mark_of_add
from tierdex.following.tables.table_source import LiveFile, TableStep

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from tierdex.filesystem import FileSystem

_FEATURES: Final = {
    "columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck",
    "typeWidening", "typeWidening-preview", "materializePartitionColumns",
}  # fmt: skip
_TYPES: Final = {
    "string": "string", "long": "int64", "integer": "int32", "short": "int16", "byte": "int8",
    "float": "float", "double": "double", "boolean": "bool", "binary": "binary", "date": "date32",
    "timestamp": "timestamp", "timestamp_ntz": "timestamp_ntz", "void": "null",
}  # fmt: skip


class DeltaTable:
    """See `TableSource`. One thread."""

    def __init__(self, filesystem: FileSystem, address: str, prefixes: Sequence[str] = ()) -> None:
        """`address` is a path or URL; files may lie below `prefixes`, too. No request is made."""
        self._folder = FileFolder(filesystem, address, prefixes)
        self._log = DeltaLog(self._folder)
        self._state: DeltaState | None = None
        self._files: dict[str, tuple[Mapping[str, Any], LiveFile]] = {}  # of the step before

    @property
    def name(self) -> str:
        return f"delta:{self._folder.root}"

    @property
    def topic(self) -> str:
        return self._folder.root.rstrip("/").rpartition("/")[2]

    @property
    def root(self) -> str:
        return self._folder.root

    def identity(self) -> str:
        return str(self._now().metadata.get("id", ""))

    def behind(self, since: str | None) -> int:
        """See `TableSource`: two requests when nothing is new, for the commit itself and the next one."""
        if since is None:
            return self._now().version + 1
        known = int(since)
        if self._log.has_commit(known) and not self._log.has_commit(known + 1):
            return 0
        return max(1, self._log.newest_version() - known)

    def _now(self) -> DeltaState:
        if self._state is None:
            self._state = self._log.state(None)
            check_protocol(self._state.protocol, self._state.metadata, self.name)
        return self._state

    def steps(self, since: str | None, upto: str | None) -> Iterator[TableStep]:
        state = self._start(None if since is None else int(since), upto)
        if state is None:
            return
        last = None if upto is None else _version(upto)
        step = None if since == str(state.version) else self._step(state)
        while last is None or state.version < last:
            if not self._log.go_on(state):
                if last is None and since != str(state.version):
                    break
                newest = self._log.state(last)  # the way from here may be gone
                if newest.version <= state.version:
                    break
                state = newest
            if step is not None:
                yield step
            step = self._readable(state)
        if step is None and since != str(state.version):
            step = self._step(state)  # it says why it is not read
        self._state = state
        if step is not None:
            yield step

    def _start(self, since: int | None, upto: str | None) -> DeltaState | None:
        """Return the table where the steps begin: at the version that is indexed, else at the wanted one."""
        if upto is not None:
            last = _version(upto)
            newest = self._log.newest_version()
            if last > newest:
                raise NotFoundError(f"{self.name} has no version {last}: the newest is {newest}")
            if since == last:
                return None
            known = None if since is None or since > last else self._known_at(since)
            return known or self._log.state(last)
        known = None if since is None else self._known_at(since)
        if known is not None:
            return known
        state = self._now() if since is None else self._log.state(None)
        self._state = None  # it goes on, and `steps` keeps it once it is at the end
        return state

    def _readable(self, state: DeltaState) -> TableStep | None:
        """Return the step of a version; None for one that is not read: a newer one may be."""
        try:
            return self._step(state)
        except InvalidRequestError:
            return None

    def _known_at(self, version: int) -> DeltaState | None:
        """Return the table at the indexed version; None where its log cannot tell that any more."""
        if self._state is not None and self._state.version == version:
            return self._state
        try:
            return self._log.state(version)
        except NotFoundError:
            return None

    def _step(self, state: DeltaState) -> TableStep:
        check_protocol(state.protocol, state.metadata, self.name)
        columns = columns_of(state.metadata, state.protocol)
        files = {}
        for path, add in state.adds.items():
            known = self._files.get(path)
            if known is None or known[0] is not add:
                known = self._files[path] = (add, self._live_file(path, add))
            files[path] = known[1]
        if len(self._files) > 2 * len(files):
            self._files = {path: self._files[path] for path in files}
        version = state.version
        return TableStep(str(version), version, state.time_ms, columns.encode(), files)

    def _live_file(self, path: str, add: Mapping[str, Any]) -> LiveFile:
        self._folder.address_of(path)  # refuses one that lies elsewhere
        mark = mark_of_add(add)
        partition = {n: value or None for n, value in (add.get("partitionValues") or {}).items()}
        read = (
            partial(rows_of_delta, add["deletionVector"], self._folder.read_range) if mark else None
        )
        return LiveFile(path, int(add.get("size") or 0), partition, mark, read)

    def opened(self, file: LiveFile) -> AbstractContextManager[Any]:
        return self._folder.opened(file.path)

    def close(self) -> None:
        self._folder.close()


def _version(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidRequestError(
            f"{text!r} is no version of a Delta table", field="snapshot"
        ) from None


def check_protocol(protocol: Mapping[str, Any], metadata: Mapping[str, Any], name: str) -> None:
    """Refuse a table that is not read exactly. Raises InvalidRequestError, which says why."""
    if not protocol or not metadata:
        raise InvalidRequestError(f"{name} has no protocol and metadata in its log", field="source")
    reader = int(protocol.get("minReaderVersion") or 0)
    if reader > 3:
        raise InvalidRequestError(
            f"{name} needs reader version {reader}, ours is 3", field="source"
        )
    unknown = sorted(set(protocol.get("readerFeatures") or ()) - _FEATURES)
    if unknown:
        raise InvalidRequestError(
            f"{name} has the reader feature {', '.join(unknown)}, which is not read here",
            field="source",
        )
    provider = (metadata.get("format") or {}).get("provider", "parquet")
    if provider != "parquet":
        raise InvalidRequestError(f"{name} has files of {provider}, not Parquet", field="source")


def columns_of(metadata: Mapping[str, Any], protocol: Mapping[str, Any]) -> TableColumns:
    """Return the columns of a table. Raises InvalidRequestError for types that are not read."""
    maps = protocol.get("minReaderVersion") == 2 or "columnMapping" in (
        protocol.get("readerFeatures") or ()
    )
    try:
        schema = json.loads(metadata["schemaString"])
        said = metadata.get("configuration") or {}
        mode = said.get("delta.columnMapping.mode", "none") if maps else "none"
        columns = tuple(_column(each, mode) for each in schema["fields"])
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidRequestError(
            f"the table's schema cannot be read: {error}", field="source"
        ) from error
    names = metadata.get("partitionColumns") or ()
    partitioned_by = tuple(each.physical for each in columns if each.name in names)
    made = TableColumns("id" if mode == "id" else "name", columns, partitioned_by)
    for column in made.columns:
        _ = column.arrow
    return made


def _column(field: Mapping[str, Any], mode: str) -> TableColumn:
    said = field.get("metadata") or {}
    physical, number = field["name"], None
    if mode != "none":
        physical = said.get("delta.columnMapping.physicalName", physical)
        number = said.get("delta.columnMapping.id")
    return _of_type(field["name"], field["type"], physical, number, mode)


def _of_type(name: str, kind: Any, physical: str, number: int | None, mode: str) -> TableColumn:
    if isinstance(kind, str):
        plain = f"decimal128{kind[7:]}" if kind.startswith("decimal(") else _TYPES.get(kind, kind)
        return TableColumn(name, plain, physical, number)
    if kind["type"] == "struct":
        children = tuple(_column(each, mode) for each in kind["fields"])
        return TableColumn(name, "struct", physical, number, None, children)
    if kind["type"] == "array":
        element = _of_type("element", kind["elementType"], "element", None, mode)
        return TableColumn(name, "list", physical, number, None, (element,))
    if kind["type"] == "map":
        parts = [_of_type(part, kind[f"{part}Type"], part, None, mode) for part in ("key", "value")]
        return TableColumn(name, "map", physical, number, None, tuple(parts))
    raise ValueError(f"{kind['type']!r} is no type")
