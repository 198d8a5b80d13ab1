"""The columns of a lake's table, and a data file's columns as those: renamed, added, widened, partitioned.

A table's columns stand as JSON in its state, one form for both formats: Arrow's types as text, and how a file
spells each column::

    {"by": "name" | "id", "columns": [{"name", "type", "physical", "id", "default", "children"}, ...],
     "partitioned_by": [physical names]}

By `name` a file's column is the one of the `physical` name, by `id` the one of the field ID in its metadata;
one that a file lacks is null, or its default, in all of its rows. Values of partitions are texts.

Depends on errors, numpy and pyarrow.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute

from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

pc: Any = pyarrow.compute
_FIELD_ID: Final = b"PARQUET:field_id"
_DECIMAL: Final = re.compile(r"decimal128\((\d+), ?(\d+)\)")
_PLAIN: Final = {
    "string": pa.string(),
    "binary": pa.binary(),
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date32": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "timestamp_ns": pa.timestamp("ns", "UTC"),
    "timestamp_ntz_ns": pa.timestamp("ns"),
    "time": pa.time64("us"),
    "uuid": pa.uuid(),
    "null": pa.null(),
}
_ZONE: Final = re.compile(r"[+-]\d\d:?\d\d$")
_INTEGERS: Final = ("int8", "int16", "int32", "int64")


@dataclass(frozen=True)
class TableColumn:
    """One column or field. `children` are a struct's fields, a list's element, a map's key and value."""

    name: str
    type: str
    physical: str
    id: int | None = None
    default: Any = None
    children: tuple[TableColumn, ...] = ()
    spelled: tuple[str, ...] = ()  # in files without field IDs, where the table says so

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type. Raises InvalidRequestError for one that is not known."""
        if self.type == "struct":
            return pa.struct([pa.field(each.name, each.arrow) for each in self.children])
        if self.type == "list":
            return pa.list_(self.children[0].arrow)
        if self.type == "map":
            return pa.map_(self.children[0].arrow, self.children[1].arrow)
        decimal = _DECIMAL.fullmatch(self.type)
        if decimal is not None:
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        fixed = re.fullmatch(r"fixed\((\d+)\)", self.type)
        if fixed is not None:
            return pa.binary(int(fixed[1]))
        if self.type not in _PLAIN:
            raise InvalidRequestError(
                f"column {self.name!r} has the type {self.type}, which is not read here",
                field="source",
            )
        return _PLAIN[self.type]

    def as_row(self) -> dict[str, Any]:
        row: dict[str, Any] = {"name": self.name, "type": self.type, "physical": self.physical}
        if self.id is not None:
            row["id"] = self.id
        if self.default is not None:
            row["default"] = self.default
        if self.spelled:
            row["spelled"] = list(self.spelled)
        if self.children:
            row["children"] = [each.as_row() for each in self.children]
        return row

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> TableColumn:
        children = tuple(cls.of_row(each) for each in row.get("children", ()))
        return cls(
            row["name"],
            row["type"],
            row["physical"],
            row.get("id"),
            row.get("default"),
            children,
            tuple(row.get("spelled", ())),
        )


@dataclass(frozen=True)
class TableColumns:
    """The columns of a table at a snapshot; `partitioned_by` are those whose values paths have."""

    by: str
    columns: tuple[TableColumn, ...]
    partitioned_by: tuple[str, ...] = ()

    def encode(self) -> str:
        rows = [each.as_row() for each in self.columns]
        said = {"by": self.by, "columns": rows, "partitioned_by": list(self.partitioned_by)}
        return json.dumps(said, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> TableColumns:
        said = json.loads(text)
        columns = tuple(map(TableColumn.of_row, said["columns"]))
        return cls(said["by"], columns, tuple(said["partitioned_by"]))

    def column(self, name: str) -> TableColumn | None:
        return next((each for each in self.columns if each.name == name), None)

    def wanted(self, names: Sequence[str]) -> list[TableColumn]:
        """Return the columns that names, or paths into structs, begin with.

        Raises InvalidRequestError for one that the table has not.
        """
        found: dict[str, TableColumn] = {}
        for name in names:
            column = self.column(name) or self.column(name.partition(".")[0])
            if column is None:
                there = ", ".join(each.name for each in self.columns)
                raise InvalidRequestError(
                    f"the table has no column {name!r}; it has {there}", field="key"
                )
            found[column.name] = column
        return list(found.values())

    def known_again(self, column: TableColumn, first: TableColumns | None) -> TableColumn:
        """Return a column of `first` as the table has it now, perhaps under another name.

        Raises InvalidRequestError for one that is gone, or whose values would be other keys.
        """
        if first is None:
            return column
        now = next((each for each in self.columns if _is_same(column, each)), None)
        if now is None:
            raise InvalidRequestError(
                f"the table's column {column.name!r} was dropped, and keys are made of it",
                field="key",
            )
        if not is_same_text(column, now):
            raise InvalidRequestError(
                f"the table's column {column.name!r} was {column.type} and is {now.type} now: its "
                "values would be other keys; follow it into another topic",
                field="key",
            )
        return replace(now, name=column.name)

    def roots(self, schema: pa.Schema, columns: Sequence[TableColumn]) -> dict[str, str | None]:
        """Return, for each column, the name of a file's column that has it; None: the file has none."""
        return {each.name: self._name_in(schema, each) for each in columns}

    def _name_in(self, fields: Any, column: TableColumn) -> str | None:
        names = [field.name for field in fields]
        if self.by == "id" and column.id is not None:
            ids = {_id_of(field): field.name for field in fields}
            if any(number is not None for number in ids):
                return ids.get(column.id)
            if column.spelled:
                return next((name for name in column.spelled if name in names), None)
            if fields:
                raise InvalidRequestError(
                    f"a file has no field IDs, by which the table's column {column.name!r} is found",
                    field="source",
                )
        if column.physical in names:
            return column.physical
        return next((n for n in names if n.lower() == column.physical.lower()), None)

    def logical(
        self, table: pa.Table, columns: Sequence[TableColumn], partition: Mapping[str, str | None]
    ) -> pa.Table:
        """Return the table's columns of rows that were read of a file, in their order and types.

        Raises InvalidRequestError where a value does not fit its column's type.
        """
        made = []
        for column in columns:
            name = self._name_in(table.schema, column)
            if column.physical in self.partitioned_by and column.physical in partition:
                text = partition[column.physical]
                made.append(pa.repeat(partition_value(text, column), table.num_rows))
            elif name is None and column.physical in partition:
                made.append(
                    pa.repeat(partition_value(partition[column.physical], column), table.num_rows)
                )
            elif name is None:
                made.append(_absent(column, table.num_rows))
            else:
                array: Any = table.column(name)
                array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
                if array.offset and pa.types.is_nested(
                    array.type
                ):  # Arrow makes no lists of a part
                    array = array.take(pa.array(np.arange(len(array))))
                made.append(self._as_column(array, column))
        return pa.table(made, schema=pa.schema([pa.field(c.name, c.arrow) for c in columns]))

    def _as_column(self, array: Any, column: TableColumn) -> Any:
        kind = array.type
        if isinstance(kind, pa.BaseExtensionType):
            array = array.storage
            kind = array.type
        if column.type == "struct":
            return self._as_struct(array, column)
        if column.type == "list":
            values = self._as_column(array.values, column.children[0])
            return pa.ListArray.from_arrays(
                _offsets(array), values, type=column.arrow, mask=_nulls(array)
            )
        if column.type == "map":
            keys = self._as_column(array.keys, column.children[0])
            items = self._as_column(array.items, column.children[1])
            return pa.MapArray.from_arrays(
                _offsets(array), keys, items, type=column.arrow, mask=_nulls(array)
            )
        wanted = column.arrow
        if column.type == "uuid":
            return pa.ExtensionArray.from_storage(wanted, array.cast(pa.binary(16)))
        if kind == wanted:
            return array
        try:
            if pa.types.is_timestamp(kind) and pa.types.is_timestamp(wanted):
                return array.cast(pa.timestamp(wanted.unit, kind.tz), safe=False).cast(wanted)
            return array.cast(wanted)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidRequestError(
                f"column {column.name!r} holds {kind}, which is no {column.type}: {error}",
                field="source",
            ) from None

    def _as_struct(self, array: Any, column: TableColumn) -> Any:
        parts = []
        flat = array.flatten()
        fields = [array.type.field(number) for number in range(array.type.num_fields)]
        for child in column.children:
            name = self._name_in(fields, child)
            if name is None:
                parts.append(_absent(child, len(array)))
            else:
                number = next(n for n, each in enumerate(fields) if each.name == name)
                parts.append(self._as_column(flat[number], child))
        names = [each.name for each in column.children]
        return pa.StructArray.from_arrays(parts, names=names, mask=_nulls(array))


