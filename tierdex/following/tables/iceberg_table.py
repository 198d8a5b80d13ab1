"""`IcebergTable`: an Iceberg table as a source: `iceberg://CATALOG/NAMESPACE.TABLE`, `iceberg:METADATA.json`.

pyiceberg has the catalogs, the metadata and the manifests; a manifest never changes, so each is read once.
Deletes are brought to positions here, by the specification ("Scan Planning", "Row-level deletes")::

    position deletes   rows of data files by their address      data sequence number <= the delete's
    deletion vectors   a bitmap a data file, in a Puffin file   the same
    equality deletes   values of columns                        data sequence number <  the delete's

An equality delete concerns its own partition, or all. pyiceberg refuses tables with such; their columns of
the data files that they may concern are read, once for each pair of a data file and a delete file.

Depends on errors, files, following.sources, iceberg_deletes, table_source and pyiceberg.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import (
    NoSuchNamespaceError,
    NoSuchTableError,
    ValidationError,
)
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import StaticTable
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import ListType, MapType, StructType

from tierdex.errors import (
    CorruptFileError,
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
)
from tierdex.files.folder import is_below
from tierdex.files.object_file import address_below
from tierdex.files.table_columns import TableColumn, TableColumns
from tierdex.following.tables.iceberg_deletes import (
    DeleteFile,
    rows_by_file,
    rows_of_equality,
)
from tierdex.following.tables.table_source import LiveFile, TableStep

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tierdex.following.sources.options import Address

_TYPES: Final = {
    "boolean": "bool", "int": "int32", "long": "int64", "float": "float", "double": "double",
    "date": "date32", "time": "time", "timestamp": "timestamp_ntz", "timestamptz": "timestamp",
    "timestamp_ns": "timestamp_ntz_ns", "timestamptz_ns": "timestamp_ns", "string": "string",
    "uuid": "uuid", "binary": "binary", "unknown": "null",
}  # fmt: skip
_EMPTY: Final = "0"  # the snapshot of a table that has none


class IcebergTable:
    """See `TableSource`. One thread."""

    def __init__(
        self, address: Address, properties: Mapping[str, str], prefixes: Sequence[str] = ()
    ) -> None:
        """`properties` are those of pyiceberg's catalog, which is asked when the table is first needed.

        Files may lie below `prefixes`, too.
        """
        self._prefixes = tuple(_plain(each).rstrip("/") for each in prefixes)
        said = dict(properties)
        self._branch = said.pop("branch", None)
        self._properties = said
        self._address = address
        self._found: Any = None
        self._manifests: dict[str, list[Any]] = {}
        self._positions: dict[str, dict[str, np.ndarray]] = {}
        self._equal: dict[tuple[str, str], np.ndarray] = {}

    @property
    def name(self) -> str:
        return self._address.shown

    @property
    def topic(self) -> str:
        last = self._address.path.rpartition("/")[2]
        if self._address.hosts:
            return last.rpartition(".")[2]
        return self.root.rstrip("/").rpartition("/")[2]

    @property
    def root(self) -> str:
        return _plain(self._table().location())

    def identity(self) -> str:
        return str(self._table().metadata.table_uuid)

    def _table(self) -> Any:
        if self._found is None:
            with _typed(self.name):
                if self._address.hosts:
                    catalog = load_catalog(self._address.hosts, **self._properties)
                    self._found = catalog.load_table(self._address.path)
                else:
                    self._found = StaticTable.from_metadata(self._address.path, self._properties)
        return self._found

    def _snapshot(self) -> Any | None:
        table = self._table()
        if self._branch is None:
            return table.current_snapshot()
        found = table.snapshot_by_name(self._branch)
        if found is None:
            raise InvalidRequestError(f"{self.name} has no branch {self._branch!r}", field="branch")
        return found

    def _refresh(self) -> None:
        with _typed(self.name):
            if self._address.hosts:
                self._table().refresh()
            else:
                self._found = None

    def behind(self, since: str | None) -> int:
        """See `TableSource`: one request, for the table's metadata."""
        self._refresh()
        newest = self._snapshot()
        return 0 if since == (_EMPTY if newest is None else str(newest.snapshot_id)) else 1

    def steps(self, since: str | None, upto: str | None) -> Iterator[TableStep]:
        self._refresh()
        last = self._snapshot() if upto is None else self._asked(upto)
        if last is None:
            if since is None:
                metadata = self._table().metadata
                columns = columns_of(self._table().schema(), self._table().name_mapping())
                yield TableStep(_EMPTY, 0, metadata.last_updated_ms, columns.encode(), {})
            return
        if since == str(last.snapshot_id):
            return
        for snapshot in self._way(since, last):
            try:
                with _typed(self.name):
                    step = self._step(snapshot, is_newest=snapshot is last and upto is None)
            except (InvalidRequestError, NotFoundError):
                if snapshot is last:
                    raise
                continue  # a newer one may be read
            yield step

    def _asked(self, upto: str) -> Any:
        for each in self._table().metadata.snapshots:
            if upto in (str(each.snapshot_id), str(each.sequence_number)):
                return each
        raise NotFoundError(f"{self.name} has no snapshot {upto!r}")

    def _way(self, since: str | None, last: Any) -> list[Any]:
        """Return the snapshots from behind `since` to the last; that alone where the way is not known."""
        way: list[Any] = []
        at, seen = last, set()
        while at is not None and str(at.snapshot_id) != since:
            way.append(at)
            seen.add(at.snapshot_id)
            parent = at.parent_snapshot_id
            if parent in seen:
                raise CorruptFileError(self.name, f"snapshot {parent} is its own ancestor")
            at = None if parent is None else self._table().metadata.snapshot_by_id(parent)
        if at is None:
            return [last] if since != _EMPTY else way[::-1]
        return way[::-1]

    # -- a snapshot ------------------------------------------------------------------------------

    def _step(self, snapshot: Any, *, is_newest: bool) -> TableStep:
        table = self._table()
        schema = table.schema()
        if not is_newest and snapshot.schema_id is not None:
            schema = next(s for s in table.metadata.schemas if s.schema_id == snapshot.schema_id)
        columns = columns_of(schema, table.name_mapping())
        data, deletes = self._entries(snapshot)
        specs = table.specs()
        files = {}
        for entry in data:
            file = entry.data_file
            path = self._below_root(file.file_path)
            own = self._deletes_of(entry, deletes)
            marks = sorted(each.mark for each in own)
            partition = _partition(specs[file.spec_id], schema, file.partition)
            files[path] = LiveFile(
                path, file.file_size_in_bytes, partition,
                hashlib.blake2b("\n".join(marks).encode(), digest_size=12).hexdigest() if own else "",
                partial(self._deleted, path, file, own, columns, partition) if own else None,
            )  # fmt: skip
        version = snapshot.sequence_number or 0
        return TableStep(
            str(snapshot.snapshot_id), version, snapshot.timestamp_ms, columns.encode(), files
        )

    def _entries(self, snapshot: Any) -> tuple[list[Any], list[DeleteFile]]:
        """Return the live entries of data files, and the delete files. Raises InvalidRequestError."""
        data, deletes = [], []
        io = self._table().io
        for manifest in snapshot.manifests(io):
            path = manifest.manifest_path
            if path not in self._manifests:
                entries = manifest.fetch_manifest_entry(io, discard_deleted=True)
                self._manifests[path] = entries
            for entry in self._manifests[path]:
                file = entry.data_file
                form = str(getattr(file.file_format, "value", file.file_format)).upper()
                if file.key_metadata is not None:
                    raise InvalidRequestError(f"{self.name} has encrypted files", field="source")
                if file.content == DataFileContent.DATA:
                    if form != "PARQUET":
                        raise InvalidRequestError(
                            f"{self.name} has files of {form}, not Parquet", field="source"
                        )
                    data.append(entry)
                    continue
                if form not in ("PARQUET", "PUFFIN"):
                    raise InvalidRequestError(
                        f"{self.name} has delete files of {form}, not Parquet", field="source"
                    )
                equality = tuple(file.equality_ids or ())
                is_equality = file.content == DataFileContent.EQUALITY_DELETES
                deletes.append(
                    DeleteFile(
                        file.file_path,
                        form,
                        entry.sequence_number or 0,
                        equality if is_equality else (),
                        file.spec_id,
                        tuple(file.partition or ()),
                    )
                )
        return data, deletes

    def _deletes_of(self, entry: Any, deletes: list[DeleteFile]) -> list[DeleteFile]:
        """Return the delete files that concern a data file."""
        file, sequence = entry.data_file, entry.sequence_number or 0
        found = []
        for each in deletes:
            if each.equality_ids:
                own = (file.spec_id, tuple(file.partition or ()))
                is_there = not each.partition or own == (each.spec_id, each.partition)
                if is_there and sequence < each.sequence:
                    found.append(each)
            elif sequence <= each.sequence and _plain(file.file_path) in self._rows_by_file(each):
                found.append(each)
        return found

    def _rows_by_file(self, delete: DeleteFile) -> dict[str, np.ndarray]:
        if delete.path not in self._positions:
            with self._open(delete.path) as opened:
                found = rows_by_file(delete, opened)
            self._positions[delete.path] = {_plain(path): rows for path, rows in found.items()}
        return self._positions[delete.path]

    def _deleted(
        self,
        path: str,
        file: Any,
        deletes: list[DeleteFile],
        columns: TableColumns,
        partition: Mapping[str, str | None],
    ) -> np.ndarray:
        parts = []
        with _typed(self.name):
            for each in deletes:
                if not each.equality_ids:
                    parts.append(self._rows_by_file(each)[_plain(file.file_path)])
                    continue
                pair = (path, each.path)
                if pair not in self._equal:
                    with self._open(file.file_path) as rows, self._open(each.path) as deleted:
                        self._equal[pair] = rows_of_equality(
                            each, columns, rows, deleted, partition
                        )
                parts.append(self._equal[pair])
        return np.unique(np.concatenate(parts)).astype(np.uint64)

    def _below_root(self, path: str) -> str:
        plain, root = _plain(path), self.root.rstrip("/")
        if not is_below(plain, (root, *self._prefixes)):
            raise InvalidRequestError(
                f"{path!r} does not lie below {root}: allow its folder by the source option prefixes",
                field="source",
            )
        return plain.removeprefix(root + "/")

    def _open(self, path: str) -> Any:
        return self._table().io.new_input(path).open()

    def opened(self, file: LiveFile) -> Any:
        return self._open(address_below(self.root, file.path))

    def close(self) -> None:
        self._found = None


