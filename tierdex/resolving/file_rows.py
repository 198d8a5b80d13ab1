"""Messages that are parts of files: a range of bytes, a line, a row of a Parquet file.

An entry of a message names offset and size, and its topic's plan the file; an entry of a file names the
file itself, as `source`: then the plan says below which folder or bucket it must lie. The text of a
compressed file is unfolded up to the line.

Depends on errors, following, arrow_values, object_file, unfolded_text, parquet_row, resolver, rule and
index_service.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, NamedTuple

from tierdex.errors import InvalidRequestError
from tierdex.files.object_file import is_local, opened_file, path_of_address
from tierdex.files.parquet_row import read_parquet_row
from tierdex.following.records import Record
from tierdex.resolving.arrow_values import json_of_row
from tierdex.resolving.resolver import ChangedError, Found, TooLargeError
from tierdex.resolving.unfolded_text import UnfoldedText, codec_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.files.object_file import RangeFile
    from tierdex.filesystem import FileSystem
    from tierdex.index_service.answer import Entry
    from tierdex.resolving.resolver import Wanted
    from tierdex.resolving.rule import Rule


class FileAddress(NamedTuple):
    """A path, or the URL of an object and the parameters of its store."""

    path: str
    parameters: str = ""


class FileRows:
    """Rows of files, of which `address_of` tells the path or URL of an entry's. See `Resolver`."""

    def __init__(
        self,
        filesystem: FileSystem,
        name: str,
        address_of: Callable[[Entry], FileAddress],
        rule: Rule,
    ) -> None:
        self.name = name
        self._filesystem = filesystem
        self._address_of = address_of
        self._rule = rule

    def where(self, entry: Entry) -> str:
        place = entry.location or {}
        if "row" in place:
            at = f"row group {place['row_group']}, row {place['row']}"
        else:
            at = f"offset {place.get('offset', entry.offset)}"
        return f"{entry.source or self.name}, {at}"

    def fetch(self, entry: Entry, wanted: Wanted) -> Found | None:
        record = Record(0, 0, 0, None, self._bytes_of(entry, wanted.max_bytes))
        return Found(record, self._rule.names_of(record), self._rule)

    def close(self) -> None:
        pass

    def _bytes_of(self, entry: Entry, max_bytes: int) -> bytes:
        place = entry.location or {"offset": entry.offset, "size": entry.size}
        address = self._address_of(entry)
        with opened_file(self._filesystem, *address) as file:
            if "row" in place:
                try:
                    row = read_parquet_row(file, int(place["row_group"]), int(place["row"]))
                except InvalidRequestError as error:
                    raise ChangedError(f"the file was changed: {error.detail}") from None
                data = json_of_row(row)
                if len(data) > max_bytes:
                    raise TooLargeError(len(data))
                return data
            if "offset" not in place or "size" not in place:
                raise InvalidRequestError("the entry names no place in a file", field="location")
            size = int(place["size"])
            if size > max_bytes:
                raise TooLargeError(size)
            return read_line(file, address.path, int(place["offset"]), size)


def read_line(
    file: RangeFile, address: str, offset: int, size: int, *, is_whole: bool = False
) -> bytes:
    """Return bytes of a file's text. Raises ChangedError when it is shorter, or no longer unfolds.

    With `is_whole` a line must end behind them, too: what was loaded of half a line is no row.
    """
    codec = codec_of(address)
    text = UnfoldedText.of_file(file, codec, address) if codec else file
    try:
        data = text.read_at(offset, size + is_whole)
    except InvalidRequestError as error:
        raise ChangedError(f"the file was changed: {error.detail}") from None
    if len(data) < size:
        raise ChangedError("the file was changed: it is shorter")
    if data[size:] not in (b"", b"\n", b"\r"):
        raise ChangedError("the line goes on: it was loaded while it was written")
    return data[:size]


def one_file(path: str) -> Callable[[Entry], FileAddress]:
    """Return the address of messages in one file, or one a queue where the path has ``{queue_id}``.

    Raises InvalidRequestError for an entry that names a file itself.
    """
    address = _parted(path)

    def address_of(entry: Entry) -> FileAddress:
        if entry.source is not None:
            raise InvalidRequestError(
                f"the entry is of {entry.source}, and the topic's resolver is one file: give files:FOLDER"
            )
        return address._replace(path=address.path.replace("{queue_id}", str(entry.queue_id)))

    return address_of


def below(root: str) -> Callable[[Entry], FileAddress]:
    """Return the address that an entry names itself, which must lie below `root`.

    Raises InvalidRequestError for another one.
    """
    url, parameters = _parted(root)
    url = url.rstrip("/").replace("s3a://", "s3://", 1) + "/"

    def address_of(entry: Entry) -> FileAddress:
        source = (entry.source or "").replace("s3a://", "s3://", 1)
        if is_local(source):
            source = str(path_of_address(source))
            is_clean = posixpath.normpath(source) == source
        else:  # a key may have any characters; steps like these a proxy might take
            is_clean = not {".", ".."} & set(source.split("/"))
        if not is_clean or not source.startswith(url):
            raise InvalidRequestError(f"the entry's file is not below {url}", field="source")
        return FileAddress(source, parameters)

    return address_of


def _parted(given: str) -> FileAddress:
    """Return a path or URL as it is configured; a URL may end with the parameters of its store."""
    if is_local(given):
        return FileAddress(given)
    url, question, parameters = given.partition("?")
    return FileAddress(url, question + parameters)
