"""`LoadedRows`: shows rows of files on this machine, loaded ones and those that entries name.

A row is parsed again the way it was loaded, so that its names and its time are those that indexed it, and its
file is compared with what the register says of it: one that was replaced since shows no other row.

Depends on app.load, files, resolving, following, errors, filesystem, index_service, text_times, numpy and
pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tierdex.app.load.csv_rows import CsvFormat, parse_block
from tierdex.app.load.jsonl_rows import parse_jsonl_block
from tierdex.app.load.loaded_file import LoadedFiles, check_time, time_columns
from tierdex.app.load.records import Block
from tierdex.errors import InvalidRequestError, NotFoundError
from tierdex.files.object_file import is_local, opened_file, path_of_address
from tierdex.files.parquet_row import read_parquet_row
from tierdex.files.row_templates import Template
from tierdex.following.records import Record
from tierdex.resolving.arrow_values import json_of_row
from tierdex.resolving.file_rows import FileAddress, FileRows, read_line
from tierdex.resolving.resolver import ChangedError, Found, TooLargeError
from tierdex.resolving.rule import Names, Rule
from tierdex.text_times import RowError

if TYPE_CHECKING:
    from tierdex.app.load.register import LoadedFile, LoadRegister
    from tierdex.files.object_file import RangeFile
    from tierdex.filesystem import FileSystem
    from tierdex.index_service.answer import Entry
    from tierdex.resolving.resolver import Wanted


class LoadedRows:
    """Lines of CSV or JSONL, Parquet rows as JSON. See `Resolver`.

    Without a register no row of messages is known. With `named` it also reads files that entries name and
    are not registered: rows indexed in place. That is for a user at this machine, not for a service: an entry
    may name any path.
    """

    name = "loaded files"

    def __init__(
        self, filesystem: FileSystem, register: LoadRegister | None, *, named: bool
    ) -> None:
        self._filesystem = filesystem
        self._register = register
        self._files = LoadedFiles()
        self._named = FileRows(filesystem, "a file", _path_of, Rule()) if named else None

    def where(self, entry: Entry) -> str:
        if entry.source is not None:
            return FileRows(self._filesystem, "", _path_of, Rule()).where(entry)
        return f"a file loaded under {entry.topic!r}, offset {entry.offset}"

    def fetch(self, entry: Entry, wanted: Wanted) -> Found | None:
        """Return the row of the one of the files that has it. Raises CorruptFileError, OSError."""
        register = self._register
        known = [] if register is None else register.holding(entry.topic, entry.source)
        reason: Exception = InvalidRequestError(
            f"no local file was loaded under topic {entry.topic!r}: name the data folder with --data"
            if register is None
            else f"no local file was loaded under topic {entry.topic!r}"
        )
        if entry.source is not None and not known:
            if self._named is None:
                raise reason
            return self._named.fetch(entry, wanted)
        if (entry.size or 0) > wanted.max_bytes:
            raise TooLargeError(entry.size)
        for loaded in known:
            try:
                found = self._row(loaded, entry, wanted)
            except NotFoundError as error:
                reason = error
                continue
            except (ChangedError, InvalidRequestError, RowError, pa.ArrowInvalid) as error:
                reason = ChangedError(f"{loaded.path} was changed since it was loaded: {error}")
                continue
            if found is None:
                continue
            if found.names.holds(wanted.key, wanted.message_id):
                return found
            reason = ChangedError(
                f"the row in {loaded.path} has another key: the file was changed since it was loaded"
            )
        raise reason

    def close(self) -> None:
        pass

    def _row(self, loaded: LoadedFile, entry: Entry, wanted: Wanted) -> Found | None:
        """Return a row; None when the entry is not of this file.

        One with the names that were looked up has the entry's time, and its file is the one that was loaded.
        """
        path = loaded.path
        if loaded.kind == "parquet":
            place = entry.location or {}
            if entry.source != path or "row" not in place:
                return None
            with opened_file(self._filesystem, path, loaded.parameters) as file:
                table = read_parquet_row(file, int(place["row_group"]), int(place["row"]))
                return self._checked(loaded, entry, wanted, file, json_of_row(table), table)
        if entry.offset is None or not entry.size:
            return None
        with opened_file(self._filesystem, path, loaded.parameters) as file:
            text = read_line(file, path, entry.offset, entry.size, is_whole=True)
            block = Block(
                text + b"\n", entry.offset, 1, np.zeros(1, np.int64), np.array([entry.size]), path
            )
            columns = _columns(loaded)
            if loaded.kind == "csv":
                form = CsvFormat(loaded.delimiter, loaded.null_values)
                table = parse_block(block, list(loaded.columns), columns, form).table
            else:
                table = parse_jsonl_block(block, columns).table
            return self._checked(loaded, entry, wanted, file, text, table)

    def _checked(
        self, loaded: LoadedFile, entry: Entry, wanted: Wanted, file: RangeFile, text: bytes, table: Any
    ) -> Found:  # fmt: skip
        """Return a row with its names. Raises ChangedError for one that is not the entry's."""
        found = _found(loaded, text, table)
        if found.names.holds(wanted.key, wanted.message_id):
            check_time(loaded, table, entry.timestamp)
            self._files.check(loaded, file)
        return found


def _path_of(entry: Entry) -> FileAddress:
    source = entry.source or ""
    if not is_local(source) or not path_of_address(source).is_absolute():
        raise InvalidRequestError(f"{source} is not a file of this machine: see resolvers.toml")
    return FileAddress(source)


def _found(loaded: LoadedFile, text: bytes, table: pa.Table) -> Found:
    keys = {_value(template, table) for template in loaded.keys}
    ids = {_value(loaded.message_id, table)} if loaded.message_id else set()
    return Found(Record(0, 0, 0, None, text), Names(keys, ids))


def _columns(loaded: LoadedFile) -> list[str]:
    texts = [*loaded.keys, *([loaded.message_id] if loaded.message_id else [])]
    names = [name for text in texts for name in Template.parse(text, field="key").columns]
    return list(dict.fromkeys([*names, *time_columns(loaded)]))


def _value(template: str, table: pa.Table) -> Any:
    return Template.parse(template, field="key").evaluate(table)[0].as_py()