@contextmanager
def _typed(name: str) -> Iterator[None]:
    """Turn what pyiceberg and its catalogs raise into our errors."""
    try:
        yield
    except (NoSuchTableError, NoSuchNamespaceError, FileNotFoundError) as error:
        raise NotFoundError(f"{name}: {error}") from error
    except (ValidationError, NotImplementedError) as error:
        raise InvalidRequestError(f"{name} is not read here: {error}", field="source") from error
    except OSError as error:
        raise UnavailableError(f"{name} cannot be read: {error}") from error


def _plain(path: str) -> str:
    """Return an address as ours are: a local path without its scheme."""
    for begin in ("file://", "file:"):
        if path.startswith(begin):
            return path.removeprefix(begin)
    return path.replace("s3a://", "s3://", 1)


def columns_of(schema: Any, mapping: Any | None = None) -> TableColumns:
    """Return the columns of a schema. Raises InvalidRequestError for types that are not read.

    `mapping` is pyiceberg's name mapping: how files without field IDs spell the columns.
    """
    spelled: dict[int, tuple[str, ...]] = {}
    _add_spellings(spelled, () if mapping is None else mapping.root)
    made = TableColumns("id", tuple(_column(field, spelled) for field in schema.fields))
    for column in made.columns:
        _ = column.arrow
    return made


