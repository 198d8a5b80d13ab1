"""`TableRows`: the rows of a lake's table, read by ranges from its own Parquet files.

A row is shown with the columns that the table had at the entry's snapshot: renamed, added and widened ones as
the table has them, partitions from the file's path in the log. The key is compared with the row's own, by the
templates that indexed it.

Depends on errors, files, following, arrow_values, resolver, rule and index_service.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from tierdex.errors import InvalidRequestError, NotFoundError
from tierdex.files.folder import FileFolder, with_parameters
from tierdex.files.page_map import DictionaryMemory
from tierdex.files.parquet_row import KnownParquet, read_parquet_row
from tierdex.files.row_templates import Template
from tierdex.files.table_columns import TableColumns
from tierdex.following.records import Record
from tierdex.following.tables.table_rows import FileRows, RowNames
from tierdex.following.tables.table_source import prefixes_of
from tierdex.resolving.arrow_values import json_of_row
from tierdex.resolving.resolver import ChangedError, Found, TooLargeError
from tierdex.resolving.rule import Names

if TYPE_CHECKING:
    from tierdex.files.object_file import RangeFile
    from tierdex.filesystem import FileSystem
    from tierdex.index_service.answer import Entry
    from tierdex.index_service.tables.followed_tables import FollowedTables
    from tierdex.index_service.tables.table_state import TableFile, TableState
    from tierdex.resolving.resolver import Wanted


_FILES_KEPT: Final = 64
_DICTIONARY_BYTES: Final = 128 << 20


class TableRows:
    """The rows of one topic's table. See `Resolver`."""

    def __init__(self, filesystem: FileSystem, tables: FollowedTables, topic: str) -> None:
        self._filesystem = filesystem
        self._tables = tables
        self._topic = topic
        self._lock = threading.Lock()
        self._folder: FileFolder | None = None
        self._root = ""
        self._dictionaries = DictionaryMemory(_DICTIONARY_BYTES)
        self._files: dict[str, KnownParquet] = {}  # the one that was used last comes last

    @property
    def name(self) -> str:
        state = self._tables.state_of(self._topic)
        return self._topic if state is None else state.head.table

    def where(self, entry: Entry) -> str:
        place = entry.location or {}
        return f"{entry.source or self.name}, row {place.get('position')}"

    def fetch(self, entry: Entry, wanted: Wanted) -> Found | None:
        """Return the row, None when the table's file is gone: the table's maintenance removed it."""
        state = self._tables.require(self._topic)
        place = entry.location or {}
        if "position" not in place or "file" not in place:
            raise InvalidRequestError(f"the entry is of no row of {state.head.table}")
        number = state.number_of(place["file"])
        if number is None:  # no kept snapshot has it
            return None
        snapshot = state.snapshot_of(place.get("snapshot"))
        columns = TableColumns.decode(state.columns_at(snapshot.step))
        file = state.files[number]
        told = self._row(state, file, int(place["position"]))
        if told is None:
            return None
        raw, cost = told
        row = columns.logical(raw, columns.columns, file.partition)
        data = json_of_row(row)
        if len(data) > wanted.max_bytes:
            raise TooLargeError(len(data))
        return Found(Record(0, 0, 0, None, data), _names(state, columns, raw, file), cost=cost)

    def close(self) -> None:
        with self._lock:
            folder, self._folder = self._folder, None
        if folder is not None:
            folder.close()

    def _folder_of(self, state: TableState) -> FileFolder:
        """Return the table's folder; its connections are kept."""
        root = with_parameters(state.head.root, state.head.options)
        with self._lock:
            if self._folder is None or self._root != root:
                prefixes = prefixes_of(state.head.options)
                self._folder, self._root = FileFolder(self._filesystem, root, prefixes), root
            return self._folder

    def _known(self, path: str, opened: RangeFile) -> KnownParquet:
        """Return the footer of a file, of which the table never makes another one."""
        with self._lock:
            known = self._files.pop(path, None)
        if known is None:
            known = KnownParquet(opened, self._dictionaries)
        with self._lock:
            self._files[path] = known
            while len(self._files) > _FILES_KEPT:
                self._files.pop(next(iter(self._files)))
        return known

    def _row(
        self, state: TableState, file: TableFile, position: int
    ) -> tuple[Any, tuple[int, int]] | None:
        """Return a row as its file has it, and the requests and bytes that it took."""
        try:
            with self._folder_of(state).opened(file.path, file.size) as opened:
                known = self._known(file.path, opened)
                row = read_parquet_row(opened, *known.place(position), known)
                return row, (opened.requests, opened.bytes)
        except NotFoundError:
            return None
        except InvalidRequestError as error:
            raise ChangedError(f"the file was changed: {error.detail}") from None


def _names(state: TableState, columns: TableColumns, raw: Any, file: TableFile) -> Names:
    """Return the keys and IDs of a row, by the templates that indexed it."""
    head = state.head
    names = RowNames(
        tuple(Template.parse(key, field="key") for key in head.keys),
        None if head.message_id is None else Template.parse(head.message_id, field="message_id"),
    )
    rows = FileRows(columns, TableColumns.decode(state.first_columns), names, 1 << 20)
    keys: set[str] = set()
    ids: set[str] = set()
    for name, texts in rows.texts_of(raw, file.partition):
        text = texts[0].as_py()
        if text is not None:
            (keys if name == "key" else ids).add(text)
    return Names(keys, ids if head.message_id is not None else None)