def _is_same(before: TableColumn, now: TableColumn) -> bool:
    if before.id is not None and now.id is not None:
        return before.id == now.id
    return before.physical == now.physical


def is_same_text(before: TableColumn, now: TableColumn) -> bool:
    """Say whether a value has the same text as a key, whichever of the two types its column has."""
    if before.type == now.type:
        return True
    if before.type in _INTEGERS and now.type in _INTEGERS:
        return _INTEGERS.index(before.type) < _INTEGERS.index(now.type)
    decimals = [each.type.removesuffix(")").split(",")[-1].strip() for each in (before, now)]
    both = all(each.type.startswith("decimal128(") for each in (before, now))
    return both and decimals[0] == decimals[1]


def _nulls(array: Any) -> Any:
    return array.is_null() if array.null_count else None


def _offsets(array: Any) -> Any:
    return array.offsets


def _id_of(field: pa.Field) -> int | None:
    text = (field.metadata or {}).get(_FIELD_ID)
    return None if text is None else int(text)


def _absent(column: TableColumn, count: int) -> Any:
    if column.default is None:
        return pa.nulls(count, column.arrow)
    return pa.repeat(partition_value(column.default, column), count)


def partition_value(text: str | None, column: TableColumn) -> pa.Scalar:
    """Return the value that a partition's text stands for. Raises InvalidRequestError for no such value."""
    wanted = column.arrow
    if text is None or (text == "" and column.type not in ("string", "binary")):
        return pa.scalar(None, wanted)
    try:
        if column.type == "bool":
            return pa.scalar({"true": True, "false": False}[text.lower()])
        if column.type == "binary":
            return pa.scalar(text.encode(), wanted)
        if pa.types.is_timestamp(wanted) and wanted.tz is not None:
            plain = text.replace("T", " ").removesuffix("Z")
            has_zone = _ZONE.search(plain) is not None
            naive = wanted if has_zone else pa.timestamp(wanted.unit)
            return pa.scalar(plain).cast(naive).cast(wanted)
        if pa.types.is_decimal(wanted):
            return pa.scalar(text).cast(wanted)
        return pa.scalar(text).cast(wanted)
    except (KeyError, UnicodeEncodeError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidRequestError(
            f"column {column.name!r}: {text!r} is no {column.type} ({error})", field="source"
        ) from None