def _add_spellings(spelled: dict[int, tuple[str, ...]], fields: Any) -> None:
    for each in fields:
        if each.field_id is not None:
            spelled[each.field_id] = tuple(each.names)
        _add_spellings(spelled, each.fields or ())


def _column(field: Any, spelled: Mapping[int, tuple[str, ...]]) -> TableColumn:
    made = _of_field(field, spelled)
    return replace(made, spelled=spelled.get(field.field_id, ()))


def _of_field(field: Any, spelled: Mapping[int, tuple[str, ...]]) -> TableColumn:
    kind, name, number = field.field_type, field.name, field.field_id
    default = field.initial_default
    if isinstance(kind, StructType):
        children = tuple(_column(each, spelled) for each in kind.fields)
        return TableColumn(name, "struct", name, number, None, children)
    if isinstance(kind, ListType):
        return TableColumn(
            name, "list", name, number, None, (_column(kind.element_field, spelled),)
        )
    if isinstance(kind, MapType):
        parts = (_column(kind.key_field, spelled), _column(kind.value_field, spelled))
        return TableColumn(name, "map", name, number, None, parts)
    text = str(kind)
    if text.startswith("decimal("):
        text = f"decimal128{text.removeprefix('decimal')}"
    elif text.startswith("fixed["):
        text = f"fixed({text[6:-1]})"
    told = None if default is None else str(default)
    if isinstance(default, bytes):
        told = default.decode("utf-8", "surrogateescape")
    return TableColumn(name, _TYPES.get(text, text), name, number, told)


def _partition(spec: Any, schema: Any, record: Any) -> dict[str, str | None]:
    """Return the values of columns that a file is partitioned by as they are, for files without them."""
    found: dict[str, str | None] = {}
    for number, field in enumerate(spec.fields):
        if isinstance(field.transform, IdentityTransform):
            column = schema.find_column_name(field.source_id)
            if column is None:
                continue
            value, kind = record[number], schema.find_type(field.source_id)
            text = None if value is None else field.transform.to_human_string(kind, value)
            found[column] = text
    return found
